"""Who may do what to a request, where it stands, over which door: every combination, and nothing but what is listed.

What is not listed changes nothing: neither the request, nor its call, nor anything that hangs on it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.decisions import decide
from approvals.grants import Terms, make
from approvals.models import ApprovalRequest, Comment, Delegation, Grant, Review, Snooze
from approvals.requests import withdraw
from catalog import clock
from catalog.models import CallRequester, Tool
from plans import slices
from tests.approvals.builders import approval, ask, rejection
from tests.builders import act, make_plan, request_of, work_off
from tests.conftest import person
from tests.pages import Pages
from tests.rest import Rest, agent

pytestmark = pytest.mark.django_db

PENDING, APPROVED, UNDOABLE, REJECTED, WITHDRAWN = "pending", "approved", "undoable", "rejected", "withdrawn"
STATES = (PENDING, APPROVED, UNDOABLE, REJECTED, WITHDRAWN)
ROLES = ("nobody", "viewer", "operator", "asker", "reviewer", "decider", "asking reviewer", "delegate", "administrator")
DECIDERS = {"reviewer", "decider", "delegate", "administrator"}
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


@dataclass(frozen=True)
class Case:
    """An action, a request that stands somewhere, and what has left traces so far."""

    action: str
    state: str
    request: ApprovalRequest
    before: tuple[Any, ...]


REST: dict[str, May] = {
    **dict.fromkeys(ANSWERS, May(DECIDERS, {PENDING})),
    "undo": May({"decider"}, {UNDOABLE}),
    "revoke": May(DECIDERS | {"asking reviewer"}, {APPROVED}),  # it makes nothing run
    "withdraw": May({"asker", "asking reviewer"}, {PENDING, APPROVED, UNDOABLE}),
    "batch": May(DECIDERS, {PENDING}),
    "claim": May(DECIDERS, {PENDING}),
    "extend": May(DECIDERS, {PENDING}),
    "release": May(set(), set()),
    "snooze": May(READERS, {PENDING}),
    "delegate": May({"reviewer", "decider", "administrator"}, {PENDING}),
    "comments": May(READERS, set(STATES)),
}
PAGES = REST | {"several": REST["batch"], "comment": REST["comments"]}
for _name in ("batch", "comments"):
    del PAGES[_name]


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
    Delegation.objects.create(request=request, by=cast["reviewer"], to=cast["delegate"], at=clock.now())
    if state in (APPROVED, UNDOABLE):
        decide(request, by=cast["decider"], decision=approval(request, channel="rest" if state == APPROVED else "page"))
    elif state == REJECTED:
        decide(request, by=cast["decider"], decision=rejection(request, "No."))
    elif state == WITHDRAWN:
        withdraw(request, by=cast["asker"], reason="")
    ApprovalRequest.objects.filter(pk=request.pk).update(expires_at=clock.now() + timedelta(minutes=30))
    return ApprovalRequest.objects.get(pk=request.pk)


def body_of(action: str, request: ApprovalRequest) -> dict[str, Any]:
    """Return what is sent with an action."""
    if action in ANSWERS:
        return {"verdict": action, "seen_digest": request.digest, **ANSWERS[action]}
    until = (clock.now() + timedelta(minutes=5)).isoformat()
    return {"snooze": {"until": until}, "delegate": {"to": "spare"}, "comments": {"text": "Look."}}.get(action, {})


def path_of(action: str, request: ApprovalRequest) -> str:
    """Return where an action is done, below `approvals/`."""
    return f"approvals/{request.public_id}/{'reviews' if action in ANSWERS else action}/"


def traces(request: ApprovalRequest) -> tuple[Any, ...]:
    """Return all that an action may leave behind."""
    now = ApprovalRequest.objects.select_related("call").get(pk=request.pk)
    state = (
        now.status,
        now.round_number,
        now.digest,
        now.claimed_by_id,
        now.extensions,
        now.applied_at,
        now.call.status,
    )
    counted = (Review.objects.filter(undone_at=None), Comment.objects, Snooze.objects)
    delegations = tuple(Delegation.objects.values_list("by", "to"))
    return (*state, *(rows.count() for rows in counted), delegations)


@contextmanager
def taken_back() -> Iterator[None]:
    """Take back all that happens meanwhile."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def each_of(actions: dict[str, May], states: tuple[str, ...], cast: dict[str, User]) -> Iterator[Case]:
    """Give a request in each of these states for each of these actions: made once, and as good as new for each."""
    for state in states:
        with taken_back():
            request = standing(state, cast)
            before = traces(request)
            for action in actions:
                with taken_back():
                    yield Case(action, state, request, before)


def judge(case: Case, role: str, may: May, act: Callable[[], int]) -> None:
    """Act; check that it worked where it may, and that it left nothing behind elsewhere."""
    status = act()
    allowed = role in may.roles and case.state in may.states
    told = (case.action, role, case.state, status)
    assert (status < 400, status < 500) == (allowed, True), told
    assert (traces(case.request) != case.before) == allowed, told


