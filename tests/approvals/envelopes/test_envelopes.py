"""Envelopes: proposal, opening, covered calls, counting, and the events that end one."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import F
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from approvals import recovery
from approvals.envelopes import coverage, services
from approvals.envelopes.reading import items_of
from approvals.envelopes.services import end_envelope
from approvals.envelopes.tool import schemas_at
from approvals.errors import GrantRefused
from approvals.grants.services import GrantTerms, create_grant, may_create_from
from approvals.messaging.addresses import read_address
from approvals.models import (
    ApprovalRequest,
    AuditEntry,
    Delivery,
    Envelope,
    EnvelopeItem,
    EnvelopeUse,
    Policy,
    PolicyRevision,
    Stop,
    TrialResult,
)
from approvals.policies import eligibility
from approvals.policies.backtest import back_test, rulebooks_for
from approvals.policies.gate import invalidate_rules
from approvals.policies.rulebook import rule_from_revision
from approvals.policies.simulator import simulate
from approvals.requests.deadlines import expire_due
from approvals.reviews.decisions import undo_decision
from approvals.states import ReviewVerdict
from approvals.stops.services import Scope, lift_stop, scope_of_token, set_stop
from approvals.stops.standing import standing_stops
from catalog.access.roles import NotAllowed
from catalog.access.tokens import create_token, revoke_token
from catalog.core import clock
from catalog.definitions.levels import Reversibility
from catalog.errors import Conflict, OutsideLimits, ParameterError, PolicyRefusal
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.models import ApiToken, Call, Tool
from plans.actions.call import CallOrder, create_call
from plans.engine import loop
from plans.engine import recovery as recovery_of_steps
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.approvals.factories import (
    ANY,
    add_policy,
    answer,
    call_within,
    item,
    open_envelope,
    propose,
    refusal_at,
    set_rule,
)
from tests.builders import act, approve, call_of, make_plan, reject, request_of, work_off
from tests.conftest import person
from tests.invariants import assert_invariants
from tests.pages import Pages
from tests.plans.factories import act_raising, claimed_and_lost
from tests.rest import Rest

LATER = "2999-01-01T00:00:00Z"
PENNIES = {"path": "value", "at_most": 0.3}


@pytest.fixture
def agent(stage: Any, ada: User, settings: Any, monkeypatch: Any) -> Requester:
    """An agent of Ada, on a stage without caches of policies and tools."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    monkeypatch.setattr(snapshot, "SNAPSHOT_SECONDS", 0.0)
    return agent_of(ada)


def agent_of(owner: User) -> Requester:
    return Requester(owner, create_token(user=owner, kind="agent", scopes=["calls:create"])[0], "mcp")


def plan_of(envelope: Envelope) -> Plan:
    return Plan.objects.get(public_id=envelope.call.plan_ref)


def test_calls_inside_an_approved_envelope_run_until_it_is_used_up(agent, rosa, stage):
    envelope = propose(agent)
    assert (envelope.status, envelope.call.approval.status, envelope.call.status) == ("proposed", "pending", "held")
    assert call_within(agent).status == "held"
    envelope = open_envelope(agent, rosa)
    assert envelope.status == "open"
    first, second, third = (call_within(agent, value) for value in "abc")
    assert [first.status, second.status, third.status] == ["completed", "completed", "held"]
    assert stage.values("dangerous") == ["a", "b"]
    assert third.envelope_mismatch.mismatch == "count"
    envelope.refresh_from_db()
    used = EnvelopeItem.objects.get(envelope=envelope)
    assert (envelope.status, used.used, EnvelopeUse.objects.count()) == ("used", 2, 2)
    entry = AuditEntry.objects.filter(action="envelope.used").latest("seq")
    assert entry.object_ref == second.public_id
    assert entry.details_json == {"envelope": envelope.public_id, "item": 0, "approved_by": ["Rosa"]}
    assert_invariants()


PROPOSAL: dict[str, Any] = {"purpose": "Tidy up", "items": [item()], "minutes": 60}


def test_pages_say_of_a_proposal_what_the_gate_says(agent, ada, admin):
    """Its items decide, wherever the rules are asked what they would do or have done."""
    held = simulate("propose_envelope", PROPOSAL, "ada")
    assert (held.effect, held.decided and held.decided.revision.safety_level) == ("hold", "dangerous")
    revision = add_policy(1, tool="dangerous", effect="deny", message="Not these.", mode="trial")
    other = add_policy(2, tool="unheard_of", effect="deny", mode="trial")
    invalidate_rules()
    assert [each.rule.revision_id for each in simulate("propose_envelope", PROPOSAL, "ada").trials] == [revision.pk]
    propose(agent)
    assert list(TrialResult.objects.values_list("revision", "would", "was")) == [(revision.pk, "deny", "hold")]
    replayed = back_test(rulebooks_for(revision), days=1)
    assert (dict(replayed.counts), [each.before for each in replayed.changed]) == ({"deny": 1}, ["hold"])
    assert dict(back_test(rulebooks_for(other), days=1).counts) == {"hold": 1}
    page = Pages(admin).open("/tools/propose_envelope/")
    assert "Every call needs approval." in page
    assert "Runs without approval." not in page


def test_simulated_proposal_under_several_policies_asks_all_their_people(agent, admin):
    Group.objects.create(name="finance")
    add_policy(1, tool="cautious", effect="hold", stages=[{"group": "finance", "count": 1}])
    proposal = {**PROPOSAL, "items": [item(), item("cautious")]}
    body = {"tool": "propose_envelope", "arguments": proposal, "requester": "ada"}
    found = Rest(admin).post("policies/simulate/", body).json()
    assert (found["effect"], found["policy"]) == ("hold", None)
    assert {each["group"] for each in found["stages"]} == {"reviewer", "finance"}
    assert "Policy 1" in found["sentence"]
    proposal["items"].append(item("safe"))
    assert Rest(admin).post("policies/simulate/", body).json()["effect"] == "deny"


