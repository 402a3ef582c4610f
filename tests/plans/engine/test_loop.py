"""Execution of plans: order of dependencies, each step once, and failures that stop only dependents."""

import threading

import pytest

from plans.engine import loop
from plans.models import Plan
from plans.states import StepStatus
from tests.builders import act, assert_gapless, events_of, make_plan, step, step_of, work_off
from tests.waiting import eventually

pytestmark = pytest.mark.db


def statuses(plan: Plan) -> list[str]:
    """Return the statuses of the steps in their order."""
    return list(plan.steps.order_by("step_id").values_list("status", flat=True))


def test_a_chain_runs_in_the_order_of_its_dependencies(stage, ada):
    """Not in the order of its numbers."""
    plan = make_plan(ada, act(1, "c", dependencies=[2]), act(2, "b", dependencies=[3]), act(3, "a"))
    assert work_off(plan).status == "completed"
    assert stage.values("safe") == ["a", "b", "c"]
    assert (plan.started_at is None, plan.completed_at is None) == (False, False)


def test_join_waits_for_all_branches(stage, ada):
    """It starts once, after the last of its branches."""
    branches = [act(number, number, dependencies=[1]) for number in range(2, 12)]
    plan = make_plan(ada, act(1, 1), *branches, act(12, 12, dependencies=list(range(2, 12))))
    assert work_off(plan).status == "completed"
    assert stage.values("safe") == list(range(1, 13))


def test_threads_share_a_plan(executor, stage, ada):
    """Branches run concurrently; the join still starts once, after all of them."""
    together = threading.Barrier(2)
    stage.acts["cautious"] = lambda value, context: together.wait(timeout=60) and None
    branches = [act(number, number, "cautious", dependencies=[1]) for number in (2, 3)]
    plan = make_plan(ada, act(1, 1), *branches, act(4, 4, dependencies=[2, 3]))
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the plan's end")
    assert (stage.values("safe"), sorted(stage.values("cautious"))) == ([1, 4], [2, 3])
    assert_gapless(plan)


def test_a_wide_plan_runs_every_step_once(executor, stage, ada):
    middle = [act(number, number, dependencies=[1]) for number in range(2, 62)]
    plan = make_plan(ada, act(1, 1), *middle, act(62, 62, dependencies=list(range(2, 62))))
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the plan's end")
    assert sorted(stage.values("safe")) == list(range(1, 63))
    assert stage.values("safe")[-1] == 62
    assert_gapless(plan)


def test_a_step_without_a_tool_is_a_note(stage, ada):
    """It makes no call, and its dependents continue."""
    plan = make_plan(ada, step(1, None), act(2, dependencies=[1]), step(3, None, dependencies=[2]))
    assert work_off(plan).status == "completed"
    assert [one.call_id is None for one in plan.steps.order_by("step_id")] == [True, False, True]
    assert "1 step.started" in events_of(plan)
    assert "1 step.completed" in events_of(plan)


def test_failure_stops_only_dependents(stage, ada):
    """The other branch continues; then the plan fails and names the step."""
    stage.acts["keeping"] = lambda value, context: 1 / 0
    plan = make_plan(ada, act(1, tool="keeping"), act(2, dependencies=[1]), act(3), act(4, "last", dependencies=[3]))
    assert work_off(plan).status == "failed"
    assert statuses(plan) == ["failed", "pending", "completed", "completed"]
    assert stage.values("safe") == [None, "last"]
    assert "division by zero" in step_of(plan, 1).error
    assert plan.steps.filter(status=StepStatus.PENDING, ready_at=None).count() == 1
    assert events_of(plan)[-1] == "plan.failed"


def test_a_plan_that_has_not_started_does_nothing(stage, ada):
    """Its steps are not ready."""
    plan = work_off(make_plan(ada, act(1), start=False))
    assert (plan.status, statuses(plan), stage.played) == ("pending", ["pending"], [])


def test_worker_ends_the_plan_at_the_end_of_its_time_slice(stage, ada):
    """No other worker might come afterwards."""
    plan = make_plan(ada, act(1))
    work = loop.claim_work(plan.pk, owner="tests")
    assert work is not None
    assert loop.advance(work, loop.TimeSlice("tests", steps_left=0)) is None
    plan.refresh_from_db()
    assert plan.status == "completed"
