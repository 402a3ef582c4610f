"""Tests of the progress display in a terminal."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from catalog.core import clock
from plans.engine.cancellation import end_overdue_plans
from plans.management.progress import ProgressDisplay
from plans.models import Plan
from plans.web.plan.overview import load_overview
from tests.builders import act, make_plan, request_of, work_off
from tests.plans.factories import act_raising

HOSTILE = "a\x1b[31m\u202e\nb"


class Screen:
    """Captured output and its styles."""

    def __init__(self) -> None:
        self.text = ""
        styles = {"danger": lambda text: f"<{text}>"}
        self.progress = ProgressDisplay(self._take, styles)

    def _take(self, text: str) -> None:
        self.text += text

    def show(self, plan: Plan) -> str:
        """Show a plan; return the output."""
        before = len(self.text)
        self.progress.show(load_overview(Plan.objects.get(pk=plan.pk)))
        return self.text[before:]


@pytest.fixture
def held(stage: Any, ada: User) -> Plan:
    """A plan with a done step, a waiting step and one that has not started."""
    return work_off(make_plan(ada, act(1), act(2, tool="dangerous"), act(3, dependencies=[2])))


def test_changed_steps_are_printed_once(held):
    screen = Screen()
    lines = screen.show(held).splitlines()
    assert len(lines) == 3 and "Done" in lines[0] and "Waiting for 1 reviewer" in lines[1]
    assert lines[2].endswith(f"/approvals/?item={request_of(held, 2).public_id}")
    assert screen.show(held) == ""


def test_plan_that_missed_its_deadline_says_so(stage, ada):
    plan = work_off(make_plan(ada, act(1, tool="dangerous"), deadline_seconds=60))
    Plan.objects.filter(pk=plan.pk).update(deadline_at=clock.now())
    end_overdue_plans(clock.now())
    screen = Screen()
    screen.progress.end(load_overview(Plan.objects.get(pk=plan.pk)))
    assert screen.text.splitlines()[-1] == "<The plan's deadline passed.>"


def test_end_prints_counts_and_errors(stage, ada):
    """Text from outside cannot control the terminal."""
    stage.acts["cautious"] = act_raising(ValueError("no"))
    plan = work_off(make_plan(ada, act(1, description=HOSTILE), act(2, tool="cautious")))
    screen = Screen()
    screen.show(plan)
    screen.progress.end(load_overview(plan))
    assert "\x1b" not in screen.text and "\u202e" not in screen.text
    assert "<Failed in " in screen.text and ": 1 done, 1 failed." in screen.text
    assert "<Step 2: " in screen.text.splitlines()[-1]
