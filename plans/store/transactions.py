"""The history of plans: events are numbered per plan without gaps, in the transaction of what they tell.

`recording(plan)` locks the plan, gathers the events of one transaction and writes them with one statement each for
the counter and the rows; the poke to whoever watches goes out after commit. Facts of lower layers arrive in
`on_fact` and join the open recording of their plan.

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
from catalog.rest.idempotency import note_done
from catalog.signals import Fact
from plans.models import Plan
from plans.store.database import leave, on_sqlite, stamp

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

COUNT = "UPDATE plans_plan SET last_seq = last_seq + %s WHERE id = %s RETURNING last_seq, has_agents"
# The moment is told once the lock is held: told beside the lock it would be that of the wait's beginning.
LOCK_PLAN = (
    "WITH locked AS MATERIALIZED (SELECT last_seq, has_agents FROM plans_plan WHERE id = %s FOR NO KEY UPDATE) "
    "SELECT clock_timestamp(), last_seq, has_agents FROM locked"
)
Listener = Callable[[str, int], None]
_open = threading.local()
_listeners: list[Listener] = []
_step_end_handlers: list[Callable[["Recording"], None]] = []
FactHandler = Callable[["Recording", Fact], None]
_fact_handlers: dict[str, FactHandler] = {}


class Locked(NamedTuple):
    """A plan as it was locked: the moment, the number of its last event, whether an agent has begun one of its steps.

    SQLite locks without looking at it: there the last two are read with the events.
    """

    now: datetime
    last_seq: int = 0
    has_agents: bool = False
    exists: bool = True


@dataclass(slots=True)
class Recording:
    """The events of one transaction of one plan, not yet numbered."""

    plan_pk: int
    plan_ref: str
    locked: Locked
    cursor: CursorWrapper
    outer: "Recording | None" = None
    """The open recording of another plan in whose transaction this one is."""
    rows: list[tuple[str, int | None, str]] = field(default_factory=list)
    last_seq: int = 0
    """The number of its last event, once that is written."""
    leads_to: object = None
    """What the transaction hands on once it is committed, for who finds out later that it was."""
    became_ready: int = 0
    """How many steps became ready, without those that a deferred check has still to report."""
    _deferred: list[Callable[[], int]] = field(default_factory=list)
    _after: list[Callable[[], object]] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        """The moment of all its events."""
        return self.locked.now

    def add(self, kind: str, step_id: int | None = None, **data: Any) -> None:
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

    def once_committed(self, act: Callable[[], object]) -> None:
        """Do something after the commit, once, also when its answer is lost and it is looked up."""
        self._after.append(act)
        transaction.on_commit(self.do_after)

    def do_after(self) -> None:
        """Do what was to be done after the commit and was not."""
        while self._after:
            self._after.pop(0)()


def register_listener(listener: Listener) -> None:
    """Call `listener(plan_ref, last_seq)` after each commit that wrote events, in the committing thread."""
    if listener not in _listeners:
        _listeners.append(listener)


def register_step_end_handler(handler: Callable[[Recording], None]) -> None:
    """Call `handler(batch)` in each transaction in which steps of a plan with agents have ended, after its events."""
    if handler not in _step_end_handlers:
        _step_end_handlers.append(handler)


def register_fact_handler(kind: str, handler: FactHandler) -> None:
    """Let `handler(batch, fact)` carry out the consequences of a fact, in its transaction and after its event."""
    _fact_handlers[kind] = handler


@contextmanager
def recording(plan_pk: int, plan_ref: str) -> Iterator[Recording]:
    """Open a transaction on a plan: lock it, run the body, write its events, poke after commit.

    Inside an open recording of the same plan the body joins that one.
    """
    outer = current(plan_ref)
    if outer is not None:
        yield outer
        return
    with transaction.atomic(), _gathering(plan_pk, plan_ref, lock_plan(plan_pk)) as batch:
        yield batch


@contextmanager
def recording_new(plan: Plan) -> Iterator[Recording]:
    """Store a new plan and open its first recording."""
    with transaction.atomic():
        plan.save(force_insert=True)
        with _gathering(plan.pk, plan.public_id, Locked(clock.now())) as batch:
            yield batch


@contextmanager
def _gathering(plan_pk: int, plan_ref: str, locked: Locked) -> Iterator[Recording]:
    with connection.cursor() as cursor:
        batch = Recording(plan_pk, plan_ref, locked, cursor, outer=getattr(_open, "batch", None))
        _open.batch = batch
        if batch.outer is None:
            _open.latest = batch
        try:
            yield batch
            batch.run_deferred()
        finally:
            _open.batch = batch.outer
        if batch.rows:
            _flush(batch)


def tell(batch: Recording, kind: str, call: Call, *, level: str, **data: Any) -> None:
    """Record what a call does: safe calls leave events only, the others are facts for the audit log too."""
    if level == SafetyLevel.SAFE:
        batch.add(kind, int(call.step_ref), call=call.public_id, **data)
    else:
        signals.record(kind, call=call, level=level, **data)


def lock_plan(plan_pk: int) -> Locked:
    """Take the plan's row first: plan → step → call → request → audit head; return it as it was taken.

    SQLite's BEGIN IMMEDIATE has the lock already.
    """
    if on_sqlite():
        return Locked(clock.now())
    with connection.cursor() as cursor:
        cursor.execute(LOCK_PLAN, [plan_pk])
        row = cursor.fetchone()
    return Locked(*row) if row else Locked(clock.now(), exists=False)


def _flush(batch: Recording) -> None:
    """Number and write what `batch` holds, and poke the listeners once it is committed."""
    last = batch.last_seq = write_rows(batch)
    if batch.locked.has_agents and any(kind in STEP_ENDS for kind, _, _ in batch.rows):
        for act in _step_end_handlers:
            act(batch)
    note_done(batch.plan_ref)
    for listener in _listeners:
        transaction.on_commit(lambda listener=listener: listener(batch.plan_ref, last), robust=True)  # type: ignore[misc]


def write_rows(batch: Recording) -> int:
    """Number and write the events of an open transaction; return the last number."""
    return _write_on_sqlite(batch) if on_sqlite() else _write_on_postgresql(batch)


def _write_on_sqlite(batch: Recording) -> int:
    """Write the counter, then the rows. Raises Plan.DoesNotExist."""
    batch.cursor.execute(COUNT, [len(batch.rows), batch.plan_pk])
    counted = batch.cursor.fetchone()
    if counted is None:
        raise Plan.DoesNotExist
    last, has_agents = counted
    batch.locked = Locked(batch.now, last - len(batch.rows), bool(has_agents))
    at = stamp(batch.now)
    parameters: list[Any] = []
    for seq, (kind, step_id, data) in enumerate(batch.rows, batch.locked.last_seq + 1):
        parameters += (batch.plan_pk, seq, kind, at, step_id, data)
    values = ", ".join(["(%s, %s, %s, %s, %s, %s)"] * len(batch.rows))
    batch.cursor.execute(f"INSERT INTO plans_event (plan_id, seq, type, at, step_id, data) VALUES {values}", parameters)
    return int(last)


def _write_on_postgresql(batch: Recording) -> int:
    """Write both in one statement, which goes with COMMIT: each way to the server and back is one under the lock.

    Raises Plan.DoesNotExist.
    """
    if not batch.locked.exists:
        raise Plan.DoesNotExist
    parameters: list[Any] = [len(batch.rows), batch.plan_pk, batch.plan_pk, batch.now]
    for before_last, (kind, step_id, data) in zip(range(len(batch.rows) - 1, -1, -1), batch.rows, strict=True):
        parameters += (before_last, kind, step_id, data)
    values = ", ".join(["(%s::int, %s::text, %s::int, %s::text)"] * len(batch.rows))
    leave(
        batch.cursor,
        f"WITH counted AS ({COUNT}) INSERT INTO plans_event (plan_id, seq, type, at, step_id, data) "
        f"SELECT %s::bigint, counted.last_seq - row.before_last, row.type, %s::timestamptz, row.step_id, row.data "
        f"FROM counted, (VALUES {values}) AS row(before_last, type, step_id, data)",
        parameters,
    )
    return batch.locked.last_seq + len(batch.rows)


def current(plan_ref: str) -> Recording | None:
    """Return this thread's open recording of the plan, if there is one, also inside of another plan's."""
    batch: Recording | None = getattr(_open, "batch", None)
    while batch is not None and batch.plan_ref != plan_ref:
        batch = batch.outer
    return batch


def latest() -> Recording | None:
    """Return this thread's last recording since `forget_latest`, open or not, committed or not."""
    batch: Recording | None = getattr(_open, "latest", None)
    return batch


