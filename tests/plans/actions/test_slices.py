"""Tests of plan slices: approval requested before steps are ready."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests import deadlines
from approvals.requests.lifecycle import withdraw
from approvals.requests.queries import pending_for, waiting_count
from approvals.reviews.decisions import Decision, decide, revoke, undo_decision
from approvals.states import ReviewVerdict
from catalog.core import clock
from catalog.errors import Conflict, ToolError
from catalog.models import Call
from plans.actions import slices
from plans.actions.change import change_plan, read_plan_change
from plans.actions.control import cancel_plan
from plans.actions.create import start_plan
from plans.actions.skip import skip_step
from plans.actions.slices import ApprovalTerms, SliceItem
from plans.actions.upcoming import upcoming_steps
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.live.approval_changes import take_snapshot
from plans.models import MemoryItem, Plan
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.invariants import assert_invariants


@pytest.fixture
def plan(stage: Any, ada: User, rosa: User) -> Plan:
    """A plan that waits for people at its first step, with two more such steps after it."""
    steps = (act(1, "a", "dangerous"), act(2, "b", "dangerous", dependencies=[1]), act(3, "c", "dangerous"))
    return work_off(make_plan(ada, *steps[:2], steps[2] | {"dependencies": [2]}))


def prepared(plan: Plan, count: int = 20) -> list[ApprovalRequest]:
    """Request approval of the next steps as a reviewer, and return the stored requests."""
    rosa = User.objects.get(username="rosa")
    return [ApprovalRequest.objects.get(pk=each.pk) for each in slices.prepare_slice(plan, count, by=rosa).requests]


def say(
    request: ApprovalRequest, by: User, verdict: ReviewVerdict = ReviewVerdict.APPROVE, **more: Any
) -> ApprovalRequest:
    """Answer a request over REST, which takes effect at once."""
    return decide(request, by=by, decision=Decision(verdict, request.digest, comment="So.", **more))


def standing(plan: Plan, step_id: int) -> tuple[str, str, str]:
    """Return the states of a step, its call and its request."""
    step = step_of(plan, step_id)
    return step.status, step.call.status if step.call else "", request_of(plan, step_id).status


def take_one_step(plan: Plan) -> None:
    """Run the next ready step only."""
    work = loop.claim_work(plan.pk, owner="tests")
    while work is not None:
        work = loop.advance(work, TimeSlice("tests", steps_left=1))


def test_early_requests_are_opened_in_step_order(plan, ada):
    requests = prepared(plan, 1)
    more = prepared(plan, 2)
    assert [each.call.step_ref for each in more] == ["2", "3"]
    assert more[0] == requests[0]
    assert len({each.digest for each in more}) == 2
    assert [(each.rounds.get().preview_json or {})["summary"] for each in more] == ["Do b", "Do c"]
    assert [each.status for each in plan.steps.all()] == ["in_progress", "pending", "pending"]
    assert [each.call.requesters.get().user for each in more] == [ada, ada]
    assert_invariants()


def test_early_requests_are_in_no_list_or_count(plan, rosa):
    before, _ = take_snapshot()
    requests = prepared(plan)
    assert not pending_for(rosa).filter(pk__in=[each.pk for each in requests]).exists()
    assert waiting_count(rosa) == 1
    after, found = take_snapshot(before)
    assert (found.changes, found.waiting, len(after.seen)) == ([], 1, 1)
    entries = AuditEntry.objects.filter(object_ref=requests[0].public_id).values_list("action", flat=True)
    assert list(entries) == ["approval.prepared"]
    assert "2 approval.opened" not in events_of(plan)


def test_early_approved_steps_run_without_asking_again(plan, rosa, stage):
    items = [SliceItem(each.public_id, each.digest) for each in (request_of(plan), *prepared(plan))]
    results = slices.approve_slice(plan, items, ApprovalTerms(by=rosa))
    assert [(each.status, each.detail) for each in results] == [("approved", "")] * 3
    assert stage.values("dangerous") == []
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["a", "b", "c"]
    assert [request_of(plan, number).status for number in (1, 2, 3)] == ["consumed"] * 3
    assert_gapless(plan)
    assert_invariants()


def test_undecided_early_request_opens_when_step_is_ready(plan, rosa):
    early = prepared(plan)[0]
    before = events_of(plan)
    ApprovalRequest.objects.filter(pk=early.pk).update(expires_at=clock.now() + timedelta(seconds=5))
    approve(plan, rosa)
    work_off(plan)
    early.refresh_from_db()
    assert (early.status, early.is_early, early.remind_at is not None) == ("pending", False, True)
    assert early.ready_at == early.opened_at
    assert early.expires_at - early.opened_at > timedelta(hours=1)
    assert early in pending_for(rosa)
    assert events_of(plan)[len(before) :][-3:] == ["2 step.started", "2 approval.opened", "2 step.waiting"]
    assert standing(plan, 2) == ("in_progress", "held", "pending")
    approve(plan, rosa, 2)
    work_off(plan)
    assert standing(plan, 2) == ("completed", "completed", "consumed")
    assert_invariants()


def test_step_with_unknown_arguments_stays_gated(stage, ada, rosa):
    plan = make_plan(
        ada,
        act(1, "a", "dangerous", expected_key="first", output_path=["results", "0"]),
        act(2, "${first}", "dangerous", dependencies=[1]),
        act(3, "${there}", "dangerous", dependencies=[1]),
        act(4, "z", dependencies=[3]),
        memory={"there": "known"},
    )
    work_off(plan)
    assert [each.call.arguments_json for each in prepared(plan)] == [{"value": "known"}]
    seen = {each.step.step_id: (each.kind, each.why) for each in upcoming_steps(plan)}
    assert seen[2][0] == "later"
    assert "${first}" in seen[2][1]
    assert (seen[1][0], seen[3][0], seen[4][0]) == ("waits", "asked", "alone")
    approve(plan, rosa)
    work_off(plan)
    assert call_of(plan, 2).arguments_json == {"value": "a"}


def test_changed_arguments_void_early_approval(stage, ada, rosa):
    plan = work_off(
        make_plan(ada, act(1, "a", "dangerous"), act(2, "${k}", "dangerous", dependencies=[1]), memory={"k": 1})
    )
    early = say(prepared(plan)[0], rosa)
    MemoryItem.objects.filter(plan=plan, key="k").update(value="2")
    approve(plan, rosa)
    work_off(plan)
    early.refresh_from_db()
    new = request_of(plan, 2)
    assert (early.status, early.superseded_by, new.status, new.is_early) == ("superseded", new, "pending", False)
    assert new.call.arguments_json == {"value": 2}
    assert early.call.message.endswith("value.")  # the parameter that differs
    assert stage.values("dangerous") == ["a"]
    assert_invariants()


def test_reviewer_can_edit_early_request(plan, rosa, stage):
    say(prepared(plan)[0], rosa, arguments={"value": "edited"})
    approve(plan, rosa)
    work_off(plan)
    assert stage.values("dangerous") == ["a", "edited"]
    assert_invariants()


def test_step_skipped_by_check_withdraws_early_request(stage, ada, rosa):
    check = "memory['done'] == True"
    plan = make_plan(
        ada,
        act(1, True, "dangerous", expected_key="done", output_path=["results", "0"]),
        act(2, "b", "dangerous", dependencies=[1], done_check=check),
    )
    work_off(plan)
    early = say(prepared(plan)[0], rosa)
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    early.refresh_from_db()
    assert (early.status, early.call.status, step_of(plan, 2).skipped) == ("withdrawn", "cancelled", True)
    assert stage.values("dangerous") == [True]
    assert_invariants()


@pytest.mark.parametrize(
    ("verdict", "more", "step"),
    [
        (ReviewVerdict.REJECT, {}, "failed"),
        (ReviewVerdict.REJECT, {"effect": "skip"}, "completed"),
        (ReviewVerdict.RESPOND, {"response": "mine"}, "completed"),
        (ReviewVerdict.REQUEST_CHANGES, {}, "in_progress"),
    ],
)
def test_other_decisions_take_effect_when_step_is_ready(verdict, more, step, plan, rosa):
    say(prepared(plan, 1)[0], rosa, verdict, **more)
    assert step_of(plan, 2).status == "pending"
    approve(plan, rosa)
    work_off(plan)
    assert step_of(plan, 2).status == step
    assert call_of(plan, 2).attempt == 0
    assert_invariants()


def test_rejection_that_cancels_plan_takes_effect_at_once(plan, rosa):
    say(prepared(plan, 1)[0], rosa, ReviewVerdict.REJECT, effect="cancel_plan")
    plan.refresh_from_db()
    assert plan.status == "cancelled"
    assert [each.status for each in plan.steps.all()] == ["cancelled"] * 3
    assert_invariants()


def test_early_decision_can_be_undone(plan, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    early = say(prepared(plan, 1)[0], rosa, channel="page")
    assert undo_decision(early, by=rosa).is_pre_approval
    say(early, rosa, channel="page")
    approve(plan, rosa)
    work_off(plan)
    assert standing(plan, 2) == ("in_progress", "held", "approved")
    undo_decision(early, by=rosa)
    assert early in pending_for(rosa)
    approve(plan, rosa, 2)
    work_off(plan)
    assert standing(plan, 2) == ("completed", "completed", "consumed")
    assert_invariants()


def test_early_approval_lasts_until_step_is_ready_plus_run_window(plan, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    early = say(prepared(plan, 1)[0], rosa, channel="page")
    effective_at = early.decided_at and early.decided_at + timedelta(seconds=60)
    assert effective_at is not None
    assert early.not_after == effective_at + timedelta(hours=8)
    approve(plan, rosa)
    work_off(plan)
    early.refresh_from_db()
    assert early.not_after == effective_at + timedelta(seconds=settings.TOOLGATE_RUN_WINDOW_SECONDS)


@pytest.mark.parametrize("answered", [False, True])
def test_expired_early_request_is_requested_again(answered, plan, rosa):
    early = prepared(plan, 1)[0]
    if answered:
        say(early, rosa)
    past = clock.now() - timedelta(hours=9)
    ApprovalRequest.objects.filter(pk=early.pk).update(expires_at=past, not_after=past if answered else None)
    assert deadlines.expire_due(clock.now()) == 1
    early.refresh_from_db()
    assert (early.status, early.call.status, step_of(plan, 2).status) == ("expired", "cancelled", "pending")
    again = prepared(plan, 1)[0]
    assert (again.call.replaces, again.is_pre_approval) == (early.call, True)
    approve(plan, rosa)
    work_off(plan)
    assert standing(plan, 2) == ("in_progress", "held", "pending")


def test_early_request_withdrawn_by_requester_fails_step(plan, ada, rosa):
    second, third = prepared(plan)
    withdraw(second, by=ada, reason="No.")
    assert step_of(plan, 2).status == "pending"
    approve(plan, rosa)
    work_off(plan)
    third.refresh_from_db()
    assert (step_of(plan, 2).status, third.status, plan.status) == ("failed", "withdrawn", "failed")
    assert "Step 2" in third.call.message
    assert_invariants()


def test_revoked_early_approval_fails_step(plan, rosa):
    revoke(say(prepared(plan, 1)[0], rosa), by=rosa)
    approve(plan, rosa)
    work_off(plan)
    assert standing(plan, 2) == ("failed", "failed", "revoked")


def test_changing_step_withdraws_early_request(plan, ada, rosa, stage):
    second, third = prepared(plan)
    change = {"edit": [{"step_id": 2, "parameters": {"value": "new"}}], "remove": [3]}
    change_plan(plan, read_plan_change(change), by=Requester(ada))
    for each in (second, third):
        each.refresh_from_db()
    assert (second.status, third.status, step_of(plan, 2).call) == ("withdrawn", "withdrawn", None)
    assert [each.call.arguments_json for each in prepared(plan)] == [{"value": "new"}]
    assert_invariants()


def test_skipping_dependency_withdraws_early_request(plan, ada, rosa):
    second, third = prepared(plan)
    skip_step(plan, 2, "Not needed.", by=Requester(ada))
    for each in (second, third):
        each.refresh_from_db()
    assert (second.status, third.status) == ("withdrawn", "withdrawn")
    third = prepared(plan)[0]
    cancel_plan(plan, by=Requester(ada))
    third.refresh_from_db()
    assert (third.status, third.call.status) == ("withdrawn", "cancelled")
    with pytest.raises(Conflict):
        slices.prepare_slice(plan, 1, by=rosa)
    assert_invariants()


def test_unstarted_plan_can_be_requested(stage, ada, rosa):
    plan = make_plan(ada, act(1, "a", "dangerous"), start=False)
    early = prepared(plan)[0]
    say(early, rosa)
    start_plan(plan, by=Requester(ada))
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == ["a"]
    assert_invariants()


def test_four_eyes_apply_to_every_item(plan, ada, rosa):
    second, third = prepared(plan)
    items = [SliceItem(each.public_id, digest) for each, digest in ((second, second.digest), (third, "0" * 64))]
    items.append(SliceItem("apr_none", "x"))
    assert [each.status for each in slices.approve_slice(plan, items, ApprovalTerms(by=ada))] == [
        "forbidden",
        "forbidden",
        "not_found",
    ]
    results = slices.approve_slice(plan, items, ApprovalTerms(by=rosa))
    assert [each.status for each in results] == ["approved", "conflict", "not_found"]
    assert [each.status for each in slices.approve_slice(plan, items[:1], ApprovalTerms(by=rosa))] == ["conflict"]
    assert [each.status for each in slices.approve_slice(plan, items[:1], ApprovalTerms(by=rosa, repeated=True))] == [
        "approved"
    ]


def test_step_refused_by_its_tool_is_left_out(plan, stage, rosa):
    def refuse(value: Any, context: Any) -> None:
        if value == "b":
            raise ToolError("There is no b.")

    stage.previews["dangerous"] = refuse
    found = slices.prepare_slice(plan, 20, by=rosa)
    assert [each.call.step_ref for each in found.requests] == ["3"]
    assert found.left == [(2, "There is no b.")]


def test_rate_limit_counts_early_requests_once(stage, ada, rosa):
    one, two = act(2, 1, "limited_dangerous", dependencies=[1]), act(3, 2, "limited_dangerous", dependencies=[1])
    plan = work_off(make_plan(ada, act(1, "a", "dangerous"), one, two))
    found = slices.prepare_slice(plan, 20, by=rosa)
    assert [each.call.step_ref for each in found.requests] == ["2"]
    assert [number for number, _ in found.left] == [3]
    say(found.requests[0], rosa)
    approve(plan, rosa)
    work_off(plan)
    assert stage.values("limited_dangerous") == [1]


def test_crash_between_claim_and_start_keeps_early_approval(plan, rosa, stage):
    say(prepared(plan, 1)[0], rosa)
    approve(plan, rosa)
    take_one_step(plan)
    assert loop.claim_work(plan.pk, owner="dead") is not None
    plan.steps.filter(step_id=2).update(claimed_by="", lease_until=None, ready_at=clock.now())
    work_off(plan)
    assert stage.values("dangerous") == ["a", "b"]


def test_crash_after_voiding_early_request_requests_again(stage, ada, rosa):
    plan = work_off(
        make_plan(ada, act(1, "a", "dangerous"), act(2, "${k}", "dangerous", dependencies=[1]), memory={"k": 1})
    )
    early = prepared(plan)[0]
    MemoryItem.objects.filter(plan=plan, key="k").update(value="2")
    approve(plan, rosa)
    take_one_step(plan)
    assert loop.claim_work(plan.pk, owner="dead") is not None
    plan.steps.filter(step_id=2).update(claimed_by="", lease_until=None, ready_at=clock.now())
    work_off(plan)
    assert Call.objects.get(pk=early.call_id).replaced_by == call_of(plan, 2)
    assert_invariants()