def test_step_of_a_plan_proposes_for_its_plan(agent, ada, rosa, stage):
    arguments = {"purpose": "Tidy up", "items": [item()], "minutes": 60}
    steps = [act(1, tool="propose_envelope", parameters=arguments), act(2, "x", "dangerous", dependencies=[1])]
    plan = work_off(make_plan(ada, *steps))
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    envelope = Envelope.objects.get()
    assert (envelope.scope, envelope.scope_ref) == ("plan", plan.public_id)
    assert call_of(plan, 2).envelope_use.item.envelope == envelope
    assert call_within(Requester(ada)).status == "held"  # not of the plan


def row(path: str, operator: str, value: object = None) -> dict[str, Any]:
    return {"path": path, "operator": operator} | ({} if value is None else {"value": value})


@pytest.mark.parametrize(
    ("terms", "values", "mismatch"),
    [
        (item("dangerous_hasty"), ["a"], "tool"),
        (item(rows=[row("value", "in", ["a"])]), ["b"], "argument:value"),
        (item(rows=[row("value.to", "exists")]), [{"to": 1, "cc": 2}], "argument:value.cc"),
        (item(rows=[row("value", "starts_with", "a/")]), ["a/../b"], "argument:value"),
        (item(count=1), ["a", "b"], "count"),
        (item(rows=[], count=9, sum=PENNIES), [0.1, 0.1, 0.1, 1e-18], "sum"),
        (item(rows=[], sum=PENNIES), [-1], "sum"),
        (item(rows=[], sum=PENNIES), ["0.1"], "sum"),
        (item(rows=[], sum=PENNIES), [True], "sum"),
        (item(rows=[], sum=PENNIES), [1e-19], "sum"),
        (item(rows=[], sum=PENNIES), [0.31], "sum"),
    ],
)
def test_first_call_outside_waits_beside_the_promise_it_broke(terms, values, mismatch, agent, rosa):
    envelope = open_envelope(agent, rosa, terms)
    *inside, outside = [call_within(agent, value) for value in values]
    assert all(call.status == "completed" for call in inside)
    assert (outside.status, outside.envelope_mismatch.mismatch) == ("held", mismatch)
    assert outside.envelope_mismatch.envelope == envelope


def test_overlapping_items_are_used_in_their_order(agent, rosa):
    envelope = open_envelope(agent, rosa, item(count=1), item(count=2))
    assert [call_within(agent).status for _ in range(4)] == ["completed", "completed", "completed", "held"]
    assert list(envelope.items.values_list("used", flat=True)) == [1, 2]


def test_calls_of_others_are_not_covered(agent, ada, ben, rosa):
    open_envelope(agent, rosa, item(count=9))
    assert not hasattr(propose(agent).call, "envelope_mismatch")  # to propose another breaks no promise
    for other in (agent_of(ada), agent_of(ben), Requester(ada)):
        held = call_within(other)
        assert (held.status, hasattr(held, "envelope_mismatch")) == ("held", False)
    assert not EnvelopeUse.objects.exists()


def test_session_of_a_person_is_covered_for_that_person_alone(agent, ada, ben, rosa):
    mine = Requester(ada, None, "rest", "errand")
    open_envelope(mine, rosa, item(count=9), **{"for": {"session": "errand"}})
    assert call_within(mine).status == "completed"
    for other in (Requester(ben, None, "rest", "errand"), Requester(ada, None, "rest", "other")):
        assert call_within(other).status == "held"


@pytest.mark.parametrize(("kind", "status"), [("agent", "held"), ("personal", "completed")])
def test_agent_that_names_the_session_of_its_person_is_not_covered(kind, status, agent, ada, rosa):
    open_envelope(Requester(ada, None, "rest", "errand"), rosa, item(count=9), **{"for": {"session": "errand"}})
    token = create_token(user=ada, kind=kind, scopes=["calls:create"])[0]
    assert call_within(Requester(ada, token, "rest", "errand")).status == status


def test_replacing_call_is_not_covered(agent, rosa):
    held = call_within(agent)
    reject(Plan.objects.get(public_id=held.plan_ref), rosa)
    open_envelope(agent, rosa)
    assert call_within(agent, replaces=held.public_id).status == "held"


@pytest.mark.parametrize(
    ("terms", "status"),
    [
        ({"envelope": "never"}, "held"),
        ({"typed_target": True}, "held"),
        ({"min_review_seconds": 5}, "held"),
        ({"fresh_sign_in_seconds": 600}, "held"),
        ({"fresh_passkey": True}, "held"),
        ({"fresh_passkey": True, "envelope": "allow"}, "held"),  # its approval has no signature
        ({"typed_target": True, "envelope": "allow"}, "completed"),
        ({"seen": {"category": "web", "within": 60}, "recent": None}, "held"),
        ({"stages": [{"group": "reviewer", "count": 2}]}, "held"),
        ({"stages": [{"group": "administrator", "count": 1}]}, "held"),
        ({"min_role_age_seconds": 86_400}, "held"),
    ],
)
def test_each_use_meets_the_rule_in_force(terms, status, agent, rosa):
    open_envelope(agent, rosa)
    if "seen" in terms:
        call_within(agent, tool="safe")
        terms = {"seen": {"tool": "safe", "within": 60}}
        shared = {"stages": [{"group": "reviewer", "count": 1}], "safety_level": "dangerous"}
        add_policy(0, effect="hold", **shared, **terms)
    else:
        set_rule(**terms)
    call = call_within(agent)
    assert call.status == status
    assert status == "completed" or call.envelope_mismatch.mismatch == "rule"


