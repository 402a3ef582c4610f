"""Plan transactions and events: events are numbered per plan without gaps, in the transaction of the change.

Listeners are notified after commit. Facts of lower layers arrive in `record_fact_event` and join the open transaction
of their plan. Upper packages register their listeners and handlers in `plans/apps.py`.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from time import monotonic, sleep
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from django.conf import settings
from django.db import Error, connection, transaction
from django.db.backends.utils import CursorWrapper
from pydantic_core import to_json

from approvals.stops.standing import StandingStop, read_stops
from catalog import signals
from catalog.core import clock
from catalog.core.database import bind_datetime, execute_pipelined, insert_row, on_sqlite
from catalog.core.locks import SHARE_UNTIL_COMMIT, LockSpace
from catalog.core.transactions import is_unavailable, log_unexpected, retry_on_lock
from catalog.definitions.levels import SafetyLevel
from catalog.models import Call
from catalog.rest.idempotency import record_done
from catalog.signals import Fact
from plans.models import Event, Plan

EVENT_TYPES = frozenset(
    (
        "plan.created", "plan.started", "plan.changed", "plan.paused", "plan.resumed",
        "plan.completed", "plan.failed", "plan.cancelled",
        "step.started", "step.waiting", "step.retrying", "step.outcome_unknown",
        "step.completed", "step.skipped", "step.failed", "step.cancelled",
        "call.started", "call.progress", "call.succeeded", "call.failed", "call.restored",
        "approval.opened", "approval.reviewed", "approval.edited", "approval.decided", "approval.expired",
        "approval.revoked", "approval.escalated", "approval.claimed", "approval.released", "approval.delegated",
        "approval.commented", "approval.reminded", "approval.extended",
        "resumption.claimed", "resumption.given_back", "resumption.lost", "resumption.ended",
        "grant.used", "envelope.used", "input.requested", "input.received", "memory.written", "tool.invoked",
    )
)  # fmt: skip
STEP_ENDS = frozenset(("step.completed", "step.skipped", "step.failed", "step.cancelled"))

INCREMENT_SEQ = "UPDATE plans_plan SET last_seq = last_seq + %s WHERE id = %s RETURNING last_seq, has_agents"
# The CTE makes clock_timestamp() run once the lock is held; otherwise it would be the time when the wait began.
# The lock of stops comes with the plan's, because a start needs it before the audit head.
LOCK_PLAN = (
    "WITH locked AS MATERIALIZED (SELECT last_seq, has_agents FROM plans_plan WHERE id = %s FOR NO KEY UPDATE) "
    f"SELECT clock_timestamp(), last_seq, has_agents, ({SHARE_UNTIL_COMMIT})::text FROM locked"
)
STOPS_LOCK = (int(LockSpace.STOPS), "")
Listener = Callable[[str, int], None]
ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")
RETRY_SECONDS = 0.1
"""Delay before the first retry while the database is away; doubled each time."""
_thread_state = threading.local()
_listeners: list[Listener] = []
_step_end_handlers: list[Callable[["PlanTransaction"], None]] = []
FactHandler = Callable[["PlanTransaction", Fact], None]
_fact_handlers: dict[str, FactHandler] = {}


class LockedPlan(NamedTuple):
    """A locked plan: time of the lock, number of the last event, and whether an agent has begun a step of the plan.

    On SQLite locking does not read the row, so the last two fields are read when the events are written.
    """

    now: datetime
    last_seq: int = 0
    has_agents: bool = False
    exists: bool = True


@dataclass(slots=True)
class PlanTransaction:
    """One open transaction of a plan, with its events that are not yet numbered."""

    plan_pk: int
    plan_ref: str
    locked: LockedPlan
    cursor: CursorWrapper
    outer: "PlanTransaction | None" = None
    """The enclosing plan transaction of another plan."""
    rows: list[tuple[str, int | None, str]] = field(default_factory=list)
    last_seq: int = 0
    """The number of the last event, once the events are written."""
    result: object = None
    """The transaction's result, for callers that only later find out that it was committed."""
    became_ready: int = 0
    """Number of steps that became ready, without those that deferred checks will report."""
    _stops: Callable[[], list[StandingStop]] | None = None
    _deferred: list[Callable[[], int]] = field(default_factory=list)
    _after: list[Callable[[], object]] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        """The time of all events of the transaction."""
        return self.locked.now

    def read_stops(self) -> None:
        """Read the standing stops with the next statement on PostgreSQL; on SQLite, `stops` reads them."""
        if self._stops is None and not on_sqlite():
            self._stops = read_stops(self.cursor)

    def no_stops_stand(self) -> None:
        """Remember that no stop stood when a statement of this transaction looked for stops."""
        self._stops = list

    def stops(self) -> list[StandingStop]:
        """Return the standing stops, to which none is added before this transaction ends."""
        if self._stops is None:
            self._stops = read_stops(self.cursor)
        return self._stops()

    def record(self, kind: str, step_id: int | None = None, **data: Any) -> None:
        """Append one event. Raises KeyError for a kind that is not in EVENT_TYPES (documented in docs/api.md)."""
        if kind not in EVENT_TYPES:
            raise KeyError(kind)
        self.rows.append((kind, step_id, to_json(data).decode() if data else "{}"))

    def defer(self, check: Callable[[], int]) -> None:
        """Run `check` before the commit, to read the result of a pipelined statement.

        `check` returns how many steps became ready. If it raises, the transaction is rolled back.
        """
        self._deferred.append(check)

    def run_deferred(self) -> int:
        """Run the checks deferred so far; return how many steps became ready. Raises the errors of the checks."""
        while self._deferred:
            self.became_ready += self._deferred.pop(0)()
        return self.became_ready

    def on_commit(self, act: Callable[[], object]) -> None:
        """Call `act` once after the commit, even if the commit is confirmed only later because its answer was lost."""
        self._after.append(act)
        transaction.on_commit(self.run_after_commit)

    def run_after_commit(self) -> None:
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
    """Call `handler(tx, fact)` for each fact of this kind, in its transaction and after its event is recorded."""
    _fact_handlers[kind] = handler


