"""Tests of stops where calls start: whatever the way there, nothing in scope starts, and all goes on afterwards."""

import asyncio
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from mcp_types import TextContent

from approvals.models import Stop
from approvals.reviews.edits import check_edit
from approvals.stops.services import Scope, cancel_under, lift_stop, parse_scope, set_stop
from catalog.core import clock
from catalog.errors import Stopped
from catalog.inventory import snapshot
from catalog.inventory.overrides import apply_overrides
from catalog.models import ApiToken, Call
from plans.actions.call import CallOrder, create_call, rehearse
from plans.actions.retry import retry_plan
from plans.actions.skip import skip_step
from plans.actions.slices import prepare_slice
from plans.engine import loop, stops
from plans.engine.holding import NOT_PREVIEWED
from plans.engine.loop import TimeSlice
from plans.engine.work import ApprovedCall, HeldCall, RunningCall
from plans.mcp.results import refusal
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.invariants import assert_invariants
from tests.plans.agents.scripted import agent_plan, calls, make_agent
from tests.plans.factories import act_raising
from tests.waiting import eventually

EVERYTHING = Scope(Stop.Kind.EVERYTHING)
REASON = "Too many mails."
pytestmark = pytest.mark.db


@pytest.fixture
def stopped(db, admin):
    return set_stop(EVERYTHING, REASON, by=admin)


def lift(stop, admin) -> None:
    lift_stop(stop, "Over.", by=admin)
    stops.resume_after_stops(clock.now())


def waits(plan, step_id=1) -> bool:
    step = step_of(plan, step_id)
    return (step.status, step.waiting_for, step.ready_at, step.lease_until) == ("in_progress", "stop", None, None)


@pytest.mark.parametrize("tool", ["safe", "cautious", "dangerous"])
def test_step_waits_until_the_stop_is_lifted(stage, ada, rosa, admin, tool):
    stop = set_stop(EVERYTHING, REASON, by=admin)
    plan = make_plan(ada, act(1, 7, tool=tool), act(2, 8, dependencies=[1]))
    work_off(plan)
    assert waits(plan)
    assert not Call.objects.exists()
    assert events_of(plan)[-1] == "1 step.waiting"
    assert stage.played == []
    assert_invariants()
    lift(stop, admin)
    work_off(plan)
    if tool == "dangerous":
        approve(plan, rosa)
        work_off(plan)
    assert Plan.objects.get(pk=plan.pk).status == "completed"
    assert [value for _, value, _ in stage.played] == [7, 8]
    assert_gapless(plan)
    assert_invariants()


def test_step_reads_stops_with_its_claim(stage, ada, admin):
    """A lifted stop whose time is counted costs nothing either; until then, the deadline is looked up."""
    set_stop(EVERYTHING, REASON, by=admin)
    lift(Stop.objects.get(), admin)
    plan = make_plan(ada, act(1), act(2, dependencies=[1]), deadline_seconds=600)
    with CaptureQueriesContext(connection) as queries:
        work_off(plan)
    assert stage.played
    reads = [each["sql"] for each in queries if "approvals_stop" in each["sql"]]
    assert reads
    assert all(sql.startswith("UPDATE plans_step") for sql in reads)


@pytest.mark.parametrize("tool", ["safe", "dangerous"])
def test_direct_call_is_refused_and_not_stored(stage, ada, stopped, tool):
    stage.previews["dangerous"] = act_raising(AssertionError("no preview is computed"))
    order = CallOrder(tool, {"value": 1})
    with pytest.raises(Stopped, match=r"^Stopped: Too many mails\. Do not retry\.$"):
        create_call(order, by=Requester(ada))
    with pytest.raises(Stopped):
        rehearse("dangerous", {"value": 1}, by=Requester(ada))
    assert not Call.objects.exists()
    assert not Plan.objects.exists()
    assert stage.played == []


def test_approved_call_keeps_its_approval_and_starts_afterwards(stage, ada, rosa, admin):
    plan = work_off(make_plan(ada, act(1, 7, tool="dangerous")))
    stop = set_stop(EVERYTHING, REASON, by=admin)
    assert approve(plan, rosa).status == "approved"
    work_off(plan)
    assert waits(plan)
    assert request_of(plan).status == "approved"
    lift(stop, admin)
    assert work_off(plan).status == "completed"
    assert stage.values("dangerous") == [7]


def test_no_further_attempt_is_made(stage, ada, admin, quick_retries):
    stage.acts["patient"] = act_raising(ConnectionError("down"))
    plan = make_plan(ada, act(1, 7, tool="patient"))
    work = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(work, RunningCall)
    stop = set_stop(EVERYTHING, REASON, by=admin)
    loop.advance(work, TimeSlice("tests", steps_left=1))
    work_off(plan)
    assert waits(plan)
    assert len(stage.values("patient")) == 1
    assert call_of(plan).status == "ready"
    stage.acts.clear()
    lift(stop, admin)
    assert work_off(plan).status == "completed"
    assert call_of(plan).attempt == 2


def test_stop_during_a_preview_leaves_the_call_unstarted(stage, ada, rosa, admin):
    """An approval that is about to be used is not consumed."""
    plan = work_off(make_plan(ada, act(1, 7, tool="dangerous")))
    approve(plan, rosa)
    work = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(work, ApprovedCall)
    stage.previews["dangerous"] = lambda value, context: set_stop(EVERYTHING, REASON, by=admin)
    loop.advance(work, TimeSlice("tests", steps_left=1))
    assert waits(plan)
    assert request_of(plan).status == "approved"
    assert stage.values("dangerous") == []
    assert_invariants()


