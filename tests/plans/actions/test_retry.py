"""Tests of retrying failed steps and plans."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from approvals.models import ApprovalRequest, AuditEntry
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict, ParameterError, ToolError
from plans.actions.change import change_plan, read_plan_change
from plans.actions.control import cancel_plan, pause_plan, resume_plan
from plans.actions.create import start_plan
from plans.actions.retry import arguments_to_edit, retry_plan, retry_with
from plans.actions.settle import Settlement, settle_outcome
from plans.engine import loop
from plans.engine.cancellation import end_overdue_plans
from plans.engine.work import RunningCall
from plans.models import Plan
from plans.store.requesters import Requester
from plans.store.selectors import memory_of
from plans.web.plan.overview import load_overview
from tests.builders import (
    act,
    approve,
    assert_gapless,
    call_of,
    events_of,
    make_plan,
    reject,
    request_of,
    step_of,
    work_off,
    write_step,
)
from tests.invariants import assert_invariants
from tests.plans.factories import act_raising
from tests.rest import Rest, wrong_paths


def retry(plan: Plan, step_id: int | None = None) -> Plan:
    """Retry as the plan's owner; return the plan."""
    retry_plan(plan, step_id, by=Requester(plan.author))
    plan.refresh_from_db()
    return plan


def test_failed_plan_continues_from_failed_step(stage, ada):
    stage.acts["keeping"] = act_raising(ToolError("no"))
    steps = act(1, "a", expected_key="x"), act(2, "b", "keeping", dependencies=[1]), act(3, "c", dependencies=[2])
    plan = work_off(make_plan(ada, *steps))
    failed, completed_at = call_of(plan, 2), step_of(plan, 1).completed_at
    assert (plan.status, step_of(plan, 3).status) == ("failed", "pending")

    stage.acts.clear()
    assert (retry(plan).status, plan.completed_at) == ("in_progress", None)
    assert (step_of(plan, 2).status, step_of(plan, 2).error, step_of(plan, 2).call) == ("pending", "", None)
    assert work_off(plan).status == "completed"
    assert (stage.values("safe"), stage.values("keeping")) == (["a", "c"], ["b", "b"])
    assert (call_of(plan, 2).replaces, step_of(plan, 1).completed_at) == (failed, completed_at)
    assert [item["step_id"] for item in memory_of(plan)["items"] if item["type"] == "step_failed"] == [2]
    events = events_of(plan)
    assert events[events.index("plan.failed") :][1:4] == ["plan.resumed", "2 step.retrying", "2 step.started"]
    assert_gapless(plan)


def test_step_is_retried_while_plan_runs(stage, ada, rosa):
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous"), act(3)))
    stage.acts.clear()
    retry(plan, 1)
    assert (work_off(plan).status, step_of(plan, 1).status, step_of(plan, 3).status) == (
        "in_progress", "completed", "failed",
    )  # fmt: skip
    approve(plan, rosa, 2)
    assert work_off(plan).status == "failed"
    assert work_off(retry(plan)).status == "completed"


def test_retried_dangerous_step_needs_new_approval(stage, ada, rosa):
    stage.acts["dangerous"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    assert work_off(plan).status == "failed"
    used, old = request_of(plan), call_of(plan)
    assert work_off(retry(plan)).status == "in_progress"
    used.refresh_from_db()
    assert call_of(plan).replaces == old
    assert (used.status, used.superseded_by, request_of(plan).status) == ("consumed", request_of(plan), "pending")
    stage.acts.clear()
    approve(plan, rosa)
    assert (work_off(plan).status, len(stage.played)) == ("completed", 2)


def test_rejected_step_is_rejected_again_on_retry(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    reject(plan, rosa)
    refused = call_of(plan)
    assert work_off(retry(plan)).status == "failed"
    again = call_of(plan)
    assert (again.replaces, again.error_kind, len(stage.played)) == (refused, "refused_before", 0)
    error = step_of(plan).error
    assert "Rosa" in error and error.endswith("): No."), "the reason stands alone, at the end"
    assert ApprovalRequest.objects.count() == 1


def test_references_and_checks_are_evaluated_again(stage, ada):
    first = act(1, "a", expected_key="x", output_path=["results", "0"])
    stage.acts["keeping"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, first, act(2, "${x}", "keeping", dependencies=[1]), act(3, "x", "keeping")))
    plan.memory.filter(type="value", key="x").update(value='"b"')
    plan.steps.filter(step_id=3).update(done_check="x == 'b'")
    stage.acts.clear()
    work_off(retry(plan))
    assert (stage.values("keeping")[-1], step_of(plan, 3).skipped) == ("b", True)


def test_retried_direct_call_keeps_literal_arguments(stage, ada):
    stage.acts["safe"] = act_raising(ToolError("no"))
    body = {"tool": "safe", "arguments": {"value": "${x}"}, "reason": "Because"}
    alone = Rest(ada).post("calls/", body).json()
    joined = make_plan(ada, act(1, tool="dangerous"))
    Rest(ada).post("calls/", {**body, "plan": joined.public_id})
    stage.acts["safe"] = lambda value, context: value
    for plan, number in ((Plan.objects.get(public_id=alone["plan"]), 1), (joined, 2)):
        stage.acts["safe"] = act_raising(ToolError("no"))
        work_off(plan)
        stage.acts.clear()
        work_off(retry(plan, number))
        assert (call_of(plan, number).response_json["results"], call_of(plan, number).reason) == (["${x}"], "Because")


def test_step_that_failed_before_its_call_is_retried(stage, ada):
    plan = make_plan(ada, act(1, "${x}"), memory={"x": 1})
    plan.memory.all().delete()
    assert (work_off(plan).status, step_of(plan).call) == ("failed", None)
    plan.memory.create(type="value", key="x", value="2", at=clock.now())
    assert work_off(retry(plan)).status == "completed"
    assert (call_of(plan).replaces, stage.values("safe")) == (None, [2])


def test_unknown_outcome_is_not_retried(stage, ada, rosa):
    stage.acts["safe"] = act_raising(ToolError("no"))
    stage.acts["dangerous_hasty"] = lambda value, context: stage.acts["wait"](value, context)
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous")))
    plan.steps.filter(step_id=2).update(waiting_for="outcome")
    with pytest.raises(Conflict):
        retry(plan, 2)
    assert step_of(plan, 2).waiting_for == "outcome"
    stage.acts.clear()
    assert step_of(retry(plan), 1).status == "pending"
    work_off(plan)
    with pytest.raises(Conflict):
        retry(plan)
    assert step_of(plan, 2).waiting_for == "outcome"


@pytest.mark.parametrize("status", ["pending", "completed", "cancelled", "in_progress"])
def test_plan_that_cannot_be_retried_is_conflict(stage, ada, status):
    plan = make_plan(ada, act(1))
    Plan.objects.filter(pk=plan.pk).update(status=status)
    with pytest.raises(Conflict):
        retry(plan)
    plan.refresh_from_db()
    assert plan.status == status


def test_failed_plan_cannot_be_started(stage, ada):
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1)))
    with pytest.raises(Conflict):
        start_plan(plan, by=Requester(ada))


