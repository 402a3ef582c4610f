"""A process frozen inside a transaction: others skip its locked rows and continue after the server ends it."""

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from procrastinate.contrib.django import connector_params

from catalog.core import clock
from catalog.core.transactions import is_lock_timeout, short_lock_timeout
from plans.actions.control import pause_plan
from plans.engine import loop
from plans.models import Plan, Step
from plans.store import transactions
from plans.store.requesters import Requester
from tests.builders import act, assert_gapless, call_of, make_plan, step_of
from tests.tools_for_tests import Stage
from tests.waiting import eventually

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]
Freeze = Callable[[Plan], psycopg.Connection]


@pytest.fixture
def freeze(transactional_db: None) -> Iterator[Freeze]:
    """A function that locks a plan like a frozen process, until the server's idle timeout is lowered."""
    opened: list[psycopg.Connection] = []

    def lock(plan: Plan) -> psycopg.Connection:
        frozen = psycopg.connect(**connector_params())
        opened.append(frozen)
        frozen.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        frozen.execute("SELECT 1 FROM plans_plan WHERE id = %s FOR UPDATE", [plan.pk])
        return frozen

    yield lock
    for each in opened:
        each.close()


def is_over(plan: Plan) -> bool:
    """Return whether the plan is completed."""
    return Plan.objects.get(pk=plan.pk).status == "completed"


@pytest.fixture
def stuck(stage: Stage, ada: User) -> Plan:
    """A plan with a step that a lost worker had begun, and more that is ready."""
    plan = make_plan(ada, *(act(number) for number in range(1, 6)))
    loop.claim_work(plan.pk, owner="lost")
    Step.objects.filter(plan=plan, lease_until__isnull=False).update(lease_until=clock.now())
    return plan


@pytest.fixture
def frozen(stuck: Plan, freeze: Freeze, request: pytest.FixtureRequest) -> psycopg.Connection:
    """A process frozen with the stuck plan, before the threads here begin to work."""
    found = freeze(stuck)
    request.getfixturevalue("executor")
    return found


def test_nothing_else_waits_for_it(short_leases, stage, ada, stuck, frozen):
    seen: set[tuple[str, object]] = set()

    def renewed(plan_ref: str) -> bool:
        seen.add((plan_ref, Step.objects.get(plan__public_id=plan_ref, step_id=1).lease_until))
        return sum(ref == plan_ref for ref, _ in seen) > 4

    stage.acts["cautious"] = lambda value, context: eventually(lambda: renewed(context.plan_id), what="renewals")
    others = [make_plan(ada, act(1, tool="cautious"), act(2, dependencies=[1])) for _ in range(2)]
    eventually(lambda: all(map(is_over, others)), what="the other plans' end")
    assert {step_of(other).attempt for other in others} == {1}
    assert (stage.values("safe"), step_of(stuck).attempt) == ([None] * 2, 1)
    frozen.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
    eventually(lambda: is_over(stuck), what="the plan's end")
    assert (step_of(stuck).attempt, step_of(stuck).crashes) == (2, 1)
    assert_gapless(stuck)


def test_only_one_thread_waits_for_a_locked_plan(ada, stuck, frozen, executor):
    other = make_plan(ada, act(1))
    eventually(lambda: not executor._needs_help(stuck.pk), what="a thread that waits")
    eventually(lambda: is_over(other), what="the other plan's end")
    eventually(lambda: executor._needs_help(other.pk), what="a thread that is free for others")


def test_request_for_a_locked_plan_fails_soon(ada, stuck, freeze):
    """Requesters get an error for the locked plan soon, and may retry."""
    freeze(stuck)
    with short_lock_timeout(), pytest.raises(OperationalError) as raised:
        pause_plan(stuck, by=Requester(ada))
    assert is_lock_timeout(raised.value)


def test_finish_waits_for_a_locked_plan(stage, ada, freeze, monkeypatch):
    """A finish retries longer than a frozen process can hold the plan."""
    plan, tries = make_plan(ada, act(1, tool="cautious")), []
    lock = transactions.lock_plan

    def lock_again(plan_pk: int) -> transactions.LockedPlan:
        tries.append(plan_pk)
        return lock(plan_pk)

    monkeypatch.setattr(transactions, "lock_plan", lock_again)
    stage.acts["cautious"] = lambda value, context: give_way(freeze(plan), len(tries) + 1)

    def give_way(frozen: psycopg.Connection, begun: int) -> None:
        threading.Thread(target=end_once, args=[frozen, lambda: len(tries) > begun]).start()

    work = loop.claim_work(plan.pk, owner="tests")
    assert work is not None
    with short_lock_timeout():
        loop.advance(work, loop.TimeSlice("tests"))
    assert (call_of(plan).status, len(stage.played)) == ("completed", 1)


def end_once(frozen: psycopg.Connection, is_time: Callable[[], bool]) -> None:
    """Let the server's idle timeout end the frozen transaction."""
    eventually(is_time, what="a second try")
    frozen.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
