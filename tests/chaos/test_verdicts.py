"""The judgement of the runs finds each kind of violation."""

import pytest

from catalog.models import Call
from plans.models import Event, Plan, Step
from tests.builders import call_of, make_plan, step, work_off
from tests.chaos.verdicts import unsettled, violations

pytestmark = pytest.mark.usefixtures("chaos_tools", "effects_here")


@pytest.fixture
def effects_here(evidence, monkeypatch):
    """Let the tools of this process write their marks to the evidence folder."""
    monkeypatch.setenv("TOOLGATE_TEST_EFFECTS", str(evidence.effects))


@pytest.fixture
def ran(evidence, ada):
    """A plan that was acknowledged to the client and whose cautious step ran."""
    plan = work_off(make_plan(ada, step(1, "cautious_work"), goal="plan-1"))
    evidence.history.add("ok", "plan", "plan-1", id=plan.public_id)
    assert (violations(evidence), unsettled()) == ([], [])
    return plan


def sink(evidence, text):
    """Append a line to the sink."""
    with (evidence.effects / "sink").open("a") as file:
        file.write(text + "\n")


def test_an_effect_that_happened_twice_is_found(ran, evidence):
    """Twice in one attempt, and in a second attempt of a call that must not start again."""
    sink(evidence, f"{call_of(ran).public_id} 1 began")
    assert len(violations(evidence)) == 2
    sink(evidence, f"{call_of(ran).public_id} 2 began")
    assert "began 3 times" in str(violations(evidence))


def test_effects_that_the_database_does_not_know_are_found(ran, evidence):
    """An effect of an unknown call, and a completed call without an effect."""
    sink(evidence, "call_nobody_knows 1 began")
    assert "is not in the database" in str(violations(evidence))
    (evidence.effects / "sink").write_text("")
    assert "without an effect" in str(violations(evidence))


def test_a_dangerous_call_without_its_approval_is_found(ran, evidence):
    """The sink has its effect, and no approval was consumed."""
    Call.objects.update(tool_name="dangerous_work")
    assert "ran without an approval" in str(violations(evidence))


def test_writes_that_were_lost_or_doubled_are_found(ran, evidence, ada):
    """An acknowledged plan that is missing, a refused one that exists, a key that made two."""
    evidence.history.add("ok", "plan", "plan-2", id="plan_that_is_gone")
    evidence.history.add("fail", "plan", "plan-3")
    for goal in ("plan-1", "plan-3"):
        work_off(make_plan(ada, step(1), goal=goal))
    found = str(violations(evidence))
    assert "plan-1 made 2 plans" in found
    assert "plan_that_is_gone was acknowledged and is lost" in found
    assert "plan-3 was refused and is there" in found


def test_what_is_torn_or_in_limbo_is_found(ran, evidence):
    """A gap in the events, a step that is still claimed, a plan that is neither over nor waiting."""
    Event.objects.filter(plan=ran, seq=2).delete()
    Step.objects.update(claimed_by="someone")
    Plan.objects.update(status="in_progress")
    found = str(violations(evidence))
    assert "gaps" in found
    assert "still claimed" in found
    assert unsettled() == [ran.public_id]