def test_step_that_cannot_be_retried_is_conflict(stage, ada):
    stage.acts["keeping"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous"), act(3, tool="keeping"), act(4, dependencies=[3])))
    for number in (1, 2, 4):
        with pytest.raises(Conflict, match=f"Step {number}"):
            retry(plan, number)
    plan.steps.filter(step_id=4).update(status="cancelled")
    with pytest.raises(Conflict, match="step 3"):
        retry(plan, 4)


def test_timed_out_plan_gets_full_deadline_again(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1]), deadline_seconds=600))
    Plan.objects.filter(pk=plan.pk).update(deadline_at=clock.now() - timedelta(hours=1))
    end_overdue_plans(clock.now())
    assert [step_of(plan, number).status for number in (1, 2)] == ["cancelled", "cancelled"]
    before = clock.now()
    assert retry(plan).status == "in_progress"
    assert plan.deadline_at is not None
    assert timedelta(seconds=599) < plan.deadline_at - before < timedelta(seconds=660)
    assert (end_overdue_plans(clock.now()), work_off(plan).status) == (0, "in_progress")
    approve(plan, rosa)
    assert work_off(plan).status == "completed"


def test_retry_completes_plan_that_timed_out_at_its_last_step(stage, ada):
    plan = work_off(make_plan(ada, act(1)))
    Plan.objects.filter(pk=plan.pk).update(status="failed")
    assert retry(plan).status == "completed"


def test_retry_in_paused_plan_starts_after_resume(stage, ada):
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous")))
    stage.acts.clear()
    pause_plan(plan, by=Requester(ada))
    retry(plan, 1)
    with pytest.raises(Conflict):
        change_plan(plan, read_plan_change({"remove": [1]}), by=Requester(ada))
    assert stage.values("safe") == [None]
    resume_plan(plan, by=Requester(ada))
    work_off(plan)
    assert step_of(plan).status == "completed"


def test_step_settled_as_failed_is_retried(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    call = call_of(plan)
    type(call).objects.filter(pk=call.pk).update(status="outcome_unknown")
    plan.steps.update(waiting_for="outcome")
    settle_outcome(plan, 1, settlement=Settlement("did_not_happen", comment="I looked."), by=Requester(ada))
    assert work_off(retry(plan)).status == "in_progress"
    assert (call_of(plan).replaces, request_of(plan).status) == (call, "pending")


def test_person_who_retries_cannot_approve(stage, ada, admin, rosa):
    admin.groups.add(Group.objects.get(name="reviewer"))
    stage.acts["dangerous"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    work_off(plan)
    retry_plan(plan, by=Requester(admin))
    work_off(plan)
    with pytest.raises(NotAllowed):
        decide(request_of(plan), by=admin, decision=Decision(ReviewVerdict.APPROVE, request_of(plan).digest))


def test_earlier_attempt_stays_on_timeline(stage, ada):
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1)))
    retry(plan)
    assert [stroke.look for stroke in load_overview(plan).steps[0].timeline_bars] == ["retry"]
    stage.acts.clear()
    assert [stroke.look for stroke in load_overview(work_off(plan)).steps[0].timeline_bars] == ["retry", "ok"]


