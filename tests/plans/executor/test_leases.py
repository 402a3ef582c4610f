"""Lease renewal: on its own thread, in one statement that waits for no lock."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from catalog.core import clock
from plans.engine import loop, recovery
from plans.executor import leases
from plans.models import Plan
from tests.builders import act, make_plan, step_of
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]
UNTIL = clock.now() + timedelta(days=1)


def claimed(plan: Plan, owner: str) -> int:
    """Claim the plan's next step; return its key."""
    work = loop.claim_work(plan.pk, owner=owner)
    assert work is not None
    return work.step.pk


def renew(steps: list[int]) -> None:
    """Renew the leases of these steps that this process holds."""
    with connection.cursor() as cursor:
        leases.renew_all(cursor, steps, owner="ours", lease_until=UNTIL)


def renewed(plan: Plan) -> list[int]:
    """Return the numbers of the steps whose lease was renewed."""
    return sorted(plan.steps.filter(lease_until=UNTIL).values_list("step_id", flat=True))


def test_one_statement_renews_all_leases(stage, ada):
    """Of all plans; steps of other processes are unchanged."""
    plan, other = make_plan(ada, act(1), act(2), act(3), act(4)), make_plan(ada, act(1))
    steps = [claimed(plan, "ours"), claimed(plan, "ours"), claimed(plan, "theirs"), claimed(other, "ours")]
    steps.append(step_of(plan, 4).pk)
    with CaptureQueriesContext(connection) as queries:
        renew(steps)
        renew([])
    assert (len(queries), renewed(plan), renewed(other)) == (1, [1, 2], [1])


@pytest.mark.service
def test_locked_step_does_not_block_the_renewal(stage, ada):
    """It is skipped, so the statement cannot deadlock."""
    plan = make_plan(ada, act(1), act(2))
    steps = [claimed(plan, "ours"), claimed(plan, "ours")]

    def renew_apart() -> None:
        renew(steps)
        connection.close()

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE plans_step SET description = 'ends' WHERE id = %s", [steps[0]])
        apart = threading.Thread(target=renew_apart)
        apart.start()
        apart.join(60)
        assert not apart.is_alive()
        assert renewed(plan) == [2]
    renew(steps)
    assert renewed(plan) == [1, 2]


@pytest.mark.usefixtures("short_leases", "executor")
def test_slow_tick_loses_no_lease(stage, ada, monkeypatch):
    leases, waits, goes_on = set(), threading.Event(), threading.Event()

    def hang(now: object) -> int:
        waits.set()
        goes_on.wait(60)
        return 0

    def look() -> bool:
        leases.add(step_of(plan).lease_until)
        return waits.is_set() and len(leases) > 4

    monkeypatch.setattr(recovery, "take_back_lost_steps", hang)
    stage.acts["cautious"] = lambda value, context: eventually(look, what="the fourth renewal")
    plan = make_plan(ada, act(1, tool="cautious"))
    try:
        eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the plan's end")
    finally:
        goes_on.set()
    assert step_of(plan).attempt == 1
