"""Attempts that return after they were superseded change nothing, also in the workspace."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, AuditEntry
from catalog.context import ToolContext
from catalog.core import clock
from catalog.core.workspace_files import Filesystem
from catalog.errors import Conflict
from catalog.models import Call
from catalog.results import Preview
from plans.actions.settle import Settlement, settle_outcome
from plans.engine import loop, recovery
from plans.engine.loop import TimeSlice
from plans.engine.work import ApprovedCall, RateLimitedCall, RunningCall, StaleApproval, WorkItem
from plans.executor.pool import ExecutorPool
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.approvals.factories import add_policy
from tests.builders import act, approve, assert_gapless, call_of, make_plan, step_of, work_off
from tests.conftest import forget_what_was_read
from tests.plans.factories import claimed_and_lost, take_back
from tests.tools_for_tests import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.db


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event for which first attempts wait; it is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def writing(then: Callable[[ToolContext], Any]) -> Callable[[Any, ToolContext], Any]:
    """Return a handler that writes the same file in every attempt."""

    def write(value: Any, context: ToolContext) -> Any:
        context.resources.get(Filesystem).write_text("made/x.txt", "x")
        return then(context)

    return write


@pytest.mark.usefixtures("quick_retries")
def test_late_handler_keeps_the_changes_of_the_next_attempt(executor, stage, ada, gate, workspace):
    """Both wrote the same file."""
    stage.acts["hasty_patient"] = writing(lambda context: context.attempt > 1 or gate.wait(60))
    plan = make_plan(ada, act(1, tool="hasty_patient"))
    eventually(lambda: Plan.objects.get(pk=plan.pk).completed_at, what="the plan's end")
    assert (call_of(plan).status, call_of(plan).attempt) == ("completed", 2)
    gate.set()
    evidence = json.loads(eventually(lambda: call_of(plan).late_evidence, what="the late result"))
    assert (evidence["attempt"], evidence["not_restored"], "restored" in evidence) == (1, ["Filesystem"], False)
    assert (workspace / "made" / "x.txt").read_text() == "x"
    assert_gapless(plan)


@pytest.mark.parametrize("tool", ["safe", "cautious_patient"])
def test_delayed_worker_keeps_the_changes_of_its_successor(stage, ada, workspace, tool):
    """Its attempt fails after the call was completed."""

    def sleep_past_the_lease(context: ToolContext) -> str:
        if context.attempt == 1:
            Step.objects.update(lease_until=clock.now() - timedelta(seconds=1))
            recovery.take_back_lost_steps(clock.now())
            work_off(plan)
            raise RuntimeError
        return "done"

    stage.acts[tool] = writing(sleep_past_the_lease)
    plan = make_plan(ada, act(1, tool=tool))
    run = loop.claim_work(plan.pk, owner="lost")
    assert isinstance(run, RunningCall)
    loop.advance(run, TimeSlice("lost"))
    assert (call_of(plan).status, call_of(plan).attempt) == ("completed", 2)
    assert json.loads(call_of(plan).late_evidence)["not_restored"] == ["Filesystem"]
    assert (workspace / "made" / "x.txt").read_text() == "x"


@pytest.fixture
def unknown(executor: ExecutorPool, stage: Stage, ada: User, rosa: User, gate: threading.Event) -> Plan:
    """A plan whose approved dangerous call wrote its file and hangs past its deadline."""
    stage.acts["dangerous_hasty"] = writing(lambda context: gate.wait(60))
    plan = make_plan(ada, act(1, tool="dangerous_hasty"))
    eventually(lambda: step_of(plan).waiting_for == "approval", what="the request")
    approve(plan, rosa)
    eventually(lambda: step_of(plan).waiting_for == "outcome", what="the unknown outcome")
    return plan


@pytest.mark.parametrize("verdict", ["happened", "did_not_happen", "request_again", None])
def test_late_handler_undoes_nothing_of_a_settled_call(unknown, gate, workspace, verdict):
    """Before it is settled, late changes are undone."""
    call = call_of(unknown)
    if verdict:
        settle_outcome(unknown, 1, settlement=Settlement(verdict, comment="Seen."), by=Requester(unknown.author))
    gate.set()
    eventually(lambda: Call.objects.get(pk=call.pk).late_evidence, what="the late result")
    call.refresh_from_db()
    evidence = json.loads(call.late_evidence)
    assert (workspace / "made" / "x.txt").exists() == bool(verdict)
    assert evidence.get("restored" if verdict is None else "not_restored") == (["Filesystem"] if verdict else True)
    assert call.came_back_at is not None


def deny(tool: str) -> None:
    """Let a policy refuse the calls of a tool from now on."""
    add_policy(1, tool=tool, effect="deny")
    forget_what_was_read()


def approved(ada: User, rosa: User) -> Plan:
    """A plan whose dangerous call is approved and has not started."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    approve(plan, rosa)
    return plan


def take_over(plan: Plan) -> None:
    """Let another worker claim the step of a lost one."""
    take_back()
    assert loop.claim_work(plan.pk, owner="next") is not None


def assert_writes_nothing(work: WorkItem) -> None:
    """Check that a worker whose step was taken over leaves no trace when it goes on."""
    rows = (Plan, Step, Call, ApprovalRequest, AuditEntry)
    before = [list(model.objects.order_by("pk").values()) for model in rows]
    with pytest.raises(Conflict, match="Another worker took over this step"):
        loop.advance(work, TimeSlice("lost"))
    assert [list(model.objects.order_by("pk").values()) for model in rows] == before


def test_worker_without_lease_does_not_expire_an_approval(stage, ada, rosa):
    plan = approved(ada, rosa)
    work = claimed_and_lost(plan)
    assert isinstance(work, ApprovedCall)
    take_over(plan)
    ApprovalRequest.objects.update(not_after=clock.now())
    assert_writes_nothing(work)


def test_worker_without_lease_does_not_invalidate_an_approval(stage, ada, rosa):
    """Although a policy refuses the call that would be requested anew."""
    plan = approved(ada, rosa)
    stage.previews["dangerous"] = lambda value, context: Preview("Do x", "text", state_token="another")
    work = loop.advance(claimed_and_lost(plan), TimeSlice("lost"))
    assert isinstance(work, StaleApproval)
    Step.objects.filter(plan=plan).update(lease_until=clock.now())
    take_over(plan)
    deny("dangerous")
    assert_writes_nothing(work)


def test_worker_without_lease_records_no_refusal_of_a_counted_call(stage, ada):
    plan = make_plan(ada, act(1, "x", "limited"))
    work = claimed_and_lost(plan)
    assert isinstance(work, RateLimitedCall)
    take_over(plan)
    deny("limited")
    assert_writes_nothing(work)
