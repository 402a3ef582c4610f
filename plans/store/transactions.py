"""The history of plans: events are numbered per plan without gaps, in the transaction of what they tell.

`plan_transaction(plan)` locks the plan, gathers the events of one transaction and writes them with one statement each
for the counter and the rows; listeners are notified after commit. Facts of lower layers arrive in `record_fact_event`
and join the open transaction of their plan.

Upper packages register here (in `plans/apps.py`):

- `register_listener`: called after each commit that wrote events (live pages, long polls);
- `register_step_end_handler`: called when steps of a plan with agents have ended (agents);
- `register_fact_handler`: the consequences of a fact of a lower layer (`plans/engine/decisions.py`).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from pydantic_core import to_json

from catalog import signals
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.models import Call
from catalog.rest.idempotency import record_done
from catalog.signals import Fact
from plans.models import Plan
from plans.store.database import bind_datetime, execute_pipelined, insert_row, on_sqlite

EVENT_TYPES = frozenset(
    {
        *(f"plan.{word}" for word in ("created", "started", "paused", "resumed", "completed", "failed", "cancelled")),
        "plan.changed",
        *(f"step.{word}" for word in ("started", "skipped", "waiting", "retrying", "completed", "failed", "cancelled")),
        "step.outcome_unknown",
        *(f"call.{word}" for word in ("started", "succeeded", "failed", "restored")),
        *(
            f"approval.{word}"
            for word in ("opened", "reviewed", "edited", "decided", "expired", "revoked", "escalated")
        ),
        *(f"approval.{word}" for word in ("claimed", "released", "delegated", "commented", "reminded", "extended")),
        "grant.used",
        *(f"input.{word}" for word in ("requested", "received")),
        "memory.written",
        "tool.invoked",
    }
)

STEP_ENDS = frozenset(f"step.{word}" for word in ("completed", "skipped", "failed", "cancelled"))

INCREMENT_SEQ = "UPDATE plans_plan SET last_seq = last_seq + %s WHERE id = %s RETURNING last_seq, has_agents"
# The moment is told once the lock is held: told beside the lock it would be that of the wait's beginning.
LOCK_PLAN = (
    "WITH locked AS MATERIALIZED (SELECT last_seq, has_agents FROM plans_plan WHERE id = %s FOR NO KEY UPDATE) "
    "SELECT clock_timestamp(), last_seq, has_agents FROM locked"
)
Listener = Callable[[str, int], None]
_thread_state = threading.local()
_listeners: list[Listener] = []
_step_end_handlers: list[Callable[["PlanTransaction"], None]] = []
FactHandler = Callable[["PlanTransaction", Fact], None]
_fact_handlers: dict[str, FactHandler] = {}


class LockedPlan(NamedTuple):
    """A plan as it was locked: the moment, the number of its last event, whether an agent has begun one of its steps.

    SQLite locks without looking at it: there the last two are read with the events.
    """

    now: datetime
    last_seq: int = 0
    has_agents: bool = False
    exists: bool = True


@dataclass(slots=True)
class PlanTransaction:
    """The events of one transaction of one plan, not yet numbered."""

    plan_pk: int
    plan_ref: str
    locked: LockedPlan
    cursor: CursorWrapper
    outer: "PlanTransaction | None" = None
    """The open plan transaction of another plan in whose transaction this one is."""
    rows: list[tuple[str, int | None, str]] = field(default_factory=list)
    last_seq: int = 0
    """The number of its last event, once that is written."""
    result: object = None
    """What the transaction hands on once it is committed, for who finds out later that it was."""
    became_ready: int = 0
    """How many steps became ready, without those that a deferred check has still to report."""
    _deferred: list[Callable[[], int]] = field(default_factory=list)
    _after: list[Callable[[], object]] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        """The moment of all its events."""
        return self.locked.now

    def record(self, kind: str, step_id: int | None = None, **data: Any) -> None:
        """Append one event. Raises KeyError for a type that docs/api.md does not name."""
        if kind not in EVENT_TYPES:
            raise KeyError(kind)
        self.rows.append((kind, step_id, to_json(data).decode() if data else "{}"))

    def defer(self, check: Callable[[], int]) -> None:
        """Run `check` before the commit: it reads the result of a statement that was sent without waiting for it.

        It returns how many steps became ready. What it raises rolls the transaction back.
        """
        self._deferred.append(check)

    def run_deferred(self) -> int:
        """Run the checks deferred so far; return how many steps became ready. Raises what the checks raise."""
        while self._deferred:
            self.became_ready += self._deferred.pop(0)()
        return self.became_ready

    def on_commit(self, act: Callable[[], object]) -> None:
        """Do something after the commit, once, also when its answer is lost and it is looked up."""
        self._after.append(act)
        transaction.on_commit(self.run_after_commit)

    def run_after_commit(self) -> None:
        """Do what was to be done after the commit and was not."""
        while self._after:
            self._after.pop(0)()


def register_listener(listener: Listener) -> None:
    """Call `listener(plan_ref, last_seq)` after each commit that wrote events, in the committing thread."""
    if listener not in _listeners:
        _listeners.append(listener)


def register_step_end_handler(handler: Callable[[PlanTransaction], None]) -> None:
    """Call `handler(tx)` in each transaction in which steps of a plan with agents have ended, after its events."""
    if handler not in _step_end_handlers:
        _step_end_handlers.append(handler)


def register_fact_handler(kind: str, handler: FactHandler) -> None:
    """Let `handler(tx, fact)` carry out the consequences of a fact, in its transaction and after its event."""
    _fact_handlers[kind] = handler


@contextmanager
def plan_transaction(plan_pk: int, plan_ref: str) -> Iterator[PlanTransaction]:
    """Open a transaction on a plan: lock it, run the body, write its events, poke after commit.

    Inside an open plan transaction of the same plan the body joins that one.
    """
    outer = current_transaction(plan_ref)
    if outer is not None:
        yield outer
        return
    with transaction.atomic(), _collect_events(plan_pk, plan_ref, lock_plan(plan_pk)) as tx:
        yield tx


@contextmanager
def new_plan_transaction(plan: Plan) -> Iterator[PlanTransaction]:
    """Store a new plan and open its first transaction."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            insert_row(cursor, plan)
        with _collect_events(plan.pk, plan.public_id, LockedPlan(clock.now())) as tx:
            yield tx


