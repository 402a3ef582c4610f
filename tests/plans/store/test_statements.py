"""Ending a step and its call: both or neither, by the worker that holds the lease."""

import re
import threading
from datetime import timedelta
from itertools import count

import pytest
from django.db import connection, transaction

from catalog.core import clock
from catalog.errors import Conflict
from catalog.models import Call
from catalog.states import CallStatus
from plans.engine import loop
from plans.engine.work import RunningCall
from plans.models import Plan, Step
from plans.store import statements
from plans.store.statements import CallEnding, LeaseLost
from plans.store.transactions import PlanTransaction, plan_transaction
from tests.builders import act, call_of, make_plan, step_of
from tests.waiting import blocks_someone, eventually

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]
OWNER = "ours"


def started(plan: Plan) -> RunningCall:
    """Claim and start the plan's first step."""
    run = loop.claim_work(plan.pk, owner=OWNER)
    assert isinstance(run, RunningCall)
    return run


def end(tx: PlanTransaction, run: RunningCall) -> int:
    """End the call successfully, and its step; return how many steps became ready."""
    ending = CallEnding(CallStatus.COMPLETED, "{}", "Done.", "", tx.now)
    return statements.end_step(tx.cursor, run.step, run.call, ending)()


def standing(plan: Plan) -> tuple[str, str, int, bool]:
    """Return the status of the first step and its call, and the open dependencies of the second step."""
    step, after = step_of(plan, 1), step_of(plan, 2)
    return step.status, call_of(plan, 1).status, after.dependencies_left, after.ready_at is not None


def test_step_ends_with_its_call_and_readies_dependents(stage, ada):
    """A dependent with other open dependencies is not counted."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]), act(3), act(4, dependencies=[1, 3]))
    run = started(plan)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        assert end(tx, run) == 1
    assert standing(plan) == ("completed", "completed", 0, True)
    assert (step_of(plan, 4).dependencies_left, step_of(plan, 4).ready_at) == (1, None)
    assert (call_of(plan, 1).message, step_of(plan, 1).claimed_by, step_of(plan, 1).lease_until) == ("Done.", "", None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "starts"),
    [
        ("created", True),
        ("ready", True),
        ("held", False),
        ("running", False),
        ("completed", False),
        ("failed", False),
        ("cancelled", False),
        ("outcome_unknown", False),
    ],
)
def test_only_a_new_or_ready_call_starts(stage, ada, status, starts):
    """A call in any other status keeps its row unchanged."""
    plan = make_plan(ada, act(1))
    call = Call.objects.filter(pk=started(plan).call.pk)
    call.update(status=status)
    before = call.values().get()
    with plan_transaction(plan.pk, plan.public_id) as tx:
        assert statements.start_call(tx.cursor, before["id"], fence=7, now=tx.now) is starts
        started_now = {"status": "running", "fence": 7, "attempt": before["attempt"] + 1, "started_at": tx.now}
    assert call.values().get() == (before | started_now if starts else before)


@pytest.mark.parametrize("change", [{"fence": 7}, {"status": "outcome_unknown"}])
def test_lost_call_leaves_its_step_unchanged(stage, ada, change):
    """It has another fencing token or has ended."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    run = started(plan)
    Call.objects.filter(pk=run.call.pk).update(**change)
    before = standing(plan)
    with pytest.raises(LeaseLost), plan_transaction(plan.pk, plan.public_id) as tx:
        end(tx, run)
    assert standing(plan) == before


@pytest.mark.parametrize("change", [{"claimed_by": "theirs"}, {"attempt": 2}, {"status": "cancelled"}])
def test_lost_step_rolls_back_the_end_of_its_call(stage, ada, change):
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    run = started(plan)
    Step.objects.filter(pk=run.step.pk).update(**change)
    before = standing(plan)
    with pytest.raises(Conflict), plan_transaction(plan.pk, plan.public_id) as tx:
        end(tx, run)
    assert standing(plan) == before


def ended_while_another_writes(plan: Plan, run: RunningCall, **change: object) -> int:
    """End the step while another transaction changes its row, as renewals do without the plan's lock."""
    written, found = threading.Event(), list[int]()

    def write() -> None:
        with transaction.atomic():
            Step.objects.filter(pk=run.step.pk).update(**change)
            written.set()
            if connection.vendor == "postgresql":  # SQLite lets the other begin after this commit
                eventually(blocks_someone, what="the other's wait for the row")
        connection.close()

    other = threading.Thread(target=write)
    other.start()
    written.wait()
    try:
        with plan_transaction(plan.pk, plan.public_id) as tx:
            found.append(end(tx, run))
    finally:
        other.join()
    return found[0]


def test_lease_renewed_during_the_statement_is_kept(stage, ada):
    """The row changed since the statement began and is read again."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    run = started(plan)
    assert ended_while_another_writes(plan, run, lease_until=clock.now() + timedelta(days=1)) == 1
    assert standing(plan) == ("completed", "completed", 0, True)


def test_step_taken_during_the_statement_is_lost(stage, ada):
    """The call was still this worker's when the statement began."""
    plan = make_plan(ada, act(1), act(2, dependencies=[1]))
    run = started(plan)
    with pytest.raises(Conflict):
        ended_while_another_writes(plan, run, claimed_by="theirs")
    assert standing(plan) == ("in_progress", "running", 1, False)


@pytest.mark.service
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite uses an index wherever there is one")
def test_dependents_are_found_by_key_without_statistics(stage, ada):
    """A connection keeps the plan made while the tables were small."""
    make_plan(ada, act(1))
    with connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        cursor.execute("PREPARE ended AS " + numbered(statements.END_STEP))
        cursor.execute(f"EXPLAIN EXECUTE ended ({', '.join(['NULL'] * statements.END_STEP.count('%s'))})")
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("DEALLOCATE ended")
        cursor.execute("RESET plan_cache_mode")
    assert "Index Scan using plans_step_pkey" in plan and "Seq Scan on plans_step " not in plan


def numbered(statement: str) -> str:
    """Return a statement with PostgreSQL's placeholders."""
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", statement)
