"""`chain_bare_ms_per_step`: the statements and commits of a durable step in a bare loop, as a lower bound.

The database driver alone writes the rows that the engine writes for each step of a chain, without Django, validation,
gate or tool. The ratios are the engine's time divided by the time of this loop.
"""

import sqlite3
from datetime import timedelta
from functools import cache
from time import perf_counter
from typing import Any

from django.db import connection
from django.utils import timezone

from benchmarks import chain, fanout
from benchmarks.ground import prepare
from catalog.core.database import on_sqlite
from catalog.models import Call, Tool, new_call_id
from catalog.states import CallStatus
from config.db.postgresql.base import DeferredStatement
from plans.actions.create import create_plan, start_plan
from plans.models import Plan
from plans.spec import PlanDocument
from plans.store import statements
from plans.store.requesters import Requester
from plans.store.statements import CallEnding, ClaimedStep, Lease
from plans.store.transactions import LOCK_PLAN, LockedPlan, PlanTransaction, write_events

ENDED = ("call.succeeded", "tool.invoked", "step.completed")
STARTED = ("step.started", "call.started")
RESPONSE = '{"query_type": null, "parameters": {"number": 1}, "results": [], "output_key": null, "success": true}'


def measure(runs: int) -> list[float]:
    """Return the milliseconds per step of each run."""
    by = Requester(prepare(), via="shell")
    document = PlanDocument.model_validate({"goal": "Measure", "steps": chain.steps(), "start": False})
    return [_timed(create_plan(document, by=by), by) / chain.STEPS for _ in range(runs + 1)][1:]


def chain_ratio(runs: int) -> list[float]:
    """Return the engine's time for a chain, divided by that of the bare loop."""
    return [engine / bare for engine, bare in zip(chain.measure(runs), measure(runs), strict=True)]


def fanout_ratio(runs: int) -> list[float]:
    """Return the engine's time for a fan-out, which writes as much as a chain, divided by that of the bare loop."""
    return [engine / bare for engine, bare in zip(fanout.measure(runs), measure(runs), strict=True)]


class Bare:
    """The driver's own cursor and transactions, for the statements of `plans.store.statements`."""

    def __init__(self) -> None:
        self._connection: Any = connection
        connection.ensure_connection()
        self._cursor = connection.create_cursor()
        self.fetchone, self.fetchall = self._cursor.fetchone, self._cursor.fetchall

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement changed."""
        return int(self._cursor.rowcount)

    def execute(self, statement: str, parameters: Any = ()) -> None:
        if on_sqlite():
            sqlite3.Cursor.execute(self._cursor, _in_sqlites_words(statement), parameters)
        else:
            self._cursor.execute(statement, parameters)

    def leave(self, statement: str, parameters: Any) -> Any:
        """Defer a statement, to be sent together with the next one."""
        return DeferredStatement(self._connection, statement, parameters)

    def begin(self) -> None:
        self._connection._start_transaction_under_autocommit()

    def commit(self) -> None:
        self._connection._commit()


@cache
def _in_sqlites_words(statement: str) -> str:
    return statement.replace("%s", "?")


def _timed(plan: Plan, by: Requester) -> float:
    """Return the milliseconds from the start of a plan until its last step is committed."""
    start_plan(plan, by=by)
    cursor: Any = Bare()
    call = Call(tool_name="bench_noop", version=Tool.objects.get(name="bench_noop").current_version)
    call.plan_ref, call.arguments, call.requested_by = plan.public_id, '{"number":1}', by.user
    started = perf_counter()
    step = _write(cursor, plan, call, None)
    while step is not None:
        step = _write(cursor, plan, call, step)
    return (perf_counter() - started) * 1000


def _write(cursor: Any, plan: Plan, call: Call, step: ClaimedStep | None) -> ClaimedStep | None:
    """End one step and begin the next in one transaction; return the next step, None after the last."""
    cursor.begin()
    tx = PlanTransaction(plan.pk, plan.public_id, _lock(cursor, plan), cursor)
    if step is not None:
        _end(tx, call, step)
    following = statements.claim_next(cursor, plan.pk, Lease("bare", tx.now, tx.now + timedelta(seconds=30)))
    if following is not None:
        _begin(tx, call, following)
    write_events(tx)
    cursor.commit()
    return following


def _lock(cursor: Any, plan: Plan) -> LockedPlan:
    if on_sqlite():
        return LockedPlan(timezone.now())
    cursor.execute(LOCK_PLAN, [plan.pk])
    return LockedPlan(*cursor.fetchone())


def _end(tx: PlanTransaction, call: Call, step: ClaimedStep) -> None:
    statements.end_step(tx.cursor, step, call, CallEnding(CallStatus.COMPLETED, RESPONSE, "OK", "", tx.now))
    tx.rows += ((kind, step.step_id, f'{{"call":"{call.public_id}"}}') for kind in ENDED)


def _begin(tx: PlanTransaction, call: Call, step: ClaimedStep) -> None:
    call.public_id, call.step_ref, call.status = new_call_id(), str(step.step_id), CallStatus.RUNNING
    call.attempt, call.fence, call.created_at, call.started_at = 1, step.attempt, tx.now, tx.now
    statements.insert_step_call(tx.cursor, step, call, just_claimed=True)
    tx.rows += ((kind, step.step_id, f'{{"call":"{call.public_id}"}}') for kind in STARTED)
