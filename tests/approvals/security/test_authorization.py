"""Authorization matrix: role, action and state of a request, over REST and on pages.

An action that the matrix forbids must change nothing: neither the request, nor its call, nor related rows.
The code checks role (`approvals.policies.eligibility`) and state (the conditional updates) independently, so the fast
tier checks a row and a column of each action: every role in a state where the action is open, and every state for one
role that may and one that may not. `make nightly` checks the full product.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.grants.services import GrantTerms, create_grant
from approvals.models import ApprovalRequest, Comment, Delegation, Grant, Review, Snooze
from approvals.requests.lifecycle import withdraw
from approvals.reviews.decisions import decide
from catalog.core import clock
from catalog.models import CallRequester, Tool
from plans.actions import slices
from tests import counts
from tests.approvals.factories import approval, ask, rejection, rolled_back
from tests.builders import act, make_plan, request_of, work_off
from tests.conftest import person
from tests.pages import Pages, without_rendering
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
    """Roles that may perform an action, and states in which it is possible."""

    roles: set[str]
    states: set[str]

    @property
    def tried_in(self) -> str:
        """State in which every role is tested: one in which the action is possible, if there is one."""
        return next((state for state in STATES if state in self.states), PENDING)

    @property
    def tried_by(self) -> set[str]:
        """Roles that are tested in every state: one that may, if there is one, and one that may not."""
        may = [role for role in ROLES if role in self.roles]
        may_not = [role for role in (*ROLES[1:], "nobody") if role not in self.roles]
        return {*may[:1], *may_not[:1]}


@dataclass(frozen=True)
class Case:
    """One case: action, user, request, and the rows before it."""

    action: str
    role: str
    state: str
    request: ApprovalRequest
    before: tuple[Any, ...]


Actions = Mapping[str, May]
Chosen = Callable[[str, May, str, str], bool]
"""Predicate that selects the cases to test."""


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
    """One user per role."""
    cast = {"nobody": person("nobody"), "spare": person("spare", "reviewer")}
    groups = {"asker": "operator", "decider": "reviewer", "asking reviewer": "reviewer", "delegate": "viewer"}
    for role in ROLES[1:]:
        cast[role] = person(role.replace(" ", "_"), groups.get(role, role))
    return cast


def request_in_state(state: str, cast: dict[str, User]) -> ApprovalRequest:
    """Return a request with both requesters, brought into this state by the decider."""
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
    """Return the data sent with an action."""
    if action in ANSWERS:
        return {"verdict": action, "seen_digest": request.digest, **ANSWERS[action]}
    until = (clock.now() + timedelta(minutes=5)).isoformat()
    return {"snooze": {"until": until}, "delegate": {"to": "spare"}, "comments": {"text": "Look."}}.get(action, {})


def path_of(action: str, request: ApprovalRequest) -> str:
    """Return the path of an action below `approvals/`."""
    return f"approvals/{request.public_id}/{'reviews' if action in ANSWERS else action}/"


def traces(request: ApprovalRequest) -> tuple[Any, ...]:
    """Return all rows that an action may change."""
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


def row_and_column(action: str, may: May, role: str, state: str) -> bool:
    """Return True if this case is tested; `make nightly` tests all.

    The four verdicts share an endpoint, so every role tests one of them, and each is tested by one role that may and
    one that may not.
    """
    if counts.FULL or role in may.tried_by:
        return True
    return state == may.tried_in and (action == "approve" or action not in ANSWERS)


def cases_of(
    actions: Actions, cast: dict[str, User], states: tuple[str, ...] = STATES, chosen: Chosen = row_and_column
) -> Iterator[Case]:
    """Yield the selected cases, each in a transaction that is rolled back afterwards."""
    for state in states:
        with rolled_back():
            request = request_in_state(state, cast)
            before = traces(request)
            for action, may in actions.items():
                for role in ROLES:
                    if chosen(action, may, role, state):
                        with rolled_back():
                            yield Case(action, role, state, request, before)


def fault_of(case: Case, status: int, actions: Actions) -> str | None:
    """Return the deviation in the response or the changed rows of a case; None if there is none."""
    may = actions.get(case.action)
    allowed = may is not None and case.role in may.roles and case.state in may.states
    left_traces = traces(case.request) != case.before
    if (status < 400, left_traces) == (allowed, allowed) and status < 500:
        return None
    return f"{case.role} {case.action} {case.state}: {status}, {left_traces=}, {allowed=}"


def posted(client: Rest, case: Case) -> int:
    """Perform the action over REST and return the status, for a batch that of its only item."""
    if case.action != "batch":
        return int(client.post(path_of(case.action, case.request), body_of(case.action, case.request)).status_code)
    item = {"id": case.request.public_id, "seen_digest": case.request.digest}
    answer = client.post("approvals/batch/", {"verdict": "reject", "comment": "No.", "items": [item]})
    return 409 if "detail" in answer.json().get("results", [{}])[0] else int(answer.status_code)


def sent(pages: Pages, case: Case) -> int:
    """Submit the page's form and return the status, for a batch the one shown in its table."""
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


