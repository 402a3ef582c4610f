"""Late results of sync handlers: stored as evidence, and their changes undone."""

import json
from datetime import timedelta

import pytest

from catalog.core import clock
from catalog.core.workspace_files import Filesystem
from catalog.errors import DeadlineExceededError
from plans.engine import loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import MemoryItem, Step
from tests.builders import act, approve, call_of, make_plan, step_of, work_off
from tests.tools_for_tests import SHORT_SECONDS
from tests.waiting import eventually

pytestmark = pytest.mark.django_db


def write_late(value, context):
    """Write a file, and return after the deadline."""
    context.resources.get(Filesystem).write_text("late.txt", "late")
    eventually(context.deadline.expired, what="the deadline")
    return "too late"


def test_a_late_result_is_recorded_and_never_applied(stage, ada, workspace):
    stage.acts["hasty"] = write_late
    plan = work_off(make_plan(ada, act(1, tool="hasty", expected_key="kept")))
    evidence = json.loads(call_of(plan).late_evidence)
    assert (evidence["results"], evidence["success"], evidence["restored"]) == (["too late"], True, True)
    assert (call_of(plan).error_kind, step_of(plan).status) == ("timeout", "failed")
    assert not MemoryItem.objects.filter(plan=plan, type="value").exists()
    assert list(workspace.iterdir()) == []


def test_late_dangerous_call_has_an_unknown_outcome_and_shows_its_result(stage, ada, rosa, workspace):
    stage.acts["dangerous_hasty"] = write_late
    plan = work_off(make_plan(ada, act(1, tool="dangerous_hasty")))
    approve(plan, rosa)
    work_off(plan)
    assert (step_of(plan).waiting_for, call_of(plan).status) == ("outcome", "outcome_unknown")
    assert '"too late"' in call_of(plan).late_evidence and '"restored": true' in call_of(plan).late_evidence


def test_handler_gets_its_remaining_time(stage, ada):
    stage.acts["hasty"] = lambda value, context: [
        context.budget.seconds,
        0 < context.deadline.remaining() <= SHORT_SECONDS,
    ]
    plan = work_off(make_plan(ada, act(1, tool="hasty")))
    assert call_of(plan).response_json["results"] == [SHORT_SECONDS, True]


@pytest.mark.parametrize("tool", ["patient", "cautious"])
def test_failure_after_the_lease_was_lost_is_stored(stage, ada, tool):
    """Also a retryable one, and one with an unknown outcome."""

    def fail(value, context):
        Step.objects.update(lease_until=clock.now() - timedelta(seconds=1))
        recovery.take_back_lost_steps(clock.now())
        raise DeadlineExceededError("Upstream was slow.")

    stage.acts[tool] = fail
    plan = make_plan(ada, act(1, tool=tool))
    run = loop.claim_work(plan.pk, owner="lost")
    assert isinstance(run, RunningCall)
    loop.advance(run, TimeSlice("lost", steps_left=0))
    evidence = json.loads(call_of(plan).late_evidence)
    assert (evidence["error"], evidence["attempt"]) == ("Upstream was slow.", 1)