@contextmanager
def plan_transaction(plan_pk: int, plan_ref: str) -> Iterator[PlanTransaction]:
    """Open a transaction on a plan: lock it, run the body, write its events, notify listeners after commit.

    Inside an open transaction of the same plan, the body joins that one.
    """
    outer = current_transaction(plan_ref)
    if outer is not None:
        yield outer
        return
    with transaction.atomic(), _collect_events(plan_pk, plan_ref, lock_plan(plan_pk)) as tx:
        yield tx


@contextmanager
def new_plan_transaction(plan: Plan, now: datetime | None = None) -> Iterator[PlanTransaction]:
    """Store a new plan and open its first transaction, with the time `now` instead of the current one."""
    with _admission(), transaction.atomic():
        with connection.cursor() as cursor:
            if not on_sqlite():
                execute_pipelined(cursor, SHARE_UNTIL_COMMIT, STOPS_LOCK)
            insert_row(cursor, plan)
        with _collect_events(plan.pk, plan.public_id, LockedPlan(now or clock.now())) as tx:
            tx.read_stops()
            yield tx


@contextmanager
def ended_plan_transaction(
    plan: Plan, now: datetime, events: Sequence[tuple[str, int | None, dict[str, Any]]]
) -> Iterator[PlanTransaction]:
    """Store a new plan that has ended, which the body inserts, and all of its events.

    There is nothing to lock: nobody knows the plan before the commit.
    """
    plan.last_seq = len(events)
    with transaction.atomic(), connection.cursor() as cursor:
        _thread_state.latest = tx = PlanTransaction(0, plan.public_id, LockedPlan(now), cursor)
        yield tx
        tx.plan_pk = plan.pk
        for kind, step_id, data in events:
            tx.record(kind, step_id, **data)
        _insert_events(tx)
        _announce(tx, plan.last_seq)


_admitted = threading.BoundedSemaphore(2)
"""Threads that may store new plans at once on SQLite, whose single writer serves waiting threads in turn.

With more of them, threads that finish calls would wait so long that clients must ask again for results.
"""
ADMISSION_SECONDS = 1.0
"""The longest wait for admission. Then the thread goes on: another program probably holds the file's lock."""


@contextmanager
def _admission() -> Iterator[None]:
    """On SQLite, wait until few other threads store new plans. A thread in a transaction has the lock already."""
    waits = on_sqlite() and not connection.in_atomic_block
    is_admitted = waits and _admitted.acquire(timeout=ADMISSION_SECONDS)
    try:
        yield
    finally:
        if is_admitted:
            _admitted.release()


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
        if not tx.rows:
            return
        last = write_events(tx)
        if tx.locked.has_agents and any(kind in STEP_ENDS for kind, _, _ in tx.rows):
            for act in _step_end_handlers:
                act(tx)
        _announce(tx, last)


def _notification(listener: Listener, plan_ref: str, last_seq: int) -> Callable[[], None]:
    """Return a function, not a partial: if a hook fails, Django reads its `__qualname__`, which partials lack."""

    def notify() -> None:
        listener(plan_ref, last_seq)

    return notify


def record_call_event(tx: PlanTransaction, kind: str, call: Call, *, level: str, **data: Any) -> None:
    """Record an event of a call. For a call that is not safe, record a fact, which also goes to the audit log."""
    if level == SafetyLevel.SAFE:
        tx.record(kind, int(call.step_ref), call=call.public_id, **data)
    else:
        signals.record_fact(kind, call=call, level=level, **data)


def lock_plan(plan_pk: int) -> LockedPlan:
    """Lock the plan's row and return it. Lock order: plan → step → call → request → audit head.

    On SQLite, BEGIN IMMEDIATE has taken the lock already.
    """
    if on_sqlite():
        return LockedPlan(clock.now())
    with connection.cursor() as cursor:
        cursor.execute(LOCK_PLAN, [plan_pk, *STOPS_LOCK])
        row = cursor.fetchone()
    if row is None:
        return LockedPlan(clock.now(), exists=False)
    moment, *counted, _ = row
    return LockedPlan(clock.now() if clock.is_set() else moment, *counted)


