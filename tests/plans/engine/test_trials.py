"""Rows of rules on trial: one for each call and rule, wherever the call is stored or refused."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import PolicyRevision, TrialResult
from catalog.errors import PolicyRefusal
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.actions.slices import prepare_slice
from plans.models import Plan
from plans.store.requesters import Requester
from tests.approvals.factories import ANY, add_policy, grant, let_be_granted
from tests.builders import act, approve, make_plan, reject, work_off
from tests.conftest import forget_what_was_read

pytestmark = pytest.mark.db


@pytest.fixture
def trial(stage: Any) -> PolicyRevision:
    """A policy on trial that would block every call."""
    revision = add_policy(1, effect="deny", message="Only tried.", mode="trial")
    forget_what_was_read()
    return revision


def deny_cautious() -> None:
    PolicyRevision.objects.filter(safety_level="cautious").update(effect="deny", message="Not today.")
    forget_what_was_read()


def call(ada: Any, tool: str) -> Call:
    return create_call(CallOrder(tool, {"value": "x"}), by=Requester(ada))


def plan_of(made: Call) -> Plan:
    return Plan.objects.get(public_id=made.plan_ref)


def rows() -> list[tuple[str | None, str, str]]:
    """Return each row: the tool of its stored call or None, the verdict on trial and the actual one."""
    found = TrialResult.objects.order_by("pk").select_related("call")
    return [(each.call.tool_name if each.call else None, each.would, each.was) for each in found]


@pytest.mark.parametrize(("level", "was"), [("safe", "allow"), ("cautious", "allow"), ("dangerous", "hold")])
def test_direct_call_and_its_start_leave_one_row(trial, ada, rosa, level, was):
    made = call(ada, level)
    plan = work_off(plan_of(made))
    if was == "hold":
        approve(plan, rosa)
        work_off(plan)
    made.refresh_from_db()
    assert (made.status, rows()) == ("completed", [(level, "deny", was)])


def test_call_that_runs_before_it_is_stored_leaves_a_row(executor, trial, ada):
    call(ada, "safe")
    assert rows() == [("safe", "deny", "allow")]


def test_steps_leave_a_row_each(trial, ada):
    plan = work_off(make_plan(ada, act(1), act(2, "x", "cautious", dependencies=[1])))
    assert (plan.status, rows()) == ("completed", [("safe", "deny", "allow"), ("cautious", "deny", "allow")])


def test_early_request_leaves_one_row(trial, ada, rosa):
    plan = make_plan(ada, act(1, "x", "dangerous"), act(2, "y", "dangerous", dependencies=[1]))
    prepare_slice(plan, 2, by=rosa)
    work_off(plan)
    assert rows() == [("dangerous", "deny", "hold")] * 2


def test_call_that_a_grant_lets_start_leaves_a_row(trial, ada, admin, settings, monkeypatch):
    let_be_granted(admin, settings, monkeypatch)
    grant(admin, rows=ANY)
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    assert (plan.status, rows()) == ("completed", [("dangerous", "deny", "hold")])


def test_call_rejected_like_an_earlier_one_leaves_a_row(trial, ada, rosa):
    plan = make_plan(ada, act(1, "x", "dangerous"), act(2, "x", "dangerous"))
    work_off(plan)
    reject(plan, rosa, 1)
    work_off(plan)
    assert rows() == [("dangerous", "deny", "hold")] * 2


def test_refused_calls_leave_a_row_without_call(trial, ada):
    deny_cautious()
    with pytest.raises(PolicyRefusal, match="Not today"):
        call(ada, "cautious")
    work_off(make_plan(ada, act(1, "x", "cautious")))
    assert rows() == [(None, "deny", "deny")] * 2
    assert set(TrialResult.objects.values_list("tool_name", flat=True)) == {"cautious"}


def test_call_refused_after_it_was_stored_leaves_one_row(trial, ada):
    made = call(ada, "cautious")
    deny_cautious()
    work_off(plan_of(made))
    assert rows() == [("cautious", "deny", "allow")]


def test_row_says_nothing_to_the_requester(trial, ada):
    made = call(ada, "safe")
    work_off(plan_of(made))
    made.refresh_from_db()
    assert "Only tried." not in made.response + made.message


def test_rule_that_counts_calls_is_tried_with_its_counts(stage, ada):
    add_policy(1, effect="deny", mode="trial", recent={"count": 2, "seconds": 60, "by": "tool"})
    forget_what_was_read()
    made = [call(ada, "cautious") for _ in range(2)]
    assert [work_off(plan_of(each)).status for each in made] == ["completed", "completed"]
    assert [each.call for each in TrialResult.objects.all()] == [made[1]]


def test_without_a_trial_a_call_needs_no_statement_more(stage, ada):
    call(ada, "safe")
    with CaptureQueriesContext(connection) as queries:
        call(ada, "safe")
    assert not any("trialresult" in each["sql"] for each in queries)