def test_irreversible_tools_are_left_out_unless_the_policy_says_so(agent, rosa):
    Tool.objects.get(name="dangerous").versions.update(reversibility="irreversible")
    target = snapshot.callable_tool("dangerous")
    assert target is not None
    target.tool.reversibility = Reversibility.IRREVERSIBLE
    try:
        with pytest.raises(PolicyRefusal, match="cannot be undone"):
            propose(agent)
        set_rule(envelope="allow")
        open_envelope(agent, rosa)
        assert call_within(agent).status == "completed"
    finally:
        target.tool.reversibility = Reversibility.RESTORABLE


def test_approver_who_may_no_longer_decide_counts_no_more(agent, rosa):
    open_envelope(agent, rosa)
    assert call_within(agent).status == "completed"
    rosa.groups.clear()
    assert call_within(agent).envelope_mismatch.mismatch == "rule"


def test_proposal_notifies_the_addresses_of_all_its_policies(agent, rosa, tomas):
    kept = [read_address(text).kept() | {"shown": text} for text in ("a@example.org", "b@example.org", "b@example.org")]
    set_rule(notify=kept[:2])
    add_policy(0, tool="dangerous_hasty", effect="hold", stages=[{"group": "reviewer", "count": 2}], notify=kept[2:])
    for _ in range(2):
        envelope = propose(agent, item(), item("dangerous_hasty"))
        revision = envelope.call.approval.policy_revision
        assert sorted(each["shown"] for each in revision.notify) == ["a@example.org", "b@example.org"]
        told = Delivery.objects.filter(request=envelope.call.approval, person=None)
        assert told.count() == 2
    assert PolicyRevision.objects.filter(policy__public_id="pol_combined").count() == 1


def test_rule_is_named_if_any_item_has_room(agent, rosa):
    open_envelope(agent, rosa, item(count=1), item(count=5))
    assert call_within(agent).status == "completed"
    rosa.groups.clear()
    assert call_within(agent).envelope_mismatch.mismatch == "rule"


def test_older_envelope_with_the_tool_is_compared_first(agent, rosa, monkeypatch):
    monkeypatch.setattr(coverage, "MOST_COMPARED", 1)
    older = open_envelope(agent, rosa, item(rows=[row("value", "equals", "a")]))
    open_envelope(agent, rosa, item("dangerous_hasty"))
    mismatch = call_within(agent, "b").envelope_mismatch
    assert (mismatch.envelope, mismatch.mismatch) == (older, "argument:value")


def test_envelopes_of_other_tools_cost_held_calls_no_queries(agent, rosa):
    others = [item("dangerous_hasty")]
    counted = []
    for number in (1, 4):
        for _ in range(number):
            open_envelope(agent, rosa, *others)
        with CaptureQueriesContext(connection) as queries:
            assert call_within(agent).status == "held"
        counted.append(len(queries))
    assert counted[0] == counted[1]


def test_proposal_needs_all_that_the_rules_of_its_items_ask(agent, rosa, admin, tomas):
    add_policy(0, tool="dangerous_hasty", effect="hold", stages=[{"group": "administrator", "count": 1}])
    envelope = propose(agent, item(), item("dangerous_hasty"))
    request = envelope.call.approval
    assert request.policy_revision.stages == [
        {"group": "reviewer", "count": 1},
        {"group": "administrator", "count": 1},
    ]
    assert propose(agent, item(), item("dangerous_hasty")).call.approval.policy_revision == request.policy_revision
    approve(plan_of(envelope), rosa)
    approve(plan_of(envelope), admin)
    work_off(plan_of(envelope))
    assert call_within(agent).status == call_within(agent, tool="dangerous_hasty").status == "completed"
    assert_invariants()


ESCALATES = {"on_expiry": "escalate", "escalate_to": "backup"}


def escalated(*people: User) -> ApprovalRequest:
    """Let the open request expire, and the people of the group to which it is escalated approve it."""
    later = clock.now() + timedelta(days=2)
    Envelope.objects.update(expires_at=later)
    assert expire_due(clock.now() + timedelta(days=1, minutes=1)) == 0
    request = ApprovalRequest.objects.get(status="pending")
    assert request.escalated_to == "backup"
    for each in people:
        approve(Plan.objects.get(public_id=request.plan_ref), each)
    return request


def test_group_to_which_combined_rules_escalate_counts_at_the_start_and_for_calls(agent, rosa):
    person("fay", "finance")
    set_rule(**ESCALATES)
    two = {"effect": "hold", "stages": [{"group": "finance", "count": 1}], **ESCALATES}
    policy = add_policy(0, tool="dangerous_hasty", **two).policy
    envelope = propose(agent, item(), item("dangerous_hasty"))
    escalated(person("bo", "backup"), person("bea", "backup"))
    work_off(plan_of(envelope))
    envelope.refresh_from_db()
    assert (envelope.status, envelope.call.status) == ("open", "completed")
    assert call_within(agent).status == call_within(agent, tool="dangerous_hasty").status == "completed"
    stricter = PolicyRevision.objects.create(policy=policy, number=2, tool="dangerous_hasty", fresh_passkey=True, **two)
    Policy.objects.filter(pk=policy.pk).update(revision=stricter)
    assert call_within(agent, tool="dangerous_hasty").envelope_mismatch.mismatch == "rule"
    set_rule(escalate_to="administrator")
    assert call_within(agent).envelope_mismatch.mismatch == "rule"