def test_retry_over_rest(stage, ada, ben):
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1), act(2)))
    path = f"plans/{plan.public_id}/retry/"
    assert Rest(ben).post(path).status_code == 403
    assert [Rest(ada).post(path, body).status_code for body in ({"step_id": 7}, {"step_id": "1"}, {"x": 1})] == [
        404, 422, 422,
    ]  # fmt: skip
    answer = Rest(ada).post(path, {"step_id": 1}, key="k")
    assert (answer.status_code, [step["status"] for step in answer.json()["steps"]]) == (200, ["pending", "failed"])
    assert Rest(ada).post(path, {"step_id": 1}).status_code == 409
    assert Rest(ada).post(path).json()["steps"][1]["status"] == "pending"
    cancel_plan(plan, by=Requester(ada))
    assert Rest(ada).post(path).status_code == 409


def test_running_worker_uses_new_deadline(stage, ada):
    """It loaded the plan before the retry."""
    plan = make_plan(ada, act(1), act(2, "b", tool="keeping"), deadline_seconds=60)
    Plan.objects.update(deadline_at=clock.now())
    run = loop.claim_work(plan.pk, owner="tests")
    assert run is not None
    Plan.objects.update(deadline_at=clock.now() + timedelta(hours=1))  # as a retry does
    plan.refresh_from_db()
    following = loop.advance(run, loop.TimeSlice("tests"))
    assert isinstance(following, RunningCall) and following.plan.deadline_at == plan.deadline_at
    loop.advance(following, loop.TimeSlice("tests"))
    assert (call_of(plan).error_kind, call_of(plan, 2).status) == ("deadline_exceeded", "completed")


def test_retry_with_other_arguments(stage, ada, admin, rosa):
    """They stay literal, pass the gate again, and their author cannot approve them."""
    stage.acts["dangerous"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1, "x", "dangerous"), act(2, dependencies=[1])))
    approve(plan, rosa)
    assert work_off(plan).status == "failed"
    used, old = request_of(plan), call_of(plan)
    stage.acts.clear()
    retry_with(plan, None, {"value": "${less}"}, by=Requester(admin))
    assert plan.events.filter(type="step.retrying").get().data_json["edited"] is True
    assert AuditEntry.objects.filter(action="call.edited", actor=admin, plan_ref=plan.public_id).count() == 1
    assert work_off(plan).status == "in_progress"
    new, played = request_of(plan), len(stage.played)
    assert (new.pk != used.pk, new.status, new.call.replaces) == (True, "pending", old)
    assert {each.user_id for each in new.call.requesters.all()} == {ada.pk, admin.pk}
    approve(plan, rosa)
    assert (work_off(plan).status, stage.values("dangerous")[played:]) == ("completed", ["${less}"])
    assert step_of(plan).parameters_json == {"value": "x"}
    assert_invariants()


def test_other_arguments_for_step_that_failed_before_its_call(catalog, workspace, ada, rosa):
    """References are resolved for the person who edits them."""
    step = write_step(1, content="${x}")
    plan = work_off(make_plan(ada, step, memory={"x": {"a": 1}}))
    assert (plan.status, step_of(plan).call, arguments_to_edit(step_of(plan))["content"]) == ("failed", None, {"a": 1})
    with pytest.raises(ParameterError) as refusal:
        retry_with(plan, 1, {"path": "a.txt", "content": 7}, by=Requester(ada))
    assert [each["path"] for each in (refusal.value.details or {})["errors"]] == ["content"]
    retry_with(plan, 1, {"path": "a.txt", "content": "text"}, by=Requester(ada))
    assert work_off(plan).status == "in_progress"
    approve(plan, rosa)
    assert work_off(plan).status == "completed"


def test_other_arguments_need_one_step_with_tool(stage, ada):
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1), act(2), act(3, tool="keeping")))
    path, given = f"plans/{plan.public_id}/retry/", {"value": "b"}
    assert wrong_paths(Rest(ada).post(path, {"arguments": given})) == ["step_id"]
    assert wrong_paths(Rest(ada).post(path, {"step_id": 1, "arguments": {"valu": 1}})) == ["valu"]
    assert Rest(ada).post(path, {"step_id": 3, "arguments": given}).status_code == 409
    Plan.objects.filter(pk=plan.pk).update(can_modify=False)
    assert Rest(ada).post(path, {"step_id": 2, "arguments": given}).status_code == 409
    Plan.objects.filter(pk=plan.pk).update(can_modify=True)
    stage.acts.clear()
    answer = Rest(ada).post(path, {"step_id": 2, "arguments": given})
    assert [step["status"] for step in answer.json()["steps"]] == ["failed", "pending", "completed"]
    plan.refresh_from_db()
    work_off(plan)
    assert stage.values("safe")[-1] == "b"


def test_deleted_secret_must_be_given_again(stage, ada):
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1)))
    with pytest.raises(ToolError):
        retry_with(plan, 1, {"value": {"$secret": "token"}}, by=Requester(ada))
    assert step_of(plan).status == "failed"
