"""Tests of actions on plans with agents."""

import pytest

from catalog.core import clock
from catalog.errors import Conflict, ToolError
from catalog.models import Call
from plans.actions.change import change_plan, judge_change, read_plan_change
from plans.actions.clone import clone_plan, cloned_document
from plans.actions.control import cancel_plan, pause_plan, resume_plan
from plans.actions.create import PlanProblems
from plans.actions.give_input import give_input
from plans.actions.retry import retry_plan
from plans.actions.skip import is_idle, skip_step
from plans.agents import messages
from plans.engine import loop
from plans.engine.cancellation import end_overdue_plans
from plans.models import MemoryItem, Plan, Step
from plans.spec import MAX_STEPS
from plans.store.requesters import Requester, extra_requesters
from tests.builders import act, approve, assert_gapless, make_plan, request_of, step, step_of, work_off
from tests.plans.agents.scripted import agent_plan, agent_step, calls, make_agent, run_of, tools_of

TURN, HELD, FREE = 4, 5, 6
"""In the plans here the agent stands first, with two steps behind it: so its turn is step 4, its calls follow."""
WANTED = (("dangerous", {"value": 1}), ("safe", {"value": 2}))


@pytest.fixture
def plan(script, ada) -> Plan:
    """Return a plan with an agent that waits for approval, a step depending on it, and an independent step."""
    make_agent()
    script.says(calls(*WANTED))
    behind = act(2, "${told}", dependencies=[1], expected_key="after")
    alone = act(3, 3, dependencies=[2])
    made = agent_plan(ada, agent_step(expected_key="told", output_path=["results", "0"]), behind, alone)
    return work_off(made)


def change(plan: Plan, **body: object) -> Plan:
    """Change a plan as its owner."""
    change_plan(plan, read_plan_change(body), by=Requester(plan.author))
    plan.refresh_from_db()
    return plan


def retry(plan: Plan, step_id: int | None = None) -> Plan:
    """Retry as the owner and run; return the plan."""
    retry_plan(plan, step_id, by=Requester(plan.author))
    return work_off(plan)


def skip(plan: Plan, step_id: int = 1) -> Plan:
    """Skip a step as the owner."""
    skip_step(plan, step_id, "Not needed.", by=Requester(plan.author))
    plan.refresh_from_db()
    return plan


def test_clone_has_agent_without_its_calls(plan, ada):
    copy = clone_plan(plan, by=Requester(ada))
    assert [(each.step_id, each.agent, each.parent_id) for each in copy.steps.all()] == [
        (1, "ann", None), (2, "", None), (3, "", None),
    ]  # fmt: skip
    assert [each["step_id"] for each in cloned_document(plan)["steps"]] == [1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [
        {"edit": [{"step_id": HELD, "description": "Else"}]},
        {"remove": [FREE]},
        {"add": [act(9, dependencies=[HELD])]},
        {"edit": [{"step_id": 2, "dependencies": [1, TURN]}]},
    ],
    ids=["edit", "remove", "depend", "depend on a turn"],
)
def test_agents_calls_cannot_be_changed(plan, body):
    before = list(plan.steps.values_list("step_id", "description"))
    with pytest.raises(Conflict, match="step 1 instead"):
        change(plan, **body)
    assert list(plan.steps.values_list("step_id", "description")) == before


def test_new_step_does_not_reuse_id_of_agents_call(plan):
    judged = judge_change(plan, read_plan_change({"add": [act(HELD)]}))
    assert [problem.code for problem in judged.problems if problem.severity == "error"] == ["step_id_used"]
    with pytest.raises(PlanProblems) as refused:
        change(plan, add=[act(HELD)])
    assert [problem.code for problem in refused.value.problems] == ["step_id_used"]


def test_agents_calls_do_not_count_as_changes_by_others(plan, ada):
    changed = change(plan, edit=[{"step_id": 3, "description": "Else"}], add=[act(7)], seen_seq=1)
    assert step_of(changed, 3).description == "Else"
    with pytest.raises(Conflict):
        change(plan, goal="Later", seen_seq=1)
    plan.refresh_from_db()
    assert plan.goal != "Later"


def test_agents_steps_count_towards_step_limit(plan):
    agent = step_of(plan, 1)
    calls_made = [Step(plan=plan, parent=agent, step_id=number, tool="safe") for number in range(7, MAX_STEPS)]
    Step.objects.bulk_create(calls_made)
    change(plan, add=[act(MAX_STEPS)])
    assert plan.steps.count() == MAX_STEPS
    with pytest.raises(PlanProblems) as refused:
        change(plan, add=[act(MAX_STEPS + 1)])
    assert [problem.path for problem in refused.value.problems] == ["add"]


def test_agents_call_is_not_retried_directly(script, stage, ada):
    make_agent()
    script.says(ToolError("The provider is away."))
    plan = work_off(agent_plan(ada, agent_step(), act(2, dependencies=[1])))
    assert plan.status == "failed"
    failed = plan.steps.get(parent__isnull=False, status="failed")
    with pytest.raises(Conflict, match="Retry step 1"):
        retry(plan, failed.step_id)
    assert plan.status == "failed"


def test_retrying_all_continues_agent_without_its_calls(script, stage, ada):
    make_agent()
    script.says(calls(("safe", {"value": 1})), ToolError("The provider is away."))
    plan = work_off(agent_plan(ada))
    assert [plan.status, run_of(plan).stopped_for] == ["failed", "failed"]
    before = tools_of(plan)
    script.says("Done.")
    assert retry(plan).status == "completed"
    assert tools_of(plan) == [*before, "agent_turn completed"]
    assert [message["by"] for message in script.read[-1]] == ["user", "model", "tools"]
    assert stage.values("safe") == [1]
    assert_gapless(plan)