def test_authorization_over_rest(cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    clients = {role: Rest(cast[role]) for role in ROLES}
    faults = [fault_of(case, posted(clients[case.role], case), REST) for case in cases_of(REST, cast)]
    assert [fault for fault in faults if fault] == []


def test_agent_token_decides_nothing(cast):
    clients = {role: agent(cast[role], "calls:create", "plans:read", "approvals:read") for role in ROLES}

    def is_open_to_the_person(action: str, may: May, role: str, state: str) -> bool:
        return counts.FULL or role in may.tried_by or (role in may.roles and state == may.tried_in)

    cases = cases_of(REST, cast, (PENDING, APPROVED), is_open_to_the_person)
    faults = [fault_of(case, posted(clients[case.role], case), {}) for case in cases]
    assert [fault for fault in faults if fault] == []


def test_authorization_on_pages(cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    pages = {role: Pages(cast[role]) for role in ROLES}
    for each in pages.values():
        each.open("/approvals/")
        assert each._token(), "a form without one would be refused whoever sends it"

    def chosen(action: str, may: May, role: str, state: str) -> bool:
        """Skip equivalent refusals; `test_authorization_over_rest` tests each role."""
        worth_it = role in may.roles | may.tried_by | {"nobody"}
        return counts.FULL or (worth_it and row_and_column(action, may, role, state))

    cases = cases_of(PAGES, cast, (PENDING, APPROVED, UNDOABLE), chosen)
    with without_rendering():
        faults = [fault_of(case, sent(pages[case.role], case), PAGES) for case in cases]
    assert [fault for fault in faults if fault] == []


def test_every_action_is_covered():
    for action, may in REST.items():
        tried = {(role, state) for role in ROLES for state in STATES if row_and_column(action, may, role, state)}
        roles, states = {role for role, _ in tried}, {state for _, state in tried}
        assert states == set(STATES) and roles - may.roles, action
        assert not may.roles or any(role in may.roles and state in may.states for role, state in tried), action
        assert action in ANSWERS or roles == set(ROLES), action


NEVER = May(set(), set())


def test_authorization_of_revealing(cast):
    clients = {role: Rest(cast[role]) for role in ROLES}
    wrong = {}
    for case in cases_of({"reveal": NEVER}, cast, (PENDING, APPROVED), lambda *case: True):
        path = f"approvals/{case.request.public_id}/reveal/"
        status = clients[case.role].post(path, {"path": "password"}).status_code
        if status not in ({422} if case.role in DECIDERS else {403, 404}):
            wrong[case.role, case.state] = status
    assert wrong == {}


def test_authorization_of_grants(cast, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    clients = {role: Rest(cast[role]) for role in ROLES}

    def chosen(action: str, may: May, role: str, state: str) -> bool:
        return counts.FULL or state == APPROVED or role in {"decider", "administrator", "reviewer"}

    wrong = {}
    for case in cases_of({"grant": NEVER}, cast, STATES, chosen):
        Tool.objects.update(grantable={"max_hours": 8, "max_uses": 20})
        terms = {"tool": "write_note", "arguments": [], "scope": "requester", "scope_ref": "asker"}
        answer = clients[case.role].post("grants/", terms | {"created_from": case.request.public_id})
        may_make = case.role == "administrator" or (case.role == "decider" and case.state in (APPROVED, UNDOABLE))
        made = (answer.status_code == 201, Grant.objects.count())
        existing = create_grant(
            GrantTerms(rows=[], tool="write_note", scope="requester", scope_ref="asker"), by=cast["administrator"]
        )
        answer = clients[case.role].delete(f"grants/{existing.public_id}/")
        may_end = case.role in {"reviewer", "decider", "asking reviewer", "administrator"}
        ended = (answer.status_code == 200, Grant.objects.get(pk=existing.pk).revoked_at is not None)
        if (made, ended) != ((may_make, int(may_make)), (may_end, may_end)):
            wrong[case.role, case.state] = (made, ended)
    assert wrong == {}


def test_authorization_of_edits_and_slices(cast, stage):
    plan = work_off(make_plan(cast["asker"], act(1, "x", "dangerous"), act(2, "y", "dangerous", dependencies=[1])))
    (early,) = slices.prepare_slice(plan, 1, by=cast["reviewer"]).requests
    now = request_of(plan)
    for request in (now, early):
        CallRequester.objects.get_or_create(call=request.call, user=cast["asking reviewer"])
        Delegation.objects.create(request=request, by=cast["reviewer"], to=cast["delegate"], at=clock.now())
    edit = {"verdict": "approve", "seen_digest": now.digest, "arguments": {"value": "z"}}
    item = {"id": early.public_id, "seen_digest": early.digest}
    wrong = {}
    for role in ROLES:
        client = Rest(cast[role])
        with rolled_back():
            edited = client.post(f"approvals/{now.public_id}/reviews/", edit).status_code
            client.post("approvals/slice/", {"plan": plan.public_id, "items": [item]})
            statuses = [ApprovalRequest.objects.get(pk=each.pk).status for each in (now, early)]
            seen = (edited, now.rounds.count(), statuses)
        refused = 404 if role == "nobody" else 403
        if seen != ((201, 2, [APPROVED] * 2) if role in DECIDERS else (refused, 1, [PENDING] * 2)):
            wrong[role] = seen
    assert wrong == {}
