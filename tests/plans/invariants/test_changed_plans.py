"""Every invariant holds for plans that were changed, partly skipped, retried and cloned."""

from catalog.errors import ToolError
from plans.actions.change import change_plan, read_plan_change
from plans.actions.clone import clone_plan
from plans.actions.control import pause_plan, resume_plan
from plans.actions.retry import retry_plan
from plans.actions.skip import skip_step
from plans.store.requesters import Requester
from tests.builders import act, approve, make_plan, work_off
from tests.invariants import assert_invariants
from tests.plans.factories import act_raising


def test_every_invariant_holds_after_each_action(stage, ada, rosa):
    by = Requester(ada)
    stage.acts["keeping"] = act_raising(ToolError("no"))
    steps = act(1, tool="keeping"), act(2, tool="dangerous"), act(3, dependencies=[1, 2]), act(4, dependencies=[3])
    plan = work_off(make_plan(ada, *steps))
    assert_invariants()
    change_plan(plan, read_plan_change({"add": [act(5, dependencies=[1])], "remove": [4]}), by=by)
    skip_step(plan, 2, "Done by hand.", by=by)
    assert_invariants()
    assert work_off(plan).status == "failed"
    stage.acts.clear()
    retry_plan(plan, by=by)
    assert_invariants()
    pause_plan(plan, by=by)
    change_plan(plan, read_plan_change({"add": [act(6, tool="dangerous", dependencies=[1])]}), by=by)
    resume_plan(plan, by=by)
    work_off(plan)
    approve(plan, rosa, 6)
    assert work_off(plan).status == "completed"
    made = work_off(clone_plan(plan, by=by, start=True))
    assert made.status == "in_progress"
    assert_invariants()


def test_a_retried_dangerous_step(stage, ada, rosa):
    """Two calls with two approvals, each used once."""
    stage.acts["dangerous"] = act_raising(ToolError("no"))
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), act(2, tool="cautious_patient")))
    approve(plan, rosa)
    work_off(plan)
    stage.acts.clear()
    retry_plan(plan, by=Requester(ada))
    work_off(plan)
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert_invariants()