def forget_latest() -> None:
    """Forget this thread's last recording."""
    _open.latest = None


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Turn a fact about a plan's call into its event, and carry out what it means for the step."""
    call = fact.call
    if call is None or not call.plan_ref:
        return
    batch = current(call.plan_ref)
    if batch is not None:
        _append(batch, fact)
        return
    plan_pk = _key_of(call.plan_ref)
    if fact.kind == "call.changing":
        lock_plan(plan_pk)
        return
    with recording(plan_pk, call.plan_ref) as batch:
        _append(batch, fact)


def _key_of(plan_ref: str) -> int:
    """Return the key of a plan: its last one this thread keeps, for a decision states several facts of one plan."""
    known: tuple[str, int] | None = getattr(_open, "known", None)
    if known is None or known[0] != plan_ref:
        known = _open.known = plan_ref, Plan.objects.only("pk").get(public_id=plan_ref).pk
    return known[1]


def _append(batch: Recording, fact: Fact) -> None:
    call = fact.call
    if call is None:
        return
    if fact.kind in EVENT_TYPES:
        batch.add(fact.kind, int(call.step_ref), call=call.public_id, **fact.data)
    handle_fact(batch, fact)


def handle_fact(batch: Recording, fact: Fact) -> None:
    """Carry out the consequences of a fact for its plan, beside its event."""
    handler = _fact_handlers.get(fact.kind)
    if handler is not None:
        handler(batch, fact)