@pytest.mark.parametrize(
    ("terms", "status"),
    [
        ({}, "completed"),
        ({"min_review_seconds": 5}, "completed"),
        ({"stages": [{"group": "finance", "count": 1}]}, "held"),
        ({"escalate_to": "administrator"}, "held"),
    ],
)
def test_escalated_request_starts_if_a_new_revision_asks_no_more(terms, status, agent, stage):
    before = {"tool": "dangerous", "effect": "hold", "stages": [{"group": "reviewer", "count": 1}], **ESCALATES}
    policy = add_policy(0, **before, min_review_seconds=5).policy
    call = call_within(agent)
    escalated(person("bo", "backup"))
    new = PolicyRevision.objects.create(policy=policy, number=2, **before | {"min_review_seconds": 0} | terms)
    Policy.objects.filter(pk=policy.pk).update(revision=new)
    work_off(Plan.objects.get(public_id=call.plan_ref))
    assert Call.objects.filter(tool_name="dangerous").latest("pk").status == status


@pytest.mark.parametrize("when", ["edit", "start", "replacement"])
def test_stored_proposal_may_have_items_that_run_without_approval_by_now(when, agent, rosa, tomas):
    policy = add_policy(0, tool="cautious", effect="hold", stages=[{"group": "reviewer", "count": 1}]).policy
    envelope = propose(agent, item(), item("cautious"))
    plan = plan_of(envelope)
    if when != "edit":
        approve(plan, rosa)
    Policy.objects.filter(pk=policy.pk).update(enabled=False)
    if when == "edit":
        edited = {"purpose": "Tidy up", "items": [item(count=1), item("cautious")], "minutes": 60}
        answer(plan, rosa, ReviewVerdict.APPROVE, arguments=edited)
    if when == "replacement":
        rosa.groups.clear()
        work_off(plan)
        approve(plan, tomas)
    work_off(plan)
    assert Envelope.objects.latest("pk").status == "open"
    assert call_within(agent).status == call_within(agent, tool="cautious").status == "completed"
    assert EnvelopeUse.objects.count() == 1  # the cautious call needs none
    with pytest.raises(PolicyRefusal, match="run without approval"):
        propose(agent, item(), item("cautious"))
    assert_invariants()


def test_stored_proposal_that_no_rule_holds_any_more_is_refused(agent, rosa):
    policy = add_policy(0, tool="cautious", effect="hold", stages=[{"group": "reviewer", "count": 1}]).policy
    envelope = propose(agent, item("cautious"))
    approve(plan_of(envelope), rosa)
    Policy.objects.filter(pk=policy.pk).update(enabled=False)
    work_off(plan_of(envelope))
    envelope.refresh_from_db()
    assert (envelope.status, "run without approval" in envelope.ended_because) == ("refused", True)
    assert_invariants()


def test_items_ask_only_rules_that_their_calls_can_meet(agent, rosa):
    rows = [{"path": "value", "operator": "greater_than", "value": 1000}]
    add_policy(0, tool="dangerous", conditions=rows, effect="hold", stages=[{"group": "reviewer", "count": 2}])
    small = item(rows=[{"path": "value", "operator": "less_than", "value": 1000}])
    assert propose(agent, small).call.approval.policy_revision.quorum == 1


def test_edit_narrows_and_asks_for_new_votes(agent, rosa, tomas):
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    envelope = propose(agent, item(count=5))
    approve(plan_of(envelope), tomas)
    wider = {"purpose": "Tidy up", "items": [item(count=6)], "minutes": 60}
    with refusal_at("items.0.count", "widened"):
        answer(plan_of(envelope), rosa, ReviewVerdict.APPROVE, arguments=wider)
    narrower = wider | {"items": [item(count=1)], "minutes": 30}
    request = answer(plan_of(envelope), rosa, ReviewVerdict.APPROVE, arguments=narrower)
    assert (request.status, request.round_number) == ("pending", 2)
    envelope.refresh_from_db()
    assert envelope.expires_at == envelope.proposed_at + timedelta(minutes=30)
    assert_invariants()


@pytest.mark.parametrize(("field", "end"), [("minutes", 5), ("expires_at", "2026-05-01T18:00:00Z")])
def test_edit_does_not_put_the_end_into_the_past(field, end, agent, rosa):
    envelope = propose(agent)
    Call.objects.filter(pk=envelope.call_id).update(created_at=clock.now() - timedelta(minutes=10))
    edited = {"purpose": "Tidy up", "items": [item()], field: end}
    with refusal_at(field, "past"):
        answer(plan_of(envelope), rosa, ReviewVerdict.APPROVE, arguments=edited)
    assert request_of(plan_of(envelope)).status == "pending"


def test_call_fails_if_its_envelope_is_over_before_it_opens(agent, rosa):
    envelope = propose(agent)
    approve(plan_of(envelope), rosa)
    Envelope.objects.update(expires_at=clock.now())
    work_off(plan_of(envelope))
    envelope.refresh_from_db()
    assert (envelope.status, envelope.call.status) == ("refused", "failed")
    assert_invariants()