@contextmanager
def _collect_events(plan_pk: int, plan_ref: str, locked: LockedPlan) -> Iterator[PlanTransaction]:
    with connection.cursor() as cursor:
        tx = PlanTransaction(plan_pk, plan_ref, locked, cursor, outer=getattr(_thread_state, "tx", None))
        _thread_state.tx = tx
        if tx.outer is None:
            _thread_state.latest = tx
        try:
            yield tx
            tx.run_deferred()
        finally:
            _thread_state.tx = tx.outer
        if tx.rows:
            _flush(tx)


def record_call_event(tx: PlanTransaction, kind: str, call: Call, *, level: str, **data: Any) -> None:
    """Record what a call does: safe calls leave events only, the others are facts for the audit log too."""
    if level == SafetyLevel.SAFE:
        tx.record(kind, int(call.step_ref), call=call.public_id, **data)
    else:
        signals.record_fact(kind, call=call, level=level, **data)


def lock_plan(plan_pk: int) -> LockedPlan:
    """Take the plan's row first: plan → step → call → request → audit head; return it as it was taken.

    SQLite's BEGIN IMMEDIATE has the lock already.
    """
    if on_sqlite():
        return LockedPlan(clock.now())
    with connection.cursor() as cursor:
        cursor.execute(LOCK_PLAN, [plan_pk])
        row = cursor.fetchone()
    return LockedPlan(*row) if row else LockedPlan(clock.now(), exists=False)


def _flush(tx: PlanTransaction) -> None:
    """Number and write what `tx` holds, and poke the listeners once it is committed."""
    last = tx.last_seq = write_events(tx)
    if tx.locked.has_agents and any(kind in STEP_ENDS for kind, _, _ in tx.rows):
        for act in _step_end_handlers:
            act(tx)
    record_done(tx.plan_ref)
    for listener in _listeners:
        transaction.on_commit(lambda listener=listener: listener(tx.plan_ref, last), robust=True)  # type: ignore[misc]


def write_events(tx: PlanTransaction) -> int:
    """Number and write the events of an open transaction; return the last number."""
    return _write_on_sqlite(tx) if on_sqlite() else _write_on_postgresql(tx)


