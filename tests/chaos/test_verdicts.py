"""What judges the runs can fail: each wrong is found by its words."""

import pytest

from catalog.models import Call
from plans.models import Event, Plan, Step
from tests.builders import call_of, make_plan, step, work_off
from tests.chaos.verdicts import unsettled, violations

pytestmark = pytest.mark.usefixtures("chaos_tools", "effects_here")


@pytest.fixture
def effects_here(evidence, monkeypatch):
    """Let tools of this process leave their marks where the evidence is."""
    monkeypatch.setenv("TOOLGATE_TEST_EFFECTS", str(evidence.effects))


@pytest.fixture
def ran(evidence, ada):
    """A plan whose cautious step ran, acknowledged to the client."""
    plan = work_off(make_plan(ada, step(1, "cautious_work"), goal="plan-1"))
    evidence.history.add("ok", "plan", "plan-1", id=plan.public_id)
    assert (violations(evidence), unsettled()) == ([], [])
    return plan


def sink(evidence, text):
    """Append a line to the sink."""
    with (evidence.effects / "sink").open("a") as file:
        file.write(text + "\n")


def test_an_effect_that_happened_twice_is_found(ran, evidence):
    """In one attempt, and in two of a call that must not start again."""
    sink(evidence, f"{call_of(ran).public_id} 1 began")
    assert len(violations(evidence)) == 2
    sink(evidence, f"{call_of(ran).public_id} 2 began")
    assert "began 3 times" in str(violations(evidence))


def test_effects_that_the_database_does_not_know_are_found(ran, evidence):
    """A call that is not there, and a completed one that never ran."""
    sink(evidence, "call_nobody_knows 1 began")
    assert "is not in the database" in str(violations(evidence))
    (evidence.effects / "sink").write_text("")
    assert "without an effect" in str(violations(evidence))


def test_a_dangerous_call_without_its_approval_is_found(ran, evidence):
    """The sink has it, and no request was used up."""
    Call.objects.update(tool_name="dangerous_work")
    assert "ran without an approval" in str(violations(evidence))


def test_writes_that_were_lost_or_doubled_are_found(ran, evidence, ada):
    """An acknowledged plan that is gone, a refused one that is there, a key that made two."""
    evidence.history.add("ok", "plan", "plan-2", id="plan_that_is_gone")
    evidence.history.add("fail", "plan", "plan-3")
    for goal in ("plan-1", "plan-3"):
        work_off(make_plan(ada, step(1), goal=goal))
    found = str(violations(evidence))
    assert "plan-1 made 2 plans" in found
    assert "plan_that_is_gone was acknowledged and is lost" in found
    assert "plan-3 was refused and is there" in found


def test_what_is_torn_or_in_limbo_is_found(ran, evidence):
    """A gap in the events, a step that is still claimed, a plan that waits for nothing."""
    Event.objects.filter(plan=ran, seq=2).delete()
    Step.objects.update(claimed_by="someone")
    Plan.objects.update(status="in_progress")
    found = str(violations(evidence))
    assert "gaps" in found
    assert "still claimed" in found
    assert unsettled() == [ran.public_id]
