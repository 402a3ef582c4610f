"""Tests of waiting statuses in the list of plans and the sidebar."""

import pytest

from catalog.ui.labels import status_badge
from plans.models import Plan, Step
from plans.store.selectors import running_plans
from plans.web.plan_list import first_page_rows
from tests.builders import make_plan, step, work_off

pytestmark = pytest.mark.django_db


def awaiting(plan: Plan, **each: str) -> None:
    """Let the steps wait for the given things."""
    for step_id, waiting_for in enumerate(each.values(), 1):
        rows = Step.objects.filter(plan=plan, step_id=step_id)
        rows.update(status="in_progress", waiting_for=waiting_for, ready_at=None)


def said_of(ada) -> tuple[str, str]:
    """Return the status of the plan in the list and the sidebar."""
    listed = first_page_rows(ada)[0].words[0].label
    shown = running_plans(ada)[0]
    return listed, status_badge(shown["status"], shown["waiting_for"]).label


def test_waiting_question_is_shown(stage, ada):
    work_off(make_plan(ada, step(1, "ask_user", parameters={"question": "Which one?"})))
    assert said_of(ada) == ("Waiting for an answer",) * 2


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("approval", "", "Waiting for approval"),
        ("approval", "input", "Waiting for an answer"),
        ("outcome", "input", "Outcome unknown"),
        ("retry", "calls", "Running"),
    ],
)
def test_status_equals_that_of_plan_page(stage, ada, first, second, said):
    plan = make_plan(ada, step(1), step(2))
    Plan.objects.filter(pk=plan.pk).update(status="in_progress")
    awaiting(plan, first=first, second=second)
    assert said_of(ada) == (said, said)


def test_row_names_the_step_of_its_status(stage, ada):
    plan = make_plan(ada, step(1), step(2, description="Which one?"), step(3))
    Plan.objects.filter(pk=plan.pk).update(status="in_progress")
    assert first_page_rows(ada)[0].waits == ""
    awaiting(plan, first="approval", second="input", third="approval")
    assert first_page_rows(ada)[0].waits == "Step 2 waits for an answer: Which one? (and 2 more)"
