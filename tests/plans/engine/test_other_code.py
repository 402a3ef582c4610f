"""Approved calls whose tool has other code in this process than in the catalog: left to other processes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest
from catalog.errors import ParameterError
from catalog.inventory import snapshot
from catalog.inventory.sync import sync_registered_tools
from catalog.models import Implementation
from catalog.testing import clean_registry
from catalog.tools import SafetyLevel, Tool
from catalog.tools.registry import register_tool
from plans.actions.call import CallOrder, create_call
from plans.engine import hints, retries
from plans.executor.pool import ExecutorPool
from plans.executor.ticker import Ticker
from plans.models import Event, Plan
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction
from tests.builders import act, approve, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.plans.factories import hurry, say_in_the_catalog


@pytest.fixture
def approved(stage: Any, ada: User, rosa: User) -> Plan:
    """A plan whose dangerous step is approved and has not started."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    approve(plan, rosa)
    return plan


@pytest.fixture
def drifted(approved: Plan) -> str:
    """Give the catalog another digest; return the digest of this process's code."""
    mine = Implementation.objects.get(tool__name="dangerous").digest
    say_in_the_catalog("another")
    return mine


def test_approved_call_is_left_to_other_processes(approved, drifted, stage):
    """Its approval remains valid for a process with the right code."""
    plan = work_off(approved)
    assert (plan.status, step_of(plan).waiting_for, request_of(plan).status) == ("in_progress", "retry", "approved")
    data = Event.objects.get(plan=plan, type="step.retrying").data_json
    assert (data["error"], data["attempt"], data["of"]) == ("drifted", 1, retries.MAX_RELEASES)

    say_in_the_catalog(drifted)
    hurry(plan)

    assert work_off(plan).status == "completed"
    assert (request_of(plan).status, stage.values("dangerous")) == ("consumed", ["x"])


def test_approval_is_invalidated_after_some_attempts(approved, drifted, stage):
    """With a message that says what to do."""
    for _ in range(retries.MAX_RELEASES):
        assert work_off(approved).status == "in_progress"
        hurry(approved)
    plan = work_off(approved)
    assert (plan.status, request_of(plan).status, call_of(plan).status) == ("failed", "invalidated", "cancelled")
    assert "run sync_tools" in step_of(plan).error
    assert stage.values("dangerous") == []


def test_count_of_releases_restarts_after_progress(approved, drifted):
    """A step that another process continued is released again."""
    for _ in range(retries.MAX_RELEASES):
        work_off(approved)
        hurry(approved)
    with plan_transaction(approved.pk, approved.public_id) as tx:
        tx.record("step.retrying", 1, error="worker_lost")
    assert work_off(approved).status == "in_progress"
    assert Event.objects.filter(plan=approved, type="step.retrying").latest("seq").data_json["attempt"] == 1


def test_start_events_do_not_restart_the_count(stage, ada):
    say_in_the_catalog("another", tool="safe")
    plan = make_plan(ada, act(1, "x"))
    for _ in range(retries.MAX_RELEASES):
        assert work_off(plan).status == "in_progress"
        hurry(plan)
    assert work_off(plan).status == "failed"
    assert events_of(plan).count("1 step.started") == retries.MAX_RELEASES + 1


def test_changed_definition_is_left_to_a_process_that_has_it(approved, stage, monkeypatch):
    """Also if this process notices only when it starts the call."""
    say_in_the_catalog("another")
    monkeypatch.setattr(snapshot, "callable_tool", seen_late())
    plan = work_off(approved)
    assert (plan.status, step_of(plan).waiting_for, request_of(plan).status) == ("in_progress", "retry", "approved")


def seen_late() -> Any:
    """Return a look-up of tools that is outdated the first time, like an old snapshot."""
    real, looks = snapshot.callable_tool, []

    def look(name: str) -> Any:
        looks.append(name)
        seen = real(name)
        return replace(seen, drifted=False) if len(looks) == 1 and seen else seen

    return look


def test_process_does_not_reclaim_a_released_plan_at_once(approved, drifted, monkeypatch):
    """The ticker of this process lets others go first."""
    sent: list[int] = []
    monkeypatch.setattr(hints, "deliver_now", sent.append)
    work_off(approved)
    hurry(approved)
    Ticker(ExecutorPool(1))._wake()
    assert sent == []
    monkeypatch.setitem(retries._released_until, approved.pk, 0.0)
    Ticker(ExecutorPool(1))._wake()
    assert sent == [approved.pk]


def test_released_plans_are_forgotten(approved, drifted, monkeypatch):
    """So that the list does not grow."""
    monkeypatch.setattr(retries, "_released_until", {-1: 0.0})
    work_off(approved)
    assert list(retries._released_until) == [approved.pk]


def old_label(text: str) -> str:
    return text


def new_label(text: str, key: str = "") -> str:
    return f"{text} {key}"


@contextmanager
def process(handler: Callable[..., str], level: str, *, syncs: bool = False) -> Iterator[None]:
    """Simulate a process with this code of the tool `label`; one that `syncs` has written it to the catalog."""
    with clean_registry():
        secret = () if handler is old_label else ("key",)
        tool = Tool[Any, Any](
            name="label", description="Label.", handler=handler, safety_level=SafetyLevel(level), secret=secret
        )
        register_tool(tool)
        if syncs:
            sync_registered_tools()
        snapshot.drop_snapshot()
        yield
    snapshot.drop_snapshot()


@pytest.mark.parametrize(("level", "becomes"), [("safe", "completed"), ("dangerous", "held")])
def test_call_of_a_later_definition_is_left_to_others(db, ada, level, becomes):
    """It is checked against the catalog's schema; an argument unknown to this code is stored as a secret."""
    for handler, declared in ((old_label, "safe"), (new_label, level)):
        with process(handler, declared, syncs=True):
            pass
    with process(old_label, "safe"):
        with pytest.raises(ParameterError):
            create_call(CallOrder("label", {"text": "a", "kee": "sesame"}), by=Requester(ada))
        call = create_call(CallOrder("label", {"text": "a", "key": "sesame"}), by=Requester(ada))
        plan = work_off(call.steps.get().plan)
        assert (call.version.number, call.version.safety_level, step_of(plan).waiting_for) == (2, level, "retry")
        assert "sesame" not in call.arguments
    hurry(plan)
    with process(new_label, level):
        work_off(plan)
    assert (call_of(plan).status, ApprovalRequest.objects.count()) == (becomes, int(becomes == "held"))