@pytest.mark.parametrize("verdict", [ReviewVerdict.APPROVE, ReviewVerdict.REJECT])
def test_undone_decision_leaves_the_proposal_as_it_was(verdict, agent, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 600
    envelope = propose(agent, item(count=3))
    end, plan = envelope.expires_at, plan_of(envelope)
    narrower = {"purpose": "Tidy up", "items": [item(count=1)], "minutes": 30}
    edit: dict[str, Any] = {"arguments": narrower} if verdict == ReviewVerdict.APPROVE else {}
    answer(plan, rosa, verdict, channel="page", **edit)
    work_off(plan)
    assert call_within(agent).status == "held"  # nothing opens before the time to undo is over
    undo_decision(request_of(plan), by=rosa)
    work_off(plan)
    envelope.refresh_from_db()
    assert (envelope.status, envelope.expires_at, request_of(plan).status) == ("proposed", end, "pending")
    assert [each.terms.count for each in items_of(envelope)] == [3]
    settings.TOOLGATE_UNDO_SECONDS = 0
    approve(plan, rosa)
    work_off(plan)
    assert [call_within(agent).status for _ in range(4)] == ["completed", "completed", "completed", "held"]
    assert_invariants()


@pytest.mark.parametrize("by", ["agent", "ada", "rosa", "admin"])
def test_proposers_and_reviewers_end_an_envelope(by, agent, rosa, admin):
    envelope = open_envelope(agent, rosa)
    with pytest.raises(NotAllowed):
        end_envelope(envelope, reason="Mine now", by=person("ben", "operator"))
    with refusal_at("reason", "required"):
        end_envelope(envelope, reason=" ", by=rosa)
    user = User.objects.get(username="ada" if by == "agent" else by)
    if by == "agent":
        user.acting_token = agent.token  # type: ignore[attr-defined]
    end_envelope(envelope, reason="Enough", by=user)
    assert call_within(agent).status == "held"
    with pytest.raises(Conflict):
        end_envelope(envelope, reason="Enough", by=rosa)
    assert_invariants()


def test_rejected_call_ends_the_envelope_that_would_have_covered_it(agent, rosa, ada):
    held = call_within(agent)
    envelope = open_envelope(agent, rosa)
    reject(Plan.objects.get(public_id=held.plan_ref), rosa)
    envelope.refresh_from_db()
    assert (envelope.status, envelope.ended_because) == ("ended", "Rosa rejected a call that it would have covered.")


def end_by_stop(agent: Requester, admin: User) -> None:
    with TestCase.captureOnCommitCallbacks(execute=True):
        set_stop(Scope(Stop.Kind.TOOL, "dangerous", "dangerous"), "A bad day", by=admin)


def end_by_token(agent: Requester, admin: User) -> None:
    assert agent.token is not None
    revoke_token(agent.token, by=agent.user)
    services.end_due(clock.now())


def end_by_time(agent: Requester, admin: User) -> None:
    Envelope.objects.update(expires_at=clock.now())
    services.end_due(clock.now())


def end_by_epoch(agent: Requester, admin: User) -> None:
    recovery.begin_epoch("The disk failed.")


@pytest.mark.parametrize("end", [end_by_stop, end_by_token, end_by_time, end_by_epoch])
def test_envelope_ends_with_what_it_stands_on(end, agent, rosa, admin):
    envelope = open_envelope(agent, rosa)
    end(agent, admin)
    envelope.refresh_from_db()
    assert envelope.status == "ended"


def test_stop_is_set_although_an_envelope_cannot_be_ended(agent, rosa, admin, monkeypatch):
    envelope = open_envelope(agent, rosa)
    with monkeypatch.context() as broken, TestCase.captureOnCommitCallbacks(execute=True):
        broken.setattr(services, "close_envelope", act_raising(ValueError("a broken row")))
        stop = set_stop(Scope(Stop.Kind.EVERYTHING), "A bad day", by=admin)
    assert [each.public_id for each in standing_stops()] == [stop.public_id]
    lift_stop(stop, "Over", by=admin)
    assert call_within(agent).status == "held"
    envelope.refresh_from_db()
    assert envelope.status == "open"
    assert services.end_stopped() == {stop.pk}
    envelope.refresh_from_db()
    assert (envelope.status, envelope.ended_because) == ("ended", "A stop was set: A bad day")


def test_call_that_used_an_envelope_starts_no_more_after_a_stop(agent, rosa, admin, stage):
    """Even if the stop was lifted before anything ended the envelope."""
    open_envelope(agent, rosa)
    call = create_call(CallOrder("dangerous", {"value": "x"}), by=agent)
    plan = Plan.objects.get(public_id=call.plan_ref)
    work = loop.advance(claimed_and_lost(plan), TimeSlice("lost"))
    assert isinstance(work, RunningCall)
    recovery_of_steps.hand_back(work)
    lift_stop(set_stop(Scope(Stop.Kind.EVERYTHING), "A bad day", by=admin), "Over", by=admin)
    work_off(plan)
    assert call_of(plan).status == "held"
    assert stage.values("dangerous") == []


def test_ended_stops_are_looked_at_once(agent, rosa, admin, django_assert_num_queries):
    envelope = open_envelope(agent, rosa)
    stop = set_stop(Scope(Stop.Kind.TOOL, "safe", "safe"), "A bad day", by=admin)
    done = services.end_stopped()
    assert done == {stop.pk}
    with django_assert_num_queries(1):
        assert services.end_stopped(done) == done
    envelope.refresh_from_db()
    assert envelope.status == "open"


def for_session(person: User, rosa: User) -> Envelope:
    token = create_token(user=person, kind="personal", scopes=["calls:create"])[0]
    return open_envelope(Requester(person, token, "rest"), rosa, **{"for": {"session": "s"}})


def for_plan(person: User, rosa: User) -> Envelope:
    token = create_token(user=person, kind="personal", scopes=["calls:create"])[0]
    arguments = {"purpose": "Tidy up", "items": [item()], "minutes": 60}
    plan = make_plan(person, act(1, tool="propose_envelope", parameters=arguments), act(2, dependencies=[1]))
    Plan.objects.filter(pk=plan.pk).update(token=token)
    approve(work_off(plan), rosa)
    work_off(plan)
    return Envelope.objects.get()


def for_joined_session(person: User, rosa: User) -> Envelope:
    """An envelope for a session in which another token of the person makes calls."""
    envelope = open_envelope(Requester(person), rosa, **{"for": {"session": "s"}})
    token = create_token(user=person, kind="personal", scopes=["calls:create"])[0]
    create_call(CallOrder("safe", {}), by=Requester(person, token, "rest", "s"))
    return envelope


@pytest.mark.parametrize("opened", [for_session, for_plan, for_joined_session])
def test_stop_of_the_token_behind_it_ends_the_envelope(opened, agent, ada, rosa, admin):
    envelope = opened(ada, rosa)
    assert (envelope.status, envelope.token) == ("open", None)
    other = create_token(user=ada, kind="personal", scopes=["calls:create"])[0]
    set_stop(scope_of_token(other), "Another one", by=admin)
    services.end_stopped()
    envelope.refresh_from_db()
    assert envelope.status == "open"
    token = ApiToken.objects.exclude(pk__in=[other.pk, agent.token.pk]).get(kind="personal")
    set_stop(scope_of_token(token), "A bad day", by=admin)
    services.end_stopped()
    envelope.refresh_from_db()
    assert envelope.status == "ended"


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_stop_of_an_agent_of_its_plan_ends_the_envelope(name, agent, ada, rosa, admin):
    envelope = for_plan(ada, rosa)
    plan = plan_of(envelope)
    Step.objects.bulk_create(Step(plan=plan, step_id=8 + n, agent=each) for n, each in enumerate(["ann", "bob"]))
    set_stop(Scope(Stop.Kind.AGENT, "eve", "eve"), "Another one", by=admin)
    services.end_stopped()
    envelope.refresh_from_db()
    assert envelope.status == "open"
    set_stop(Scope(Stop.Kind.AGENT, name, name), "A bad day", by=admin)
    services.end_stopped()
    envelope.refresh_from_db()
    assert envelope.status == "ended"


def test_changed_tool_ends_the_envelope(agent, rosa, admin):
    envelope = open_envelope(agent, rosa)
    apply_overrides("dangerous", {"description_override": "Do worse."}, by=admin)
    assert call_within(agent).status == "held"
    envelope.refresh_from_db()
    assert (envelope.status, envelope.ended_because) == (
        "ended",
        "The definition or the code of dangerous has changed since the envelope was opened.",
    )


def test_call_past_the_end_is_shown_beside_the_expired_envelope(agent, rosa):
    open_envelope(agent, rosa)
    Envelope.objects.update(expires_at=clock.now())
    assert call_within(agent).envelope_mismatch.mismatch == "expired"


def test_call_outside_is_shown_beside_the_envelope_that_is_open(agent, rosa):
    """One that was ended says so for another day, unless an open one is there or it had no calls of the tool."""
    earlier = open_envelope(agent, rosa, item(rows=[row("value", "in", ["a"])]))
    ended = open_envelope(agent, rosa, item(count=9))
    end_envelope(ended, reason="Enough", by=rosa)
    for envelope, mismatch in ((earlier, "argument:value"), (ended, "ended")):
        outside = call_within(agent, mismatch).envelope_mismatch
        assert (outside.envelope, outside.mismatch) == (envelope, mismatch)
        Envelope.objects.filter(pk=earlier.pk).update(status="ended", ended_at=clock.now() - timedelta(days=2))
    assert not hasattr(call_within(agent, tool="dangerous_hasty"), "envelope_mismatch")
    Envelope.objects.filter(pk=ended.pk).update(ended_at=clock.now() - timedelta(days=1, seconds=1))
    assert not hasattr(call_within(agent, "later"), "envelope_mismatch")


@pytest.mark.parametrize("change", [{"enabled": False}, {"held_version": F("current_version")}])
def test_tool_that_nobody_can_call_now_is_not_covered(change, agent, rosa):
    """An envelope would let its calls start once it is switched on or its change is accepted."""
    Tool.objects.filter(name="dangerous").update(**change)
    snapshot.drop_snapshot()
    with pytest.raises(PolicyRefusal, match="switched off"):
        propose(agent)


def test_proposal_whose_time_is_over_is_withdrawn(agent, rosa):
    envelope = propose(agent)
    Envelope.objects.update(expires_at=clock.now())
    services.end_due(clock.now())
    envelope.refresh_from_db()
    request = ApprovalRequest.objects.get()
    assert (envelope.status, request.status) == ("refused", "withdrawn")
    assert_invariants()


def test_proposal_whose_token_ended_says_so(agent, rosa):
    envelope = propose(agent)
    assert agent.token is not None
    revoke_token(agent.token, by=agent.user)
    services.end_due(clock.now())
    envelope.refresh_from_db()
    assert (envelope.status, envelope.ended_because) == ("refused", "Withdrawn by Toolgate: Its token has ended.")
    assert ApprovalRequest.objects.get().status == "withdrawn"


@pytest.mark.parametrize("verdict", ["reject", "request_changes"])
def test_proposal_that_is_not_approved_is_refused(verdict, agent, rosa):
    envelope = propose(agent)
    answer(plan_of(envelope), rosa, verdict, comment="Too much.")
    envelope.refresh_from_db()
    assert (envelope.status, "Too much." in envelope.ended_because) == ("refused", True)


def test_covered_call_waits_if_its_envelope_ends_before_the_start(agent, ada, rosa):
    envelope = open_envelope(agent, rosa)
    call = create_call(CallOrder("dangerous", {"value": "x"}), by=agent)
    assert call.status == "created"
    end_envelope(envelope, reason="Enough", by=ada)
    work_off(Plan.objects.get(public_id=call.plan_ref))
    call.refresh_from_db()
    assert (call.status, EnvelopeUse.objects.count()) == ("held", 0)


@pytest.mark.parametrize(
    ("terms", "more", "path", "code"),
    [
        (item(), {"items": []}, "items", "minItems"),
        (item(), {"items": [item()] * 501}, "items", "maxItems"),
        (item(), {"items": [item(rows=ANY * 20)] * 101}, "items", "too_many"),
        (item(count=0), {}, "items.0.count", "minimum"),
        (item(count=10_001), {}, "items.0.count", "maximum"),
        (item("nothing"), {}, "items.0.tool", "unknown"),
        (item(rows=[row("other", "exists")]), {}, "items.0.arguments.0.path", "unknown"),
        (item(rows=[row("value", "in", [{"a": "x\0"}])]), {}, "items.0.arguments.0.value", "invalid"),
        (item(rows=[row("value.\0", "exists")]), {}, "items.0.arguments.0.path", "invalid"),
        (item(rows=[row("command", "starts_with", "git ")]), {}, "items.0.arguments.0.operator", "inexact"),
        (item(sum={"path": "other", "at_most": 5}), {}, "items.0.sum.path", "unknown"),
        (item("write_file", rows=[], sum={"path": "path", "at_most": 5}), {}, "items.0.sum.path", "no_number"),
        (item(sum={"path": "value", "at_most": 0}), {}, "items.0.sum.at_most", "invalid"),
        (item(), {"minutes": 1441}, "minutes", "maximum"),
        (item(), {"expires_at": "2026-01-01T00:00:00Z"}, "minutes", "required"),
        (item(), {"purpose": "  "}, "purpose", "required"),
        (item(), {"purpose": "Tidy\0"}, "purpose", "invalid"),
        (item(), {"for": {"session": "errand\0"}}, "for.session", "invalid"),
        (item(), {"for": {"plan": "plan\0"}}, "for.plan", "invalid"),
        (item(), {"for": {"token": 10**6}}, "for", "not_yours"),
        (item(), {"for": {"plan": "a", "session": "b"}}, "for", "invalid"),
    ],
)
def test_bad_proposals_name_field_and_remedy(terms, more, path, code, agent):
    with refusal_at(path, code):
        propose(agent, terms, **more)
    assert not ApprovalRequest.objects.exists()


def test_proposal_for_someone_elses_calls_is_refused(agent, ada, ben, rosa):
    token = agent_of(ben).token
    assert token is not None
    theirs = {"token": token.pk}, {"plan": make_plan(ben, act(1)).public_id}
    for scope, path in zip(theirs, ("for.token", "for.plan"), strict=True):
        with refusal_at(path, "not_yours"):
            propose(Requester(ada), **{"for": scope})
    with refusal_at("for", "required"):
        propose(Requester(ada))


@pytest.mark.parametrize("end", ["2026-01-01T00:00:00Z", "tomorrow", "2999-01-01T00:00:00Z"])
def test_end_is_within_a_day(end, agent, rosa):
    codes = {"2026-01-01T00:00:00Z": "past", "tomorrow": "invalid", "2999-01-01T00:00:00Z": "too_late"}
    with refusal_at("expires_at", codes[end]):
        arguments = {"purpose": "Tidy up", "items": [item()], "expires_at": end}
        create_call(CallOrder("propose_envelope", arguments), by=agent)


def test_proposer_who_is_the_only_reviewer_is_told(agent, rosa):
    with refusal_at("items", "no_reviewers"):
        propose(agent_of(rosa))


def test_large_group_hides_no_member_of_a_small_one(agent, ada, rosa, monkeypatch):
    monkeypatch.setattr(eligibility, "MAX_CANDIDATES", 2)
    for name in ("anna", "bert", "carl"):
        person(name, "reviewer")
    zoe = person("zoe", "finance")
    set_rule(stages=[{"group": "reviewer", "count": 1}, {"group": "finance", "count": 1}])
    assert propose(agent).status == "proposed"
    named = eligibility.people_named([rule_from_revision(set_rule())])
    assert zoe in named and len(named) == 3  # two reviewers
    zoe.is_active = False
    zoe.save()
    with refusal_at("items", "no_reviewers"):
        propose(agent)


def test_new_members_hide_no_older_ones(agent, rosa, monkeypatch):
    monkeypatch.setattr(eligibility, "MAX_CANDIDATES", 2)
    people = [person(name, "reviewer") for name in ("anna", "bert", "carl", "zoe")]
    User.objects.filter(pk=people[-1].pk).update(date_joined=clock.now() - timedelta(days=9))
    AuditEntry.objects.filter(object_ref=f"user_{people[-1].pk}").update(at=clock.now() - timedelta(days=9))
    set_rule(min_role_age_seconds=86_400)
    assert propose(agent).status == "proposed"
    set_rule(stages=[{"group": "reviewer", "count": 2}])
    with refusal_at("items", "no_reviewers"):
        propose(agent)


@pytest.mark.parametrize(("tool", "reason"), [("safe", "run without approval"), ("propose_envelope", "cannot cover")])
def test_items_that_would_let_nothing_start_are_refused(tool, reason, agent, rosa):
    rows = [] if tool == "propose_envelope" else ANY
    with pytest.raises(PolicyRefusal, match=reason):
        propose(agent, item(tool, rows=rows))


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        ({"categories": ["web"]}, "add the category approval to its limits"),
        ({"sources": ["tests"]}, "add the source "),
        ({"max_level": "safe"}, "raise its highest level to cautious"),
    ],
)
def test_token_that_does_not_reach_the_tool_is_told_the_remedy(limits, remedy, ada, stage):
    token = create_token(user=ada, kind="agent", scopes=["calls:create"], limits=limits)[0]
    with pytest.raises(OutsideLimits, match=remedy):
        propose(Requester(ada, token, "mcp"))