def _write_on_sqlite(tx: PlanTransaction) -> int:
    """Write the counter, then the rows. Raises Plan.DoesNotExist."""
    tx.cursor.execute(INCREMENT_SEQ, [len(tx.rows), tx.plan_pk])
    counted = tx.cursor.fetchone()
    if counted is None:
        raise Plan.DoesNotExist
    last, has_agents = counted
    tx.locked = LockedPlan(tx.now, last - len(tx.rows), bool(has_agents))
    at = bind_datetime(tx.now)
    parameters: list[Any] = []
    for seq, (kind, step_id, data) in enumerate(tx.rows, tx.locked.last_seq + 1):
        parameters += (tx.plan_pk, seq, kind, at, step_id, data)
    values = ", ".join(["(%s, %s, %s, %s, %s, %s)"] * len(tx.rows))
    tx.cursor.execute(f"INSERT INTO plans_event (plan_id, seq, type, at, step_id, data) VALUES {values}", parameters)
    return int(last)


def _write_on_postgresql(tx: PlanTransaction) -> int:
    """Write both in one statement, which goes with COMMIT: each way to the server and back is one under the lock.

    Raises Plan.DoesNotExist.
    """
    if not tx.locked.exists:
        raise Plan.DoesNotExist
    parameters: list[Any] = [len(tx.rows), tx.plan_pk, tx.plan_pk, tx.now]
    for before_last, (kind, step_id, data) in zip(range(len(tx.rows) - 1, -1, -1), tx.rows, strict=True):
        parameters += (before_last, kind, step_id, data)
    values = ", ".join(["(%s::int, %s::text, %s::int, %s::text)"] * len(tx.rows))
    execute_pipelined(
        tx.cursor,
        f"WITH counted AS ({INCREMENT_SEQ}) INSERT INTO plans_event (plan_id, seq, type, at, step_id, data) "
        f"SELECT %s::bigint, counted.last_seq - row.before_last, row.type, %s::timestamptz, row.step_id, row.data "
        f"FROM counted, (VALUES {values}) AS row(before_last, type, step_id, data)",
        parameters,
    )
    return tx.locked.last_seq + len(tx.rows)


def current_transaction(plan_ref: str) -> PlanTransaction | None:
    """Return this thread's open plan transaction of the plan, if there is one, also inside of another plan's."""
    tx: PlanTransaction | None = getattr(_thread_state, "tx", None)
    while tx is not None and tx.plan_ref != plan_ref:
        tx = tx.outer
    return tx


def latest_transaction() -> PlanTransaction | None:
    """Return this thread's last plan transaction since `forget_latest_transaction`, open or not, committed or not."""
    tx: PlanTransaction | None = getattr(_thread_state, "latest", None)
    return tx


def forget_latest_transaction() -> None:
    """Forget this thread's last plan transaction."""
    _thread_state.latest = None


def record_fact_event(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Turn a fact about a plan's call into its event, and carry out what it means for the step."""
    call = fact.call
    if call is None or not call.plan_ref:
        return
    tx = current_transaction(call.plan_ref)
    if tx is not None:
        _append_fact(tx, fact)
        return
    plan_pk = _plan_key(call.plan_ref)
    if fact.kind == "call.changing":
        lock_plan(plan_pk)
        return
    with plan_transaction(plan_pk, call.plan_ref) as tx:
        _append_fact(tx, fact)


def _plan_key(plan_ref: str) -> int:
    """Return the key of a plan: its last one this thread keeps, for a decision states several facts of one plan."""
    known: tuple[str, int] | None = getattr(_thread_state, "known", None)
    if known is None or known[0] != plan_ref:
        known = _thread_state.known = plan_ref, Plan.objects.only("pk").get(public_id=plan_ref).pk
    return known[1]


def _append_fact(tx: PlanTransaction, fact: Fact) -> None:
    call = fact.call
    if call is None:
        return
    if fact.kind in EVENT_TYPES:
        tx.record(fact.kind, int(call.step_ref), call=call.public_id, **fact.data)
    handle_fact(tx, fact)


def handle_fact(tx: PlanTransaction, fact: Fact) -> None:
    """Carry out the consequences of a fact for its plan, beside its event."""
    handler = _fact_handlers.get(fact.kind)
    if handler is not None:
        handler(tx, fact)