def test_no_preview_of_a_claimed_call_is_computed(stage, ada, admin):
    plan = make_plan(ada, act(1, 7, tool="dangerous"))
    work = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(work, HeldCall)
    stage.previews["dangerous"] = act_raising(AssertionError("no preview is computed"))
    set_stop(EVERYTHING, REASON, by=admin)
    loop.advance(work, TimeSlice("tests", steps_left=1))
    assert waits(plan)


def test_edit_of_a_waiting_request_computes_no_preview(stage, ada, admin):
    plan = work_off(make_plan(ada, act(1, 7, tool="dangerous")))
    set_stop(EVERYTHING, REASON, by=admin)
    stage.previews["dangerous"] = act_raising(AssertionError("no preview is computed"))
    edit = check_edit(request_of(plan), {"value": 8})
    assert edit.preview is not None
    assert edit.preview["summary"] == f"{NOT_PREVIEWED} {REASON}"


@pytest.fixture
def people(ada, ben, admin):
    return ada, ben, admin


@pytest.mark.parametrize("kind", ["tool", "requester", "token", "source", "category"])
def test_stop_leaves_others_alone(stage, people, kind):
    ada, ben, admin = people
    token = ApiToken.objects.create(name="bot", user=ben, kind="agent", expires_at=clock.now() + timedelta(days=1))
    target = snapshot.callable_tool("safe")
    assert target is not None
    named = {"tool": "safe", "requester": "ben", "token": token.pk, "source": target.source, "category": "own"}
    apply_overrides("safe", {"categories": ["own"]}, by=admin, reason="A test.")
    snapshot.drop_snapshot()
    set_stop(parse_scope({kind: named[kind]}), REASON, by=admin)
    with pytest.raises(Stopped):
        create_call(CallOrder("safe", {}), by=Requester(ben, token))
    tool, by = ("safe", Requester(ada)) if kind in ("requester", "token") else ("render_text", Requester(ben, token))
    create_call(CallOrder(tool, {"template": "x", "values": {}} if tool != "safe" else {}), by=by)


def test_step_can_be_skipped_while_it_waits(stage, ada, stopped):
    plan = work_off(make_plan(ada, act(1, 7)))
    skip_step(plan, 1, reason="Not needed.", by=Requester(ada))
    assert step_of(plan).skipped
    assert plan_status(plan) == "completed"


def plan_status(plan) -> str:
    return Plan.objects.values_list("status", flat=True).get(pk=plan.pk)


def test_stop_of_an_agent_holds_up_its_turns_and_calls_alone(script, stage, ada, admin):
    make_agent("ann")
    make_agent("bob")
    script.says(calls(("safe", {"value": 1})), "Done.")
    mine, other = agent_plan(ada), make_plan(ada, act(1, 2))
    stop = set_stop(parse_scope({"agent": "ann"}), REASON, by=admin)
    work_off(mine)
    assert waits(mine)
    assert script.read == []
    assert work_off(other).status == "completed"
    lift(stop, admin)
    work = loop.claim_work(mine.pk, owner="tests")  # the turn of the agent's model
    assert work is None or isinstance(work, RunningCall)
    stop = set_stop(parse_scope({"agent": "ann"}), REASON, by=admin)
    while work is not None:
        work = loop.advance(work, TimeSlice("tests", until=float("inf"), steps_left=1000))
    work_off(mine)
    assert stage.values("safe") == [2]
    lift(stop, admin)
    assert work_off(mine).status == "completed"
    assert stage.values("safe") == [2, 1]


def test_step_approved_ahead_has_no_preview_and_says_so(stage, ada, rosa, stopped):
    plan = make_plan(ada, act(1, 7), act(2, 8, tool="dangerous", dependencies=[1]))
    stage.previews["dangerous"] = act_raising(AssertionError("no preview is computed"))
    [request] = prepare_slice(plan, 1, by=rosa).requests
    preview = request.rounds.get().preview_json
    assert preview is not None
    assert preview["summary"] == f"{NOT_PREVIEWED} {REASON}"


def test_agent_reads_the_reason_over_mcp(stage, ada, stopped, caplog):
    with pytest.raises(Stopped) as refused:
        create_call(CallOrder("safe", {}), by=Requester(ada))
    result = refusal(refused.value)
    assert result is not None
    assert result.is_error
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text == "Stopped: Too many mails. Do not retry."
    assert caplog.records == []


@pytest.mark.usefixtures("transactional_db", "executor")
def test_what_runs_is_asked_to_cancel_and_its_step_can_be_retried(stage, ada, admin):
    begun = threading.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.sleep(600)

    stage.acts |= {"safe_async": lambda *_: hang(), "cautious_async": lambda *_: hang()}
    harmless = make_plan(ada, act(1, tool="safe_async"))
    assert begun.wait(60)
    begun.clear()
    unknown = make_plan(ada, act(1, tool="cautious_async"))
    assert begun.wait(60)
    stop = set_stop(EVERYTHING, REASON, by=admin)
    assert [step_of(each).status for each in (harmless, unknown)] == ["in_progress"] * 2
    cancel_under(stop, "Now.", by=admin)
    eventually(lambda: step_of(harmless).status == "failed", what="the end of the step")
    eventually(lambda: step_of(unknown).waiting_for == "outcome", what="the unknown outcome")
    assert call_of(harmless).status == "cancelled"
    lift_stop(stop, "Over.", by=admin)
    stage.acts.clear()
    retry_plan(harmless, by=Requester(ada))
    eventually(lambda: plan_status(harmless) == "completed", what="the retried plan")