@pytest.mark.parametrize(
    "outside",
    [{"x" * 5000: 1}, {"a": {"b" * 300: {"c" * 300: 1}}}, {"\U0001f600" * 200: 1}, {".".join("d" * 200): 1}],
)
def test_long_names_of_arguments_do_not_keep_a_call_from_waiting(outside, agent, rosa):
    """The column of the broken promise is shorter than a path that a caller may choose."""
    open_envelope(agent, rosa, item(rows=[row("value.to", "exists")]))
    call = call_within(agent, {"to": 1} | outside)
    assert call.status == "held" and call.envelope_mismatch.mismatch.startswith("argument:value.")
    assert len(call.envelope_mismatch.mismatch) <= coverage.LONGEST_MISMATCH


def test_paths_in_recursive_unions_are_looked_up_in_no_time():
    """Both variants lead to the same schema: without care, each step of a path doubles the work."""
    variant = {"type": "object", "properties": {"a": {"$ref": "#/$defs/any"}}}
    schema = {"type": "object", "properties": variant["properties"], "$defs": {"any": {"anyOf": [variant, variant]}}}
    assert len(schemas_at(schema, ".".join("a" * 100))) <= 2
    assert schemas_at(schema | {"additionalProperties": False}, "b") == []


@pytest.mark.parametrize(
    ("tool", "bound", "is_refused"),
    [
        ("wipe", row("password", "equals", "hunter2"), True),
        ("wipe", row("password", "in", ["a", "hunter2"]), True),
        ("wipe", row("password", "exists"), False),
        ("account", row("account.keys.0", "starts_with", "sk-"), True),
        ("account", row("account", "equals", {"host": "a", "pin": "1234"}), True),
    ],
)
@pytest.mark.usefixtures("keepers")
def test_secrets_are_not_compared(tool, bound, is_refused, ada, rosa):
    """A reviewer would read them, and no call would ever fit."""
    set_rule(safety_level="", tool="*", envelope="allow")
    rows = [bound, *([row("host", "exists")] if tool == "wipe" else [])]
    if is_refused:
        with refusal_at("items.0.arguments.0", "secret"):
            propose(agent_of(ada), item(tool, rows=rows))
    else:
        assert propose(agent_of(ada), item(tool, rows=rows)).status == "proposed"


