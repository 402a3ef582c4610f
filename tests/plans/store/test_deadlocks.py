"""Retry after deadlocks: the whole transaction is repeated, and nothing else."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction

from approvals.audit import log
from approvals.models import AuditEntry
from approvals.requests import deadlines, held_calls, lifecycle
from catalog.core import clock
from catalog.errors import EffectUnknown
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.actions.change import PlanChange, change_plan
from plans.actions.control import cancel_plan, pause_plan, resume_plan
from plans.actions.create import start_plan
from plans.actions.retry import retry_plan
from plans.actions.settle import Settlement, settle_outcome
from plans.actions.skip import skip_step
from plans.engine import finishing, loop, recovery
from plans.engine.loop import TimeSlice
from plans.models import Plan, Step
from plans.store import statements, transactions
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.plans.factories import act_raising
from tests.tools_for_tests import Stage
from tests.waiting import blocks_someone, eventually

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]
RAISE = "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40P01'; END $$"


class Deadlock(Exception):
    """The error of PostgreSQL's driver, for tests on SQLite."""

    sqlstate = "40P01"


def lose_once(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    """Let the transaction end in a deadlock after this function was first called in it; return the calls."""
    right, done = getattr(module, name), []

    def do(*args: Any, **kwargs: Any) -> Any:
        found = right(*args, **kwargs)
        done.append(name)
        if len(done) > 1:
            return found
        if connection.vendor == "postgresql":
            connection.cursor().execute(RAISE)
        raise OperationalError from Deadlock()

    monkeypatch.setattr(module, name, do)
    return done


@pytest.mark.parametrize(
    "point",
    [
        *((statements, name) for name in ("claim_next", "insert_step_call", "end_step", "write_memory")),
        *((statements, name) for name in ("release_step", "renew_lease", "start_call", "insert_call")),
        *((finishing, "settle_plan"), (log, "append_entry"), (held_calls, "release_call")),
    ],
)
def test_every_step_is_taken_once(stage, ada, rosa, monkeypatch, point):
    """Handlers run once, and the history has no duplicates."""
    done = lose_once(monkeypatch, *point)
    plan = make_plan(ada, act(1, tool="keeping"), act(2, tool="dangerous", dependencies=[1]))
    work_off(plan)
    approve(plan, rosa, 2)
    assert work_off(plan).status == "completed"
    assert (len(done) > 1, stage.values("keeping"), stage.values("dangerous")) == (True, [None], [None])
    assert [call_of(plan, number).attempt for number in (1, 2)] == [1, 1]
    assert len(set(events_of(plan))) == len(events_of(plan)) - 1  # the second step starts, waits, and starts again
    assert_gapless(plan)


def test_a_lost_step_is_taken_back_once(stage, ada, monkeypatch):
    """It counts as lost once."""
    plan = make_plan(ada, act(1))
    loop.claim_work(plan.pk, owner="lost")
    Step.objects.update(lease_until=clock.now())
    done = lose_once(monkeypatch, statements, "reclaim_step")
    assert recovery.take_back_lost_steps(clock.now()) == 1
    assert (len(done), step_of(plan).crashes, call_of(plan).status) == (2, 1, "ready")


@pytest.mark.parametrize("joins", [True, False])
def test_a_direct_call_is_stored_once(stage, ada, monkeypatch, joins):
    """On its own and in a plan."""
    ref = make_plan(ada, act(1, tool="dangerous")).public_id if joins else None
    done = lose_once(monkeypatch, statements, "insert_call")
    call = create_call(CallOrder("safe", {"value": "x"}, plan_ref=ref), by=Requester(ada))
    assert (len(done), Call.objects.get().pk) == (2, call.pk)


def going(stage: Stage, ada: User) -> Plan:
    """A plan in progress."""
    return make_plan(ada, act(1), act(2, dependencies=[1]))


def unstarted(stage: Stage, ada: User) -> Plan:
    """A plan that has not started."""
    return make_plan(ada, act(1), act(2, dependencies=[1]), start=False)


def paused(stage: Stage, ada: User) -> Plan:
    """A plan that is paused."""
    plan = going(stage, ada)
    pause_plan(plan, by=Requester(ada))
    return plan


def held(stage: Stage, ada: User) -> Plan:
    """A plan whose step waits for approval."""
    return work_off(make_plan(ada, act(1, tool="dangerous")))


def failed(stage: Stage, ada: User) -> Plan:
    """A plan whose first step has failed."""
    stage.acts["safe"] = lambda value, context: 1 / 0
    return work_off(going(stage, ada))


def unknown(stage: Stage, ada: User) -> Plan:
    """A plan whose first call has an unknown outcome."""
    stage.acts["cautious"] = act_raising(EffectUnknown("Lost."))
    return work_off(make_plan(ada, act(1, tool="cautious"), act(2, dependencies=[1])))


def claimed(plan: Plan) -> Any:
    """Claim the plan's next step."""
    return loop.claim_work(plan.pk, owner="stopping")


@pytest.mark.parametrize(
    ("prepare", "do"),
    [
        (unstarted, lambda plan, by: start_plan(plan, by=by)),
        (unstarted, lambda plan, by: change_plan(plan, PlanChange(goal="Better", add=[act(3)]), by=by)),
        (going, lambda plan, by: pause_plan(plan, by=by)),
        (going, lambda plan, by: skip_step(plan, 1, "Not needed.", by=by)),
        (going, lambda plan, by: cancel_plan(plan, by=by)),
        (going, lambda plan, by: recovery.hand_back(claimed(plan))),
        (paused, lambda plan, by: resume_plan(plan, by=by)),
        (held, lambda plan, by: lifecycle.withdraw(request_of(plan), by=by.user, reason="")),
        (held, lambda plan, by: cancel_plan(plan, by=by)),
        (held, lambda plan, by: deadlines.expire_if_due(request_of(plan), clock.now() + timedelta(days=9))),
        (failed, lambda plan, by: retry_plan(plan, by=by)),
        (unknown, lambda plan, by: settle_outcome(plan, 1, settlement=Settlement("happened", "x"), by=by)),
    ],
)
def test_actions_of_people_are_done_once(stage, ada, monkeypatch, prepare, do):
    """The plan is as it would be without the deadlock, and no error is shown."""
    twin, plan = prepare(stage, ada), prepare(stage, ada)
    do(twin, Requester(ada))
    done = lose_once(monkeypatch, transactions, "write_events")
    do(plan, Requester(ada))
    assert (len(done) > 1, events_of(plan)) == (True, events_of(twin))
    for each in (twin, plan):
        each.refresh_from_db()
        assert_gapless(each)
    assert (plan.status, plan.goal, step_of(plan).status) == (twin.status, twin.goal, step_of(twin).status)


def test_a_plan_is_created_once(stage, ada, monkeypatch):
    done = lose_once(monkeypatch, transactions, "write_events")
    plan = going(stage, ada)
    assert (len(done), Plan.objects.get().pk, plan.steps.count()) == (2, plan.pk, 2)


@pytest.fixture
def another_order():
    """Lock the audit head and then a plan, in another thread."""
    ended = threading.Event()

    def run(plan: Plan, holds: threading.Event) -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM approvals_instance FOR UPDATE")
                holds.set()
                eventually(blocks_someone, what="the finish's wait")
                cursor.execute("UPDATE plans_plan SET goal = goal WHERE id = %s", [plan.pk])
        except OperationalError:
            pass  # PostgreSQL chose this one
        finally:
            connection.close()
            ended.set()

    def start(plan: Plan) -> None:
        holds = threading.Event()
        threading.Thread(target=run, args=[plan, holds]).start()
        assert holds.wait(60)

    yield start
    assert ended.wait(60)


@pytest.mark.service
def test_real_deadlock_loses_no_result(stage, ada, another_order):
    """One transaction has the audit head and wants the plan; the finish has the plan and wants the head."""
    plan = make_plan(ada, act(1, "x", "cautious"))
    work = loop.claim_work(plan.pk, owner="tests")
    assert work is not None
    another_order(plan)
    assert loop.advance(work, TimeSlice("tests")) is None
    assert (call_of(plan).status, stage.values("cautious")) == ("completed", ["x"])
    assert AuditEntry.objects.filter(action="call.succeeded").count() == 1
    assert_gapless(plan)