def test_agent_cancelled_with_plan_continues_when_retried(plan, script, stage):
    Plan.objects.filter(pk=plan.pk).update(deadline_at=plan.created_at)
    assert end_overdue_plans(clock.now()) == 1
    assert [step_of(plan).status, step_of(plan, HELD).status, step_of(plan, FREE).status] == [
        "cancelled", "cancelled", "completed",
    ]  # fmt: skip
    assert run_of(plan).ended_at is not None
    script.says("Without it, then.")
    Plan.objects.filter(pk=plan.pk).update(deadline_at=None)
    assert retry(plan).status == "completed"
    assert [messages.CANCELLED in script.last_results()[0], "2" in script.last_results()[1]] == [True, True]
    assert plan.memory.get(key="told").value_json == "Without it, then."
    assert_gapless(plan)


def test_agent_is_not_retried_while_outcome_is_unknown(plan, ada):
    cancelled = ("cancelled", "failed")
    Step.objects.filter(plan=plan, step_id=HELD).update(waiting_for="outcome")
    Step.objects.filter(plan=plan, step_id=1).update(status=cancelled[1], waiting_for="", error="Cut off.")
    with pytest.raises(Conflict, match="step 5"):
        retry(plan, 1)
    Step.objects.filter(plan=plan, step_id=HELD).update(waiting_for="", claimed_by="another")
    with pytest.raises(Conflict, match="Step 5"):
        retry(plan, 1)
    assert run_of(plan).ended_at is None


def test_waiting_call_of_agent_is_skipped(plan, script, stage, rosa):
    script.says("Then not.")
    assert is_idle(step_of(plan, HELD))
    assert work_off(skip(plan, HELD)).status == "completed"
    assert request_of(plan, HELD).status == "withdrawn"
    assert messages.SKIPPED in script.last_results()[0]
    assert stage.values("dangerous") == []
    assert_gapless(plan)


def test_turn_cannot_be_skipped(script, ada):
    make_agent()
    script.says("Never said.")
    plan = agent_plan(ada)
    loop.claim_work(plan.pk, owner="tests")
    turn = plan.steps.get(parent__isnull=False)
    assert not is_idle(turn)
    with pytest.raises(Conflict, match="Skip step 1"):
        skip(plan, turn.step_id)


def test_skipping_agent_ends_its_turn_and_calls(plan, stage, rosa):
    assert is_idle(step_of(plan))
    skipped = skip(plan)
    agent, held = step_of(plan), step_of(plan, HELD)
    assert (agent.status, agent.skipped, held.status, request_of(plan, HELD).status) == (
        "completed", True, "cancelled", "withdrawn",
    )  # fmt: skip
    assert run_of(plan).ended_at is not None
    assert work_off(skipped).status == "completed"
    with pytest.raises(Conflict):
        approve(plan, rosa, HELD)
    told = plan.memory.get(key="told", type=MemoryItem.Type.VALUE)
    assert (stage.values("dangerous"), told.value_json["skipped"]) == ([], True)
    assert_gapless(plan)


def test_agent_is_not_skipped_while_its_call_runs(plan):
    Step.objects.filter(plan=plan, step_id=HELD).update(waiting_for="", claimed_by="another")
    Call.objects.filter(step__plan=plan, step__step_id=HELD).update(status="running")
    with pytest.raises(Conflict, match="Step 5"):
        skip(plan)
    Step.objects.filter(plan=plan, step_id=HELD).update(waiting_for="outcome", claimed_by="")
    with pytest.raises(Conflict, match="Step 5"):
        skip(plan)
    assert step_of(plan).status == "in_progress"


def test_cancelling_plan_ends_its_agents(plan, stage):
    cancel_plan(plan, by=Requester(plan.author))
    assert {each.status for each in plan.steps.exclude(status="completed")} == {"cancelled"}
    assert (request_of(plan, HELD).status, work_off(plan).status) == ("withdrawn", "cancelled")
    assert run_of(plan).ended_at is not None
    assert_gapless(plan)


def test_pausing_plan_keeps_agent_waiting(plan, script, rosa, stage):
    by = Requester(plan.author)
    script.says("Done.")
    pause_plan(plan, by=by)
    approve(plan, rosa, HELD)
    assert step_of(plan, HELD).status == "in_progress"
    resume_plan(plan, by=by)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == [1]


def test_agents_calls_count_in_budget(script, ada, stage):
    make_agent()
    script.says(calls(("safe", {"value": 1})), "Never said.")
    plan = work_off(agent_plan(ada, budget={"calls": 2}))
    assert (plan.status, plan.calls_used, stage.values("safe")) == ("failed", 2, [1])
    assert "budget" in step_of(plan).error


def test_agents_question_is_answered(script, ada, rosa):
    """The person who answers counts as requester of what follows."""
    make_agent(tools={"names": ["ask_user"]})
    script.says(calls(("ask_user", {"question": "Which badge?"})), "Thank you.")
    plan = work_off(agent_plan(ada, agent_step(), step(2, dependencies=[1])))
    assert step_of(plan, TURN).waiting_for == "input"
    give_input(plan, None, None, text="The blue one.", by=Requester(rosa))
    assert work_off(plan).status == "completed"
    assert "The blue one." in script.last_results()[0]
    assert {rosa.pk} == extra_requesters(step_of(plan).pk) == extra_requesters(step_of(plan, 2).pk)


def test_plan_without_agents_is_changed(stage, ada):
    plan = make_plan(ada, act(1), start=False)
    assert [each.step_id for each in change(plan, add=[act(2)]).steps.all()] == [1, 2]