@pytest.mark.parametrize("role", ROLES)
def test_over_rest(role, cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    client = Rest(cast[role])
    for case in each_of(REST, STATES, cast):
        judge(case, role, REST[case.action], partial(posted, client, case))


@pytest.mark.parametrize("role", ROLES)
def test_an_agents_token_decides_nothing(role, cast):
    """Whoever it acts for, and whatever it may read; nor does it change what it did not ask for."""
    client = agent(cast[role], "calls:create", "plans:read", "approvals:read")
    for case in each_of(REST, (PENDING, APPROVED), cast):
        judge(case, role, May(set(), set()), partial(posted, client, case))


@pytest.mark.parametrize("role", ROLES)
def test_on_pages(role, cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    pages = Pages(cast[role])
    pages.open("/approvals/")
    for case in each_of(PAGES, (PENDING, UNDOABLE), cast):
        judge(case, role, PAGES[case.action], partial(sent, pages, case))


def posted(client: Rest, case: Case) -> int:
    """Do it over REST and return the status; that of the one item of a batch."""
    if case.action != "batch":
        return int(client.post(path_of(case.action, case.request), body_of(case.action, case.request)).status_code)
    item = {"id": case.request.public_id, "seen_digest": case.request.digest}
    answer = client.post("approvals/batch/", {"verdict": "reject", "comment": "No.", "items": [item]})
    return 409 if "detail" in answer.json().get("results", [{}])[0] else int(answer.status_code)


def sent(pages: Pages, case: Case) -> int:
    """Send a form as a page does and return the status; of several, what their table says of the one."""
    action, request = case.action, case.request
    form = {"seen_digest": request.digest, "comment": "No.", "confirmed": "1"}
    until = (clock.now() + timedelta(minutes=5)).isoformat()
    form |= {"verdict": action, "response": "1", "until": until, "to": "spare", "csrfmiddlewaretoken": pages._token()}
    if action == "several":
        form |= {"verdict": "reject", "item": f"{request.public_id}:{request.digest}"}
        answer = pages.client.post("/approvals/several/", form)
        return int(answer.status_code) if traces(request) != case.before else 409
    way = "decision" if action in ANSWERS else action
    return int(pages.client.post(f"/approvals/{request.public_id}/{way}/", form).status_code)


@pytest.mark.parametrize("role", ROLES)
def test_secrets_are_shown_to_who_decides_or_administers(role, cast):
    """Who may is told that there is none here; all others are refused before that."""
    client, sees = Rest(cast[role]), role in DECIDERS
    for case in each_of({"reveal": May(set(), set())}, (PENDING, APPROVED), cast):
        status = client.post(f"approvals/{case.request.public_id}/reveal/", {"path": "password"}).status_code
        assert (status == 422, status in (403, 404)) == (sees, not sees), (role, case.state, status)


@pytest.mark.parametrize("role", ROLES)
def test_grants_are_made_by_who_approved_or_administers_and_ended_by_who_reviews(role, cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    client = Rest(cast[role])
    for case in each_of({"grant": May(set(), set())}, STATES, cast):
        Tool.objects.update(grantable={"max_hours": 8, "max_uses": 20})
        terms = {"tool": "write_note", "arguments": [], "scope": "requester", "scope_ref": "asker"}
        answer = client.post("grants/", terms | {"created_from": case.request.public_id})
        may_make = role == "administrator" or (role == "decider" and case.state in (APPROVED, UNDOABLE))
        assert (answer.status_code == 201, Grant.objects.count()) == (may_make, int(may_make)), (role, case.state)
        made = make(Terms(rows=[], tool="write_note", scope="requester", scope_ref="asker"), by=cast["administrator"])
        ended = client.delete(f"grants/{made.public_id}/").status_code
        may_end = role in {"reviewer", "decider", "asking reviewer", "administrator"}
        assert (ended == 200, Grant.objects.get(pk=made.pk).revoked_at is None) == (may_end, not may_end), (role, ended)


@pytest.mark.parametrize("role", ROLES)
def test_edits_and_slices(role, cast, stage):
    """With a tool that is there: other arguments are approved, and what is asked early is, by who decides alone."""
    plan = work_off(make_plan(cast["asker"], act(1, "x", "dangerous"), act(2, "y", "dangerous", dependencies=[1])))
    (early,) = slices.prepare(plan, 1, by=cast["reviewer"]).asked
    now, client = request_of(plan), Rest(cast[role])
    for request in (now, early):
        CallRequester.objects.get_or_create(call=request.call, user=cast["asking reviewer"])
        Delegation.objects.create(request=request, by=cast["reviewer"], to=cast["delegate"], at=clock.now())
    edit = {"verdict": "approve", "seen_digest": now.digest, "arguments": {"value": "z"}}
    edited = client.post(f"approvals/{now.public_id}/reviews/", edit).status_code
    item = {"id": early.public_id, "seen_digest": early.digest}
    client.post("approvals/slice/", {"plan": plan.public_id, "items": [item]})
    rounds, statuses = now.rounds.count(), [type(each).objects.get(pk=each.pk).status for each in (now, early)]
    expected = (201, 2, ["approved", "approved"]) if role in DECIDERS else (403, 1, ["pending", "pending"])
    assert (404 if role == "nobody" else expected[0], *expected[1:]) == (edited, rounds, statuses)


def test_there_are_enough_cases():
    cases = len(ROLES) * (len(STATES) * len(REST) + 2 * len(PAGES) + 2 * len(REST))
    assert cases >= 400
