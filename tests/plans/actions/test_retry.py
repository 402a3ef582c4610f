"""Retrying: what failed is tried again with what depends on it; what is done stays, what is dangerous is asked anew."""

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
from plans.engine import execution
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
    """Retry as the plan's owner; return the plan as it is then."""
    retry_plan(plan, step_id, by=Requester(plan.author))
    plan.refresh_from_db()
    return plan


def test_a_failed_plan_goes_on_from_where_it_failed(stage, ada):
    """The failed step and what needs it; what is done is not done again."""
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


def test_one_step_is_retried_while_the_plan_goes_on(stage, ada, rosa):
    """The other branch waits for people meanwhile."""
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


def test_a_dangerous_step_asks_anew(stage, ada, rosa):
    """The old approval was used and is for its own call."""
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


def test_a_rejected_step_is_refused_again_with_the_first_reason(stage, ada, rosa):
    """Whoever retries it: nobody is asked twice about the same in one plan."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    reject(plan, rosa)
    refused = call_of(plan)
    assert work_off(retry(plan)).status == "failed"
    again = call_of(plan)
    assert (again.replaces, again.error_kind, len(stage.played)) == (refused, "refused_before", 0)
    error = step_of(plan).error
    assert "Rosa" in error and error.endswith("): No."), "the reason stands alone, at the end"
    assert ApprovalRequest.objects.count() == 1


def test_references_and_checks_are_looked_at_again(stage, ada):
    """What memory holds now counts."""
    first = act(1, "a", expected_key="x", output_path=["results", "0"])
    stage.acts["keeping"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, first, act(2, "${x}", "keeping", dependencies=[1]), act(3, "x", "keeping")))
    plan.memory.filter(type="value", key="x").update(value='"b"')
    plan.steps.filter(step_id=3).update(done_check="x == 'b'")
    stage.acts.clear()
    work_off(retry(plan))
    assert (stage.values("keeping")[-1], step_of(plan, 3).skipped) == ("b", True)


def test_a_call_keeps_its_literal_arguments(stage, ada):
    """A direct call has no references, neither alone nor in a plan."""
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


def test_a_step_that_failed_before_its_call(stage, ada):
    """There is nothing to replace."""
    plan = make_plan(ada, act(1, "${x}"), memory={"x": 1})
    plan.memory.all().delete()
    assert (work_off(plan).status, step_of(plan).call) == ("failed", None)
    plan.memory.create(type="value", key="x", value="2", at=clock.now())
    assert work_off(retry(plan)).status == "completed"
    assert (call_of(plan).replaces, stage.values("safe")) == (None, [2])


def test_an_unknown_outcome_is_settled_not_retried(stage, ada, rosa):
    """A person says first what happened; the others are retried meanwhile."""
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
def test_plans_that_cannot_be_retried(stage, ada, status):
    plan = make_plan(ada, act(1))
    Plan.objects.filter(pk=plan.pk).update(status=status)
    with pytest.raises(Conflict):
        retry(plan)
    plan.refresh_from_db()
    assert plan.status == status


def test_a_failed_plan_cannot_be_started(stage, ada):
    """It is retried."""
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1)))
    with pytest.raises(Conflict):
        start_plan(plan, by=Requester(ada))


def test_steps_that_cannot_be_retried(stage, ada):
    """Done, waiting, or stopped by another that is to be retried first."""
    stage.acts["keeping"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1), act(2, tool="dangerous"), act(3, tool="keeping"), act(4, dependencies=[3])))
    for number in (1, 2, 4):
        with pytest.raises(Conflict, match=f"Step {number}"):
            retry(plan, number)
    plan.steps.filter(step_id=4).update(status="cancelled")
    with pytest.raises(Conflict, match="step 3"):
        retry(plan, 4)


def test_a_plan_whose_time_was_over_gets_it_again(stage, ada, rosa):
    """From the retry on; what the deadline cancelled is tried too, and what was approved is asked about anew."""
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


def test_a_plan_whose_last_step_ended_too_late(stage, ada):
    """There is nothing left to do: a retry completes it."""
    plan = work_off(make_plan(ada, act(1)))
    Plan.objects.filter(pk=plan.pk).update(status="failed")
    assert retry(plan).status == "completed"


def test_a_paused_plan_is_retried_when_it_is_resumed(stage, ada):
    """Until then nothing starts."""
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


def test_a_late_settlement_and_a_retry(stage, ada):
    """A call that did not happen, says a person, failed its step: that is retried like any other."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    call = call_of(plan)
    type(call).objects.filter(pk=call.pk).update(status="outcome_unknown")
    plan.steps.update(waiting_for="outcome")
    settle_outcome(plan, 1, settlement=Settlement("did_not_happen", comment="I looked."), by=Requester(ada))
    assert work_off(retry(plan)).status == "in_progress"
    assert (call_of(plan).replaces, request_of(plan).status) == (call, "pending")


def test_who_retries_does_not_decide(stage, ada, admin, rosa):
    """They have asked for it."""
    admin.groups.add(Group.objects.get(name="reviewer"))
    stage.acts["dangerous"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    work_off(plan)
    retry_plan(plan, by=Requester(admin))
    work_off(plan)
    with pytest.raises(NotAllowed):
        decide(request_of(plan), by=admin, decision=Decision(ReviewVerdict.APPROVE, request_of(plan).digest))


def test_the_earlier_try_stays_on_the_timeline(stage, ada):
    """As a bar of its own, before the new one."""
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1)))
    retry(plan)
    assert [stroke.look for stroke in load_overview(plan).steps[0].timeline_bars] == ["retry"]
    stage.acts.clear()
    assert [stroke.look for stroke in load_overview(work_off(plan)).steps[0].timeline_bars] == ["retry", "ok"]


def test_over_rest(stage, ada, ben):
    """One step or all; an unknown step is not there."""
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


def test_a_worker_that_is_still_there_keeps_to_the_new_deadline(stage, ada):
    """What it knew of the plan is from before the retry; the next step it claims has the time that was given anew."""
    plan = make_plan(ada, act(1), act(2, "b", tool="keeping"), deadline_seconds=60)
    Plan.objects.update(deadline_at=clock.now())
    run = execution.claim_work(plan.pk, owner="tests")
    assert run is not None
    Plan.objects.update(deadline_at=clock.now() + timedelta(hours=1))  # as a retry does
    plan.refresh_from_db()
    following = execution.advance(run, execution.TimeSlice("tests"))
    assert isinstance(following, RunningCall) and following.plan.deadline_at == plan.deadline_at
    execution.advance(following, execution.TimeSlice("tests"))
    assert (call_of(plan).error_kind, call_of(plan, 2).status) == ("deadline_exceeded", "completed")


def test_other_arguments_replace_those_that_failed(stage, ada, admin, rosa):
    """They are taken as they stand, pass the gate anew, and their author does not decide about them."""
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


def test_other_arguments_for_a_step_that_failed_before_its_call(catalog, workspace, ada, rosa):
    """A reference led to a value that the tool does not take; the references are read for whoever edits them."""
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


def test_other_arguments_need_one_step_that_calls_a_tool(stage, ada):
    """Over REST with the field that is wrong; with a step that is done it is too late."""
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


def test_a_secret_that_was_deleted_with_the_plan_is_given_again(stage, ada):
    """What stands for it is no value."""
    stage.acts["safe"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1)))
    with pytest.raises(ToolError):
        retry_with(plan, 1, {"value": {"$secret": "token"}}, by=Requester(ada))
    assert step_of(plan).status == "failed"