@pytest.mark.parametrize("count", [True, "2", 2.5, -1, 1e300, None, [1]])
def test_counts_are_whole_numbers(count, agent):
    with pytest.raises(ParameterError):
        propose(agent, item(count=count))


@pytest.mark.parametrize("most", [True, "5", -1, 0, -0.0, float("nan"), float("inf"), 1e16, 1e-19, None, [1], {}])
def test_sums_are_numbers_above_0(most, agent):
    with pytest.raises(ParameterError):
        propose(agent, item(rows=[], sum={"path": "value", "at_most": most}))


@pytest.mark.parametrize("token", [True, 1.5, "1", None, -1, 10**30])
def test_tokens_are_named_by_their_number(token, agent, ada):
    for by in (agent, Requester(ada)):
        with pytest.raises(ParameterError):
            propose(by, **{"for": {"token": token}})


def test_no_grant_lets_a_proposal_start(agent, ada, rosa, admin):
    """People decide on each proposal; a grant of the tool would open envelopes that nobody has seen."""
    envelope = open_envelope(agent, rosa)
    rows = [row(path, "exists") for path in ("purpose", "items", "minutes")]
    terms = GrantTerms(tool="propose_envelope", rows=rows, scope="requester", scope_ref="ada")
    with pytest.raises((GrantRefused, NotAllowed)):
        create_grant(terms, by=admin)
    assert may_create_from(envelope.call.approval, rosa) is not None
    assert propose(agent).status == "proposed"


