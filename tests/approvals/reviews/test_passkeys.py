"""Approvals signed by a passkey: what a signature covers, and which ways to approve are closed without one."""

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from fido2 import cbor
from fido2.cose import CoseKey
from fido2.utils import websafe_decode

from approvals.grants.services import may_create_from
from approvals.models import ApprovalNonce, ApprovalRequest, AuditEntry, Review
from approvals.policies.lint import policy_warnings
from approvals.policy_language.terms import TERM_COLUMNS
from approvals.web.review.timeline import timeline_of
from catalog.core import clock
from tests.approvals.factories import ask, grant, let_be_granted, run, set_rule
from tests.builders import act, approve, make_plan, request_of, work_off
from tests.catalog.accounts.factories import add_passkey, secure_pages
from tests.pages import Pages
from tests.passkeys import HOST, Passkey
from tests.rest import Rest

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def host(settings):
    settings.ALLOWED_HOSTS = [HOST, "testserver"]


@pytest.fixture
def passkey(rosa: User) -> Passkey:
    return add_passkey(rosa)


@pytest.fixture
def request_to_sign(ada: User, passkey: Passkey) -> ApprovalRequest:
    set_rule(fresh_passkey=True)
    return ask(ada)


@pytest.fixture
def people(rosa: User, ada: User, tomas: User) -> tuple[User, User, User]:
    return rosa, ada, tomas


def opened(by: User, request: ApprovalRequest) -> Pages:
    pages = secure_pages(by)
    pages.open(f"/approvals/?item={request.public_id}")
    return pages


def fields_for(request: ApprovalRequest, verdict: str = "approve", **fields: str) -> dict[str, str]:
    return {"verdict": verdict, "seen_digest": request.digest, **fields}


def signed(pages: Pages, request: ApprovalRequest, passkey: Passkey, sent: dict[str, str]) -> dict[str, str]:
    """Return the fields of a decision with their signature, as the page's script sends them."""
    form = {**sent, "csrfmiddlewaretoken": pages.field("csrfmiddlewaretoken")}
    answer = pages.client.post(f"/approvals/{request.public_id}/decision/sign/", form)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return {**sent, "passkey_nonce": found["nonce"], "passkey": passkey.sign(found["options"])}


def decide(pages: Pages, request: ApprovalRequest, fields: dict[str, str], status: int = 200) -> str:
    return pages.send(f"/approvals/{request.public_id}/decision/", fields, status)


def status_of(request: ApprovalRequest) -> str:
    return ApprovalRequest.objects.get(pk=request.pk).status


@pytest.mark.parametrize("verdict", ["approve", "respond"])
def test_a_signed_decision_is_kept_with_its_signature(request_to_sign, passkey, rosa, verdict):
    pages = opened(rosa, request_to_sign)
    sent = fields_for(request_to_sign, verdict, **({"response": "done"} if verdict == "respond" else {}))
    decide(pages, request_to_sign, sent, 403)
    assert status_of(request_to_sign) == "pending"
    decide(pages, request_to_sign, signed(pages, request_to_sign, passkey, sent))
    review = Review.objects.get()
    kept = json.loads(review.passkey)
    stored_key: Any = cbor.decode(websafe_decode(kept["public_key"]))
    key = CoseKey.parse(stored_key)
    client_data = websafe_decode(kept["clientDataJSON"])
    signed_data = websafe_decode(kept["authenticatorData"]) + hashlib.sha256(client_data).digest()
    key.verify(signed_data, websafe_decode(kept["signature"]))
    entry = AuditEntry.objects.get(action="approval.reviewed")
    assert json.loads(entry.details)["passkey"] == kept["id"]


def test_the_history_says_that_an_approval_was_signed(request_to_sign, passkey, rosa):
    pages = opened(rosa, request_to_sign)
    decide(pages, request_to_sign, signed(pages, request_to_sign, passkey, fields_for(request_to_sign)))
    request_to_sign.refresh_from_db()
    assert "passkey" in " ".join(entry.note for entry in timeline_of(request_to_sign))
    [vote] = Rest(rosa).get(f"approvals/{request_to_sign.public_id}/").json()["votes"]
    assert vote["signed"] is True


