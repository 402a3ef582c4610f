"""Races of stops: nothing starts after the commit of a stop, whatever was under way."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import Stop
from approvals.stops.services import Scope, lift_stop, set_stop
from catalog.core import clock
from catalog.errors import Stopped
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.engine import running_first, work
from plans.engine.stops import resume_after_stops
from plans.engine.work import UnstoredCall
from plans.executor import pool
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.builders import act, approve, assert_gapless, make_plan, request_of, work_off
from tests.invariants import assert_invariants
from tests.plans.agents.scripted import agent_plan, calls, make_agent
from tests.plans.factories import act_raising
from tests.races.acts import approve_request, drive
from tests.racing import Act, at_once, staggered
from tests.waiting import eventually

ROUNDS = counts.count(500, 50)
pytestmark = [
    pytest.mark.usefixtures("transactional_db", "quick_retries"),
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.timeout(counts.seconds(3600)),
]
Starts = set[tuple[int, int]]


def starts() -> Starts:
    """Return all starts so far: each call with its attempt."""
    return set(Call.objects.filter(attempt__gt=0).values_list("pk", "attempt"))


def stop(by: User) -> tuple[Stop, Starts]:
    """Stop everything; return the stop and all starts that were committed before it."""
    with transaction.atomic():
        made = set_stop(Scope(Stop.Kind.EVERYTHING), "A race.", by=by)
        return made, starts()


@pytest.fixture
def under_way(script: Any, stage: Any, ada: User, rosa: User) -> Callable[[str], tuple[Plan | None, Act]]:
    """Return what makes a plan whose call is about to start in some way, and the act that starts it."""
    make_agent()

    def prepare(way: str) -> tuple[Plan | None, Act]:
        stage.acts.clear()
        if way == "direct":
            return None, lambda: create_call(CallOrder("cautious", {"value": 1}), by=Requester(ada))
        if way == "agent":
            script.said.clear()
            script.says(calls(("safe", {"value": 1})), "Done.")
            plan = agent_plan(ada)
        elif way == "approval":
            plan = work_off(make_plan(ada, act(1, 7, "dangerous")))

            def approve_and_drive() -> None:
                approve_request(request_of(plan), rosa)
                drive(plan, 0)

            return plan, approve_and_drive
        else:
            plan = make_plan(ada, act(1, 7, "patient"), act(2, 8, dependencies=[1]))
        if way == "retry":
            failing = act_raising(ConnectionError("down"))
            stage.acts["patient"] = lambda *given: failing(*given) if given[1].attempt == 1 else 7
        return plan, partial(drive, plan, 0)

    return prepare


@pytest.mark.parametrize("way", ["claim", "approval", "retry", "agent", "direct"])
def test_nothing_starts_after_the_commit(way, under_way, rosa, admin, record_property):
    refused = 0
    for number in range(ROUNDS):
        plan, start = under_way(way)
        started, (made, before) = at_once(*staggered([[start, partial(stop, admin)]], counts.seed() + number)[0])
        assert starts() == before
        if plan is not None:
            drive(plan, 1)
            assert starts() == before
        refused += isinstance(started, Stopped)
        lift_stop(made, "The race is over.", by=admin)
        resume_after_stops(clock.now())
        if plan is None:
            continue
        work_off(plan)
        if way == "approval" and request_of(plan).status == "pending":
            approve(plan, rosa)
            work_off(plan)
        assert Plan.objects.get(pk=plan.pk).status == "completed"
        assert_gapless(plan)
    counts.report(record_property, f"stop against {way}", rounds=ROUNDS, refused=refused)
    assert_invariants()


def test_no_safe_call_begins_after_the_commit(executor, stage, admin, monkeypatch, record_property):
    """A safe call begins without a transaction: nothing lies between its last look at stops and its handler."""
    order, committing, may_begin = list[str](), threading.Lock(), running_first.may_begin

    def look(unstored_call: UnstoredCall) -> bool:
        with committing:
            found = may_begin(unstored_call)
            order.append("free" if found else "stopped")
            return found

    def commit() -> Stop:
        with committing:
            made = set_stop(Scope(Stop.Kind.EVERYTHING), "A race.", by=admin)
            order.append("stop")
            return made

    monkeypatch.setattr(work, "STORED_AFTER_SECONDS", 60.0)
    monkeypatch.setattr(pool, "may_begin", look)
    stage.acts["safe"] = lambda *_: order.append("begin")
    call = partial(create_call, CallOrder("safe", {"value": 1}), by=Requester(admin))
    looks = late = refused = 0
    for number in range(ROUNDS):
        eventually(lambda: not executor.busy_threads(), what="an idle thread")
        order.clear()
        answer, made = at_once(*staggered([[call, commit]], counts.seed() + number)[0])
        assert ("begin" in order) == isinstance(answer, Call), order
        if "free" in order or "stopped" in order:  # a thread was idle
            assert ("free" in order) == ("begin" in order) == ("free" in order[: order.index("stop")]), order
            looks += 1
        late += "stopped" in order
        refused += isinstance(answer, Stopped)
        lift_stop(made, "The race is over.", by=admin)
    assert looks
    counts.report(record_property, "stop against a safe call", rounds=ROUNDS, looks=looks, late=late, refused=refused)
    assert_invariants()
