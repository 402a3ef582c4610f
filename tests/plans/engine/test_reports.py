"""Log lines, spans and metrics of the engine: after commit, with ids, at the right level."""

import logging

import pytest
from django.db import transaction
from structlog.contextvars import get_contextvars

from catalog.core import tracing
from plans.engine import loop, reports
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Step
from tests.builders import act, call_of, make_plan, work_off
from tests.plans.factories import claimed_and_lost, started_and_lost, take_back


@pytest.fixture
def logged(caplog):
    """Return a function that returns the log records about calls: message, level and facts."""
    caplog.set_level(logging.DEBUG, "toolgate")

    def lines(words: str = "call ended") -> list[tuple[str, dict[str, object]]]:
        found = [record for record in caplog.records if record.name == "toolgate.calls" and record.message == words]
        return [(record.levelname, record.facts) for record in found]

    return lines


@pytest.mark.django_db(transaction=True)
def test_end_of_a_call_is_logged_with_its_ids(stage, ada, logged):
    """At debug level for safe calls."""
    plan = work_off(make_plan(ada, act(1), act(2, tool="cautious")))
    (quiet, safe), (loud, cautious) = logged()
    assert (quiet, loud) == ("DEBUG", "INFO")
    assert isinstance(safe.pop("duration_ms"), float)
    assert safe == {
        "plan": plan.public_id, "step": 1, "call": call_of(plan).public_id, "tool": "safe", "status": "completed",
        "safety": "safe", "attempt": 1,
    }  # fmt: skip
    assert (cautious["step"], cautious["safety"]) == (2, "cautious")


@pytest.mark.django_db(transaction=True)
def test_nothing_is_logged_for_a_rollback(stage, ada, logged):
    """The finish is retried and logged once."""
    run = loop.claim_work(make_plan(ada, act(1)).pk, owner="tests")
    assert isinstance(run, RunningCall)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        reports.report_attempt_ended(run, "completed")
        raise ZeroDivisionError
    assert logged() == []


@pytest.mark.django_db(transaction=True)
def test_a_retry_is_a_warning(stage, ada, logged):
    """The second attempt has its own line."""
    stage.acts["patient"] = lambda value, context: 1 / 0 if context.attempt == 1 else value
    plan = make_plan(ada, act(1, tool="patient"))
    work_off(plan)
    Step.objects.filter(plan=plan).update(ready_at=plan.created_at)
    work_off(plan)
    assert [(level, line["status"], line["attempt"]) for level, line in logged()] == [
        ("WARNING", "retrying", 1), ("DEBUG", "completed", 2),
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_lost_lease_and_an_unknown_outcome_are_warnings(stage, ada, rosa, logged):
    """With the worker, the step and the call."""
    plan = make_plan(ada, act(1, tool="dangerous"))
    run = started_and_lost(plan, rosa)
    take_back()
    [(level, lost)], [(_, unknown)] = logged("lease lost"), logged("outcome unknown")
    assert (level, lost["plan"], lost["step"], lost["worker"]) == ("WARNING", plan.public_id, 1, "lost")
    assert (unknown["call"], unknown["safety"]) == (run.call.public_id, "dangerous")


@pytest.mark.django_db(transaction=True)
def test_late_result_is_a_warning(stage, ada, logged):
    run = claimed_and_lost(make_plan(ada, act(1)))
    take_back()
    assert isinstance(run, RunningCall)
    loop.advance(run, TimeSlice("lost"))
    assert [(level, line["status"]) for level, line in logged()] == [("WARNING", "late")]


@pytest.mark.django_db(transaction=True)
def test_log_lines_of_a_tool_have_its_ids(stage, ada):
    """Also of async tools; the trace is that of the request that created the plan."""
    seen = []
    stage.acts |= dict.fromkeys(
        ("safe", "safe_async"), lambda value, context: seen.append((get_contextvars(), context))
    )
    with tracing.remote_parent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
        plan = make_plan(ada, act(1), act(2, tool="safe_async"))
    work_off(plan)
    assert [ids["step"] for ids, _ in seen] == [1, 2]
    for ids, context in seen:
        assert ids == {
            "plan": plan.public_id, "step": context.step_id, "tool": ids["tool"], "call": context.call_id,
            "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        }  # fmt: skip
        assert context.trace_id == ids["trace_id"]
    assert get_contextvars() == {}


@pytest.mark.django_db(transaction=True)
def test_plan_without_a_trace_begins_one(stage, ada):
    """The same for all of its steps."""
    seen = []
    stage.acts["safe"] = lambda value, context: seen.append(context.trace_id)
    work_off(make_plan(ada, act(1), act(2)))
    work_off(make_plan(ada, act(1)))
    assert (len(seen[0]), seen[0] == seen[1], seen[1] == seen[2]) == (32, True, False)
