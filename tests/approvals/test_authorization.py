"""Who may do what to a request, where it stands, over which door: every combination, and nothing but what is listed.

What is not listed changes nothing: neither the request, nor its call, nor anything that hangs on it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from approvals.decisions import decide
from approvals.models import ApprovalRequest, Comment, Delegation, Review, Snooze
from approvals.requests import withdraw
from catalog.models import CallRequester
from tests.approvals.builders import approval, ask, rejection
from tests.conftest import person
from tests.pages import Pages
from tests.rest import Rest, agent

pytestmark = pytest.mark.django_db

PENDING, APPROVED, UNDOABLE, REJECTED, WITHDRAWN = "pending", "approved", "undoable", "rejected", "withdrawn"
STATES = (PENDING, APPROVED, UNDOABLE, REJECTED, WITHDRAWN)
ROLES = ("nobody", "viewer", "operator", "asker", "reviewer", "decider", "asking reviewer", "delegate", "administrator")
DECIDERS = {"reviewer", "decider", "delegate"}
READERS = set(ROLES) - {"nobody"}
ANSWERS: dict[str, dict[str, Any]] = {
    "approve": {},
    "reject": {"comment": "No."},
    "respond": {"response": 1},
    "request_changes": {"comment": "Less."},
}


@dataclass(frozen=True)
class May:
    """Who may do it, and where a request must stand for that."""

    roles: set[str]
    states: set[str]


REST: dict[str, May] = {
    **dict.fromkeys(ANSWERS, May(DECIDERS, {PENDING})),
    "undo": May({"decider"}, {UNDOABLE}),
    "revoke": May(DECIDERS | {"asking reviewer"}, {APPROVED}),  # it makes nothing run
    "withdraw": May({"asker"}, {PENDING, APPROVED, UNDOABLE}),
    "claim": May(DECIDERS, {PENDING}),
    "release": May(set(), set()),
    "snooze": May(READERS, {PENDING}),
    "delegate": May({"reviewer", "decider"}, {PENDING}),
    "comments": May(READERS, set(STATES)),
}
PAGES = {name: REST[name] for name in ("approve", "reject", "undo")}


@pytest.fixture
def cast(db: None) -> dict[str, User]:
    """Someone of every role."""
    cast = {role: person(role.replace(" ", "_")) for role in ("nobody", "spare")}
    groups = {"asker": "operator", "decider": "reviewer", "asking reviewer": "reviewer", "delegate": "viewer"}
    for role in ROLES[1:]:
        cast[role] = person(role.replace(" ", "_"), groups.get(role, role))
    return cast


def standing(state: str, cast: dict[str, User]) -> ApprovalRequest:
    """Return a request that the asker and the asking reviewer made, in this state by the decider."""
    request = ask(cast["asker"])
    CallRequester.objects.create(call=request.call, user=cast["asking reviewer"])
    Delegation.objects.create(request=request, by=cast["reviewer"], to=cast["delegate"], at=timezone.now())
    if state in (APPROVED, UNDOABLE):
        decide(request, by=cast["decider"], decision=approval(request, channel="rest" if state == APPROVED else "page"))
    elif state == REJECTED:
        decide(request, by=cast["decider"], decision=rejection(request, "No."))
    elif state == WITHDRAWN:
        withdraw(request, by=cast["asker"], reason="")
    return ApprovalRequest.objects.get(pk=request.pk)


def body_of(action: str, request: ApprovalRequest) -> dict[str, Any]:
    """Return what is sent with an action."""
    if action in ANSWERS:
        return {"verdict": action, "seen_digest": request.digest, **ANSWERS[action]}
    until = (timezone.now() + timedelta(minutes=5)).isoformat()
    return {"snooze": {"until": until}, "delegate": {"to": "spare"}, "comments": {"text": "Look."}}.get(action, {})


def path_of(action: str, request: ApprovalRequest) -> str:
    """Return where an action is done, below `approvals/`."""
    return f"approvals/{request.public_id}/{'reviews' if action in ANSWERS else action}/"


def traces(request: ApprovalRequest) -> tuple[Any, ...]:
    """Return all that an action may leave behind."""
    now = ApprovalRequest.objects.select_related("call").get(pk=request.pk)
    state = (now.status, now.round_number, now.digest, now.claimed_by_id, now.applied_at, now.call.status)
    counted = (Review.objects.filter(undone_at=None), Comment.objects, Snooze.objects)
    delegations = tuple(Delegation.objects.values_list("by", "to"))
    return (*state, *(rows.count() for rows in counted), delegations)


@contextmanager
def tried(state: str, cast: dict[str, User]) -> Iterator[ApprovalRequest]:
    """Give a request in this state, and take back all that happens to it."""
    with transaction.atomic():
        yield standing(state, cast)
        transaction.set_rollback(True)


def judge(may: May, role: str, state: str, act: Callable[[], int], request: ApprovalRequest) -> None:
    """Act; check that it worked where it may, and that it left nothing behind elsewhere."""
    before, status = traces(request), act()
    allowed = role in may.roles and state in may.states
    assert (status < 400, status < 500) == (allowed, True), (role, state, status)
    assert (traces(request) != before) == allowed, (role, state, status)


@pytest.mark.parametrize("action", REST)
@pytest.mark.parametrize("role", ROLES)
def test_over_rest(role, action, cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    client = Rest(cast[role])
    for state in STATES:
        with tried(state, cast) as request:
            body, path = body_of(action, request), path_of(action, request)
            judge(REST[action], role, state, partial(posted, client, path, body), request)


@pytest.mark.parametrize("role", ROLES)
def test_an_agents_token_decides_nothing(role, cast):
    """Whoever it acts for, and whatever it may read; nor does it change what it did not ask for."""
    client = agent(cast[role], "calls:create", "plans:read", "approvals:read")
    for action, state in product(REST, (PENDING, APPROVED)):
        with tried(state, cast) as request:
            body, path = body_of(action, request), path_of(action, request)
            judge(May(set(), set()), role, state, partial(posted, client, path, body), request)


@pytest.mark.parametrize("action", PAGES)
@pytest.mark.parametrize("role", ROLES)
def test_on_pages(role, action, cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    pages = Pages(cast[role])
    pages.open("/approvals/")
    for state in STATES:
        with tried(state, cast) as request:
            form = {"verdict": action, "seen_digest": request.digest, "comment": "No.", "confirmed": "1"}
            way = "undo" if action == "undo" else "decision"
            address = f"/approvals/{request.public_id}/{way}/"
            judge(PAGES[action], role, state, partial(sent, pages, address, form), request)


def posted(client: Rest, path: str, body: dict[str, Any]) -> int:
    """Send a body over REST and return the status."""
    return int(client.post(path, body).status_code)


def sent(pages: Pages, path: str, form: dict[str, str]) -> int:
    """Send a form as a page does and return the status."""
    response = pages.client.post(path, {**form, "csrfmiddlewaretoken": pages._token()})
    return int(response.status_code)


def test_there_are_enough_cases():
    cases = len(ROLES) * len(STATES) * (len(REST) + len(PAGES)) + len(ROLES) * len(REST) * 2
    assert cases >= 400