def _announce(tx: PlanTransaction, last: int) -> None:
    """Notify listeners after commit of the events up to number `last`."""
    tx.last_seq = last
    record_done(tx.plan_ref)
    for listener in _listeners:
        transaction.on_commit(_notification(listener, tx.plan_ref, last), robust=True)


def write_events(tx: PlanTransaction) -> int:
    """Number and write the events of an open transaction; return the last number."""
    return _write_on_sqlite(tx) if on_sqlite() else _write_on_postgresql(tx)


def _write_on_sqlite(tx: PlanTransaction) -> int:
    tx.cursor.execute(INCREMENT_SEQ, [len(tx.rows), tx.plan_pk])
    counted = tx.cursor.fetchone()
    if counted is None:
        raise Plan.DoesNotExist
    last, has_agents = counted
    tx.locked = LockedPlan(tx.now, last - len(tx.rows), bool(has_agents))
    _insert_events(tx)
    return int(last)


def _insert_events(tx: PlanTransaction) -> None:
    """Insert the events, numbered from the plan's last one."""
    at, parameters = bind_datetime(tx.now), list[Any]()
    for seq, (kind, step_id, data) in enumerate(tx.rows, tx.locked.last_seq + 1):
        parameters += (tx.plan_pk, seq, kind, at, step_id, data)
    values = ", ".join(["(%s, %s, %s, %s, %s, %s)"] * len(tx.rows))
    statement = f"INSERT INTO plans_event (plan_id, seq, type, at, step_id, data) VALUES {values}"
    execute_pipelined(tx.cursor, statement, parameters)


def _write_on_postgresql(tx: PlanTransaction) -> int:
    """Write counter and rows in one statement, pipelined with COMMIT to save a round trip. Raises Plan.DoesNotExist."""
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
    """Return this thread's open transaction of the plan, or None; another plan's transaction may be nested in it."""
    tx: PlanTransaction | None = getattr(_thread_state, "tx", None)
    while tx is not None and tx.plan_ref != plan_ref:
        tx = tx.outer
    return tx


def latest_transaction() -> PlanTransaction | None:
    """Return this thread's last plan transaction inside `recover_lost_commit`, whether or not it has ended."""
    tx: PlanTransaction | None = getattr(_thread_state, "latest", None)
    return tx


def recover_lost_commit(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Decorate a function that runs one plan transaction: if the answer to the commit is lost, return `tx.result`.

    Raises the error of `act` if nothing was committed, or if half a lease was not enough to find out.
    """

    @wraps(act)
    def do_it(*args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        _thread_state.latest = None
        try:
            return act(*args, **kwargs)
        except Error as error:
            tx = latest_transaction()
            if connection.in_atomic_block or not is_unavailable(error) or tx is None or not tx.last_seq:
                raise  # the commit had not begun
            log_unexpected(error)
            connection.close()
            if not retry_while_database_is_away(lambda: _was_committed(tx)):
                raise
            tx.run_after_commit()
            return cast("ResultT", tx.result)

    return do_it


def retry_while_database_is_away(act: Callable[[], ResultT]) -> ResultT:
    """Repeat `act` while the database is unavailable, for at most half a lease. Raises its last error."""
    ends, pause = monotonic() + settings.TOOLGATE_LEASE_SECONDS / 2, RETRY_SECONDS
    while True:
        try:
            return act()
        except Error as error:
            if not is_unavailable(error) or monotonic() + pause > ends:
                raise
            log_unexpected(error)
        connection.close()
        sleep(pause)
        pause *= 2


@retry_on_lock
def _was_committed(tx: PlanTransaction) -> bool:
    """Return whether the transaction's last event is stored; with the plan locked, it cannot appear later."""
    kind = tx.rows[-1][0]
    with plan_transaction(tx.plan_pk, tx.plan_ref):
        return Event.objects.filter(plan=tx.plan_pk, seq=tx.last_seq, at=tx.now, type=kind).exists()


@recover_lost_commit
@retry_on_lock
def transact(plan_pk: int, plan_ref: str, act: Callable[[PlanTransaction], ResultT]) -> ResultT:
    """Run `act` in a transaction of the plan and return its result, also if the commit's answer was lost.

    Repeats the transaction after a deadlock, and waits for locks longer than a frozen process can hold them.
    """
    with plan_transaction(plan_pk, plan_ref) as tx:
        tx.result = result = act(tx)
    return result


def transact_for(call: Call, act: Callable[[PlanTransaction], ResultT]) -> ResultT:
    """Run `act` like `transact`, in a transaction of the call's plan."""
    return transact(_plan_key(call.plan_ref), call.plan_ref, act)


def record_fact_event(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Record the event of a fact about a plan's call and apply the fact to its plan; receiver of the `fact` signal."""
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
    """Return the key of a plan; the thread caches the last one, as a decision records several facts about a plan."""
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
    handler = _fact_handlers.get(fact.kind)
    if handler is not None:
        handler(tx, fact)
