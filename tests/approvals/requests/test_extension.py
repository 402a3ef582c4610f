"""Extensions: reviewers give a request half an hour more."""

from datetime import timedelta

import pytest

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.deadlines import MAX_EXTENSIONS, expire_due, extend
from approvals.requests.queries import request_for
from approvals.reviews.decisions import decide
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict
from tests.approvals.factories import approval, ask

pytestmark = [pytest.mark.django_db, pytest.mark.db]


@pytest.fixture
def request_(ada) -> ApprovalRequest:
    """A request by Ada."""
    return ask(ada)


def will_expire_in(request_: ApprovalRequest, minutes: float) -> None:
    """Set the time left of a request."""
    ApprovalRequest.objects.filter(pk=request_.pk).update(expires_at=clock.now() + timedelta(minutes=minutes))
    request_.refresh_from_db()


def test_extension_adds_half_an_hour(request_, rosa):
    will_expire_in(request_, 5)
    before = request_.expires_at
    extended = extend(request_, by=rosa)
    assert (extended.expires_at - before, extended.extensions) == (timedelta(minutes=30), 1)
    entry = AuditEntry.objects.get(action="approval.extended")
    assert (entry.actor, entry.details_json["number"]) == (rosa, 1)
    assert expire_due(before + timedelta(minutes=1)) == 0
    assert decide(request_for(rosa, request_.public_id), by=rosa, decision=approval(extended)).status == "approved"


def test_extensions_are_limited(request_, ada, rosa):
    with pytest.raises(Conflict):
        extend(request_, by=rosa)
    will_expire_in(request_, 5)
    with pytest.raises(NotAllowed):
        extend(request_, by=ada)
    ApprovalRequest.objects.filter(pk=request_.pk).update(extensions=MAX_EXTENSIONS)
    with pytest.raises(Conflict):
        extend(request_, by=rosa)
    ApprovalRequest.objects.filter(pk=request_.pk).update(extensions=MAX_EXTENSIONS - 1)
    will_expire_in(request_, -1)
    with pytest.raises(Conflict):
        extend(request_, by=rosa)
    assert not AuditEntry.objects.filter(action="approval.extended").exists()


def test_concurrent_extensions_add_once(request_, rosa, tomas):
    """The second request finds more than an hour left, or the same number of extensions."""
    will_expire_in(request_, 31)
    extend(request_, by=rosa)
    with pytest.raises(Conflict):
        extend(request_, by=tomas)
    request_.refresh_from_db()
    assert request_.extensions == 1