WIDER: list[tuple[str, Any]] = [
    ("value in 1, 2", item(rows=[row("value", "in", [1, 2, True])])),
    ("a form of a number", item(rows=[row("value", "in", ["1", 2])])),
    ("another operator", item(rows=[row("value", "starts_with", "a")])),
    ("no condition", item(rows=[])),
    ("a missing argument", item(rows=[row("value", "missing")])),
    ("null", item(rows=[row("value", "in", [1, None])])),
    ("more calls", item(rows=[row("value", "in", [1])], count=3)),
    ("another tool", item("dangerous_hasty", rows=[row("value", "in", [1])])),
    ("a sum in place of a bound", item(rows=[], sum={"path": "value", "at_most": 2})),
    (
        "a part of the argument",
        item(rows=[row("value", "in", [1]), row("value.more", "exists"), row("other", "exists")]),
    ),
    ("not", item(rows=[row("value", "not_in", [3])])),
]


@pytest.mark.parametrize(("way", "wider"), WIDER, ids=[way for way, _ in WIDER])
def test_no_edit_widens(way, wider, agent, rosa):
    envelope = propose(agent, item(rows=[row("value", "in", [1, 2])]))
    edited = {"purpose": "Tidy up", "items": [wider], "minutes": 60}
    with pytest.raises(ParameterError):
        answer(plan_of(envelope), rosa, ReviewVerdict.APPROVE, arguments=edited)
    twice = edited | {"items": [item(rows=[row("value", "in", [1])]), item(rows=[row("value", "in", [2])])]}
    with pytest.raises(ParameterError):
        answer(plan_of(envelope), rosa, ReviewVerdict.APPROVE, arguments=twice)
    for more in ({"minutes": 61}, {"purpose": "All"}, {"for": {"token": agent.token.pk}}, {"expires_at": LATER}):
        with pytest.raises(ParameterError):
            answer(plan_of(envelope), rosa, ReviewVerdict.APPROVE, arguments=edited | {"items": [item(count=1)]} | more)
    assert request_of(plan_of(envelope)).round_number == 1


HUGE = ["value.99999999999", "value.00000000099999999999", "value.100", "value." + "a." * 20 + "a", "value..a", ".", ""]


@pytest.mark.parametrize("path", HUGE)
def test_paths_that_would_fill_the_memory_are_refused(path, agent):
    """The schema of a list index has an entry for each one before it."""
    for terms, place in (
        (item(rows=[row(path, "exists")]), "items.0.arguments.0.path"),
        (item(rows=ANY, sum={"path": path, "at_most": 5}), "items.0.sum.path"),
    ):
        with pytest.raises(ParameterError) as refused:
            propose(agent, terms)
        assert {each["path"] for each in refused.value.details["errors"]} == {place}