def test_a_rejection_needs_no_signature(request_to_sign, rosa):
    pages = opened(rosa, request_to_sign)
    decide(pages, request_to_sign, fields_for(request_to_sign, "reject", comment="No."))
    assert status_of(request_to_sign) == "rejected"


@pytest.mark.parametrize(
    "fault", ["late", "twice", "of another", "other verdict", "other response", "other request", "unverified"]
)
def test_a_signature_covers_one_decision_once(request_to_sign, passkey, people, monkeypatch, fault):
    rosa, ada, tomas = people
    pages, request = opened(rosa, request_to_sign), request_to_sign
    sent = fields_for(request)
    if fault == "unverified":
        passkey.verifies = False
    if fault == "of another":
        passkey = add_passkey(tomas)
    if fault == "other response":
        sent = fields_for(request, "respond", response="one")
    fields = signed(pages, request, passkey, sent)
    if fault == "late":
        later = clock.now() + timedelta(seconds=121)
        monkeypatch.setattr(clock, "now", lambda: later)
    if fault == "other verdict":
        fields |= {"verdict": "respond", "response": "done"}
    if fault == "other response":
        fields["response"] = "two"
    if fault == "twice":
        ApprovalNonce.objects.update(used_at=clock.now())
    if fault == "other request":
        request = ask(ada)
        fields["seen_digest"] = request.digest
    decide(pages, request, fields, 403)
    assert not Review.objects.exists()


@pytest.fixture
def asked(stage: object, ada: User, passkey: Passkey, read_anew: None) -> ApprovalRequest:
    """A request of a plan, without the cache of policies."""
    set_rule(fresh_passkey=True)
    return request_of(work_off(make_plan(ada, act(1, "asked", "dangerous"))))


def test_an_edit_is_part_of_what_is_signed(asked, passkey, rosa):
    pages = opened(rosa, asked)
    edit, other = ({"mode": "json", "json": json.dumps({"value": value})} for value in ("edited", "other"))
    fields = signed(pages, asked, passkey, fields_for(asked, confirmed="1", **edit))
    decide(pages, asked, fields | other, 403)
    plain = signed(pages, asked, passkey, fields_for(asked, confirmed="1"))
    decide(pages, asked, plain | edit, 403)
    assert status_of(asked) == "pending"
    decide(pages, asked, fields)
    assert Review.objects.get().passkey
    assert status_of(asked) == "approved"


def test_a_rule_that_requires_signatures_by_now_lets_no_unsigned_approval_start(stage, ada, rosa, read_anew):
    set_rule()
    plan = work_off(make_plan(ada, act(1, "asked", "dangerous")))
    approve(plan, rosa)
    set_rule(fresh_passkey=True)
    work_off(plan)
    assert stage.values("dangerous") == []
    assert [each.status for each in ApprovalRequest.objects.order_by("pk")] == ["superseded", "pending"]


def test_other_ways_to_approve_are_closed(request_to_sign, rosa):
    seen = {"seen_digest": request_to_sign.digest}
    rest = Rest(rosa)
    path = f"approvals/{request_to_sign.public_id}/reviews/"
    assert rest.post(path, {"verdict": "approve", **seen}).status_code == 403
    item = {"id": request_to_sign.public_id, **seen}
    assert rest.post("approvals/batch/", {"verdict": "approve", "items": [item]}).status_code == 403
    assert not Review.objects.exists()


@pytest.mark.usefixtures("stage", "rosa")
def test_a_grant_never_covers_such_a_rule(ada, admin, settings, monkeypatch):
    let_be_granted(admin, settings, monkeypatch)
    made = grant(admin)
    set_rule(fresh_passkey=True)
    request = request_of(run(ada))
    assert (request.status, made.used.count()) == ("pending", 0)
    ApprovalRequest.objects.update(status="approved")
    request.refresh_from_db()
    assert "passkey" in str(may_create_from(request, admin))


def test_saving_warns_where_nobody_has_a_passkey(ada, rosa):
    revision = set_rule(fresh_passkey=True)
    columns = {name: getattr(revision, name) for name in TERM_COLUMNS}
    assert "passkey" in policy_warnings(columns)["stage-0"]
    add_passkey(rosa)
    assert "stage-0" not in policy_warnings(columns)
