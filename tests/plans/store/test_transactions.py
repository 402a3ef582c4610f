"""Events and audit entries of plans: numbered without gaps, in order, and atomic with their change."""

from datetime import UTC, datetime

import pytest

from approvals.models import AuditEntry
from catalog.core import clock
from catalog.errors import Conflict
from catalog.signals import record_fact
from plans.actions.control import cancel_plan
from plans.models import Event, Plan
from plans.store import transactions
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, work_off

pytestmark = pytest.mark.db


def audited(plan: Plan) -> list[str]:
    """Return the audit entries of a plan's calls, oldest first."""
    lines = AuditEntry.objects.filter(plan_ref=plan.public_id).order_by("seq")
    return list(lines.values_list("action", flat=True))


def test_the_history_of_a_call(stage, ada):
    """From the plan's creation to its end, one number each."""
    plan = work_off(make_plan(ada, act(1, expected_key="x")))
    assert events_of(plan) == [
        "plan.created", "plan.started", "1 step.started", "1 call.started", "1 call.succeeded", "1 tool.invoked",
        "1 memory.written", "1 step.completed", "plan.completed",
    ]  # fmt: skip
    assert_gapless(plan)
    call = call_of(plan)
    assert plan.events.get(type="call.started").data_json == {"call": call.public_id, "attempt": 1}
    assert plan.events.get(type="memory.written").data_json == {"key": "x"}


def test_deleted_plan_gets_no_events(stage, ada):
    """On both databases the transaction fails at its end."""
    key = make_plan(ada, act(1)).pk + 1
    with pytest.raises(Plan.DoesNotExist), plan_transaction(key, "plan_gone") as tx:
        tx.record("plan.started")
    assert not Event.objects.filter(plan=key).exists()


def test_events_contain_no_arguments_and_no_results(stage, ada, rosa):
    """Nor does the audit log."""
    plan = work_off(make_plan(ada, act(1, "canary", "dangerous"), act(2, "canary"), act(3, "canary", "cautious")))
    approve(plan, rosa)
    work_off(plan)
    assert not Event.objects.filter(data__contains="canary").exists()
    assert not AuditEntry.objects.filter(details__contains="canary").exists()


def test_safe_calls_are_not_audited(stage, ada):
    """They only have events."""
    assert audited(work_off(make_plan(ada, act(1)))) == []


def test_cautious_calls_are_audited(stage, ada):
    """Start and end, also of failed calls."""
    stage.acts["cautious"] = lambda value, context: value or 1 / 0
    plan = work_off(make_plan(ada, act(1, True, "cautious"), act(2, False, "cautious")))
    assert audited(plan) == ["call.started", "call.succeeded", "call.started", "call.failed"]


def test_dangerous_calls_are_audited(stage, ada, rosa):
    """From the request to the end; an entry names the request or the call."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    work_off(plan)
    assert audited(plan) == [
        "approval.opened", "approval.reviewed", "approval.decided", "call.released", "approval.consumed",
        "call.started", "call.succeeded",
    ]  # fmt: skip
    assert AuditEntry.objects.get(action="call.started").object_ref == call_of(plan).public_id


def test_dangerous_call_without_its_audit_entry_does_not_start(stage, ada, rosa, monkeypatch):
    """The approval is not consumed and the call does not run."""
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    approve(plan, rosa)
    monkeypatch.setattr("approvals.audit.log.append_entry", lambda line: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        work_off(plan)
    assert (call_of(plan).status, call_of(plan).approval.status, stage.played) == ("ready", "approved", [])


def test_rollback_leaves_no_gap(stage, ada):
    """The next event takes the number."""
    plan = make_plan(ada, act(1))
    with pytest.raises(Conflict), plan_transaction(plan.pk, plan.public_id) as tx:
        tx.record("step.started", 1)
        raise Conflict("no")
    work_off(plan)
    assert_gapless(plan)


def test_nested_transaction_of_a_plan_joins(stage, ada):
    """Facts join too."""
    plan = work_off(make_plan(ada, act(1, tool="cautious")))
    before = plan.last_seq
    with plan_transaction(plan.pk, plan.public_id) as outer, plan_transaction(plan.pk, plan.public_id) as inner:
        inner.record("plan.paused")
        record_fact("call.failed", call=call_of(plan), level="cautious")
        assert outer is inner
    assert events_of(plan)[before:] == ["plan.paused", "1 call.failed"]
    assert_gapless(plan)


def test_unknown_event_kinds_are_refused(stage, ada):
    plan = make_plan(ada, act(1))
    with pytest.raises(KeyError), plan_transaction(plan.pk, plan.public_id) as tx:
        tx.record("plan.exploded")


def test_listeners_are_notified_after_commit(transactional_db, stage, ada, monkeypatch):
    """With the number of the last event; a failing listener disturbs no other."""
    heard: list[tuple[str, int]] = []
    monkeypatch.setattr(transactions, "_listeners", [lambda ref, seq: 1 / 0, lambda ref, seq: heard.append((ref, seq))])
    plan = work_off(make_plan(ada, act(1)))
    assert heard[-1] == (plan.public_id, plan.last_seq)
    assert [seq for _, seq in heard] == sorted(seq for _, seq in heard)


def test_events_of_a_step_name_its_call(stage, ada, rosa):
    """And its request, if there is one."""
    stage.acts["cautious"] = lambda value, context: 1 / 0
    plan = work_off(make_plan(ada, act(1), act(2, tool="cautious"), act(3, tool="dangerous")))
    data = {kind: plan.events.get(type=f"step.{kind}").data_json for kind in ("completed", "failed", "waiting")}
    assert [data[kind]["call"] for kind in data] == [call_of(plan, number).public_id for number in (1, 2, 3)]
    assert data["waiting"]["approval"] == request_of(plan, 3).public_id
    cancel_plan(plan, by=Requester(ada))
    assert plan.events.get(type="step.cancelled").data_json == {"call": call_of(plan, 3).public_id}


def test_lock_has_the_time_that_was_set(stage, ada):
    plan, long_ago = make_plan(ada, act(1)), datetime(2020, 2, 3, tzinfo=UTC)
    with clock.settable(), clock.at(long_ago), plan_transaction(plan.pk, plan.public_id) as tx:
        assert tx.now == long_ago
