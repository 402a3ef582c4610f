"""The hand-written SQL of plans, portable between SQLite (3.35 and later) and PostgreSQL.

The engine's statements are conditional UPDATEs and INSERTs on the cursor of an open
`plans.store.transactions.plan_transaction`. Only this module and `catalog.core.transactions` write statuses; both take
their conditions from the MOVES tables. The other statements are queries for the ticker and recovery.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from typing import Any

from django.conf import settings
from django.db.backends.utils import CursorWrapper
from django.db.models import AutoField

from catalog.core.database import bind_datetime, execute_pipelined, insert_row, insert_row_pipelined, new_row, on_sqlite
from catalog.core.transactions import StatusMoves, allowed_sources
from catalog.errors import Conflict, ToolgateError
from catalog.models import Call
from catalog.states import MOVES as CALL_MOVES
from catalog.states import CallStatus
from plans.models import Plan, Step
from plans.states import PLAN_MOVES, PLAN_TERMINAL, STEP_MOVES, PlanStatus, StepStatus, WaitingFor


class LeaseLost(ToolgateError):
    """This worker no longer holds the lease of the call to be ended."""


@dataclass(frozen=True, slots=True)
class ClaimedStep:
    """A step under this process's lease; `attempt` is its fencing token."""

    pk: int
    plan_pk: int
    step_id: int
    tool: str
    parameters: str
    expected_key: str
    output_path: str
    done_check: str
    description: str
    agent: str
    parent_pk: int | None
    call_pk: int | None
    attempt: int
    claimed_by: str
    ready_since: datetime | str | None = None
    """For a step just claimed: the time since which it was ready, as returned by the driver."""
    deadline_at: datetime | str | None = None
    """For a step just claimed: its plan's deadline, which a retry of the plan changes, as returned by the driver."""
    may_be_stopped: bool = True
    """False for a step just claimed if no stop stands, and the time of all that stood is counted."""
    new_call_pk: int | None = None
    """For a step just claimed on PostgreSQL: a reserved key for its new call, which saves reading it back."""
    is_linked: bool = False
    """The row refers to `new_call_pk` already."""

    @classmethod
    def from_row(cls, step: Step) -> "ClaimedStep":
        return cls(*[getattr(step, column) for column in STEP_COLUMNS])


# The columns of a step's first fields, in their order, and those of a new call with the parameters for them.
COLUMNS_OF_FIELDS = {
    "pk": "id", "plan_pk": "plan_id", "parent_pk": "parent_id", "call_pk": "call_id", "ready_since": "waiting_since",
}  # fmt: skip
STEP_COLUMNS = [COLUMNS_OF_FIELDS.get(each.name, each.name) for each in fields(ClaimedStep)[:15]]
CALL_FIELDS = [each for each in Call._meta.concrete_fields if not isinstance(each, AutoField)]
CALL_COLUMNS = ", ".join(str(each.column) for each in CALL_FIELDS)
CALL_VALUES = ", ".join(["%s"] * len(CALL_FIELDS))


def _status_allows(moves: StatusMoves, to: str) -> str:
    return "status IN ({})".format(", ".join(f"'{status}'" for status in allowed_sources(moves, to)))


NOT_PAUSED = "NOT EXISTS (SELECT 1 FROM plans_plan AS plan WHERE plan.id = plan_id AND plan.paused_at IS NOT NULL)"
NEW_CALL_KEY = "nextval('catalog_call_id_seq')"
DEADLINE = "(SELECT plan.deadline_at FROM plans_plan AS plan WHERE plan.id = plan_id)"
# The transaction shares the lock of stops, so that none is set after this read: it needs no statement of its own.
UNCOUNTED_STOPS = "EXISTS (SELECT 1 FROM approvals_stop WHERE counted_at IS NULL)"
CLAIM = (
    f"UPDATE plans_step SET status = '{StepStatus.IN_PROGRESS}', claimed_by = %s, lease_until = %s, "
    "attempt = attempt + 1, ready_at = NULL, waiting_for = '', waiting_since = ready_at, "
    "started_at = COALESCE(started_at, %s) "
    f"WHERE id = {{which}} AND ready_at IS NOT NULL AND {NOT_PAUSED}{{limit}} "
    f"AND {_status_allows(STEP_MOVES, StepStatus.IN_PROGRESS)} "
    f"RETURNING {', '.join(STEP_COLUMNS)}, {DEADLINE}, {UNCOUNTED_STOPS}{{more}}"
)
NEXT_READY = "(SELECT id FROM plans_step WHERE plan_id = %s AND ready_at <= %s ORDER BY id LIMIT 1{skip})"
CLAIM_FOR_CLIENT = (
    f"UPDATE plans_step SET claimed_by = %s, lease_until = %s, attempt = attempt + 1, waiting_for = '' "
    f"WHERE id = %s AND status = '{StepStatus.IN_PROGRESS}' AND waiting_for = '{WaitingFor.CLIENT}' "
    f"AND lease_until IS NULL AND ready_at IS NULL AND {NOT_PAUSED} AND EXISTS (SELECT 1 FROM catalog_call AS call "
    f"WHERE call.id = call_id AND {_status_allows(CALL_MOVES, CallStatus.RUNNING)}) "
    f"RETURNING {', '.join(STEP_COLUMNS)}, {DEADLINE}"
)
BELOW_STEP_LIMIT = (
    " AND (SELECT COUNT(*) FROM plans_step AS busy WHERE busy.plan_id = %s AND busy.lease_until IS NOT NULL) < %s"
)
FENCED = "WHERE id = %s AND claimed_by = %s AND attempt = %s AND "
COMPLETE_STEP = (
    f"UPDATE plans_step SET status = '{StepStatus.COMPLETED}', completed_at = %s, skipped = %s, lease_until = NULL, "
    f"waiting_for = '', claimed_by = '' {FENCED}{_status_allows(STEP_MOVES, StepStatus.COMPLETED)}"
)
FAIL_STEP = (
    f"UPDATE plans_step SET status = '{StepStatus.FAILED}', completed_at = %s, error = %s, lease_until = NULL, "
    f"waiting_for = '', claimed_by = '' {FENCED}{_status_allows(STEP_MOVES, StepStatus.FAILED)}"
)
RELEASE_STEP = (
    "UPDATE plans_step SET waiting_for = %s, waiting_since = %s, ready_at = %s, call_id = %s, lease_until = NULL, "
    f"claimed_by = '' {FENCED}status = '{StepStatus.IN_PROGRESS}'"
)
RENEW = f"UPDATE plans_step SET lease_until = %s {FENCED}status = '{StepStatus.IN_PROGRESS}'"
# A step is active if it runs, waits or is ready. The calls of agents count only there: the agent's own step tells
# whether they succeeded.
ACTIVE_STEPS = (
    "SELECT COUNT(*) FROM plans_step AS step WHERE step.plan_id = plans_plan.id "
    f"AND (step.status = '{StepStatus.IN_PROGRESS}' OR step.ready_at IS NOT NULL)"
)
INCOMPLETE_STEPS = (
    "SELECT COUNT(*) FROM plans_step AS step WHERE step.plan_id = plans_plan.id AND step.parent_id IS NULL "
    f"AND step.status <> '{StepStatus.COMPLETED}'"
)
SETTLE_PLAN = (
    f"UPDATE plans_plan SET status = CASE ({INCOMPLETE_STEPS}) WHEN 0 THEN '{PlanStatus.COMPLETED}' "
    f"ELSE '{PlanStatus.FAILED}' END, completed_at = %s, paused_at = NULL, paused_by_id = NULL "
    f"WHERE id = %s AND kind <> '{Plan.Kind.SESSION}' AND {_status_allows(PLAN_MOVES, PlanStatus.COMPLETED)} "
    f"AND {_status_allows(PLAN_MOVES, PlanStatus.FAILED)} AND ({ACTIVE_STEPS}) = 0 RETURNING status"
)
INSERT_CALL = f"INSERT INTO catalog_call ({CALL_COLUMNS}) VALUES ({CALL_VALUES}) RETURNING id"
SET_STEP_CALL = f"UPDATE plans_step SET call_id = %s {FENCED}status = '{StepStatus.IN_PROGRESS}'"
INSERT_KEYED_CALL = (
    f"INSERT INTO catalog_call (id, {CALL_COLUMNS}) "
    f"VALUES (COALESCE(%s::bigint, {NEW_CALL_KEY}), {CALL_VALUES}) RETURNING id"
)
# Both in one statement, to save a round trip to PostgreSQL.
INSERT_STEP_CALL = (
    f"WITH stored AS ({INSERT_KEYED_CALL}) UPDATE plans_step SET call_id = stored.id FROM stored "
    f"WHERE plans_step.id = %s AND claimed_by = %s AND attempt = %s AND status = '{StepStatus.IN_PROGRESS}' "
    "RETURNING stored.id"
)
READY_DEPENDENTS = (
    "UPDATE plans_step SET dependencies_left = dependencies_left - 1, ready_at = CASE WHEN dependencies_left = 1 "
    f"AND status = '{StepStatus.PENDING}' THEN {{now}} ELSE ready_at END "
    "{those} RETURNING id, dependencies_left"
)
DEPENDENTS = "SELECT step_id FROM plans_stepdependency WHERE needs_id = {step}"
READY_ON_SQLITE = READY_DEPENDENTS.format(now="%s", those=f"WHERE id IN ({DEPENDENTS.format(step='%s')})")
# Without statistics PostgreSQL plans a sequential scan and keeps that plan while the table grows. The LIMIT of unknown
# value makes it expect few rows and look each up by key.
READY_ON_POSTGRESQL = READY_DEPENDENTS.format(
    now="%s::timestamptz",
    those=f"FROM (SELECT unnest(ARRAY({DEPENDENTS})) AS dependent LIMIT (SELECT NULL::bigint)) AS those "
    "WHERE id = dependent",
)
START_CALL = (
    f"UPDATE catalog_call SET status = '{CallStatus.RUNNING}', started_at = %s, fence = %s, attempt = attempt + 1 "
    f"WHERE id = %s AND {_status_allows(CALL_MOVES, CallStatus.RUNNING)}"
)
END_CALL = (
    "UPDATE catalog_call SET status = %s, response = %s, message = %s, error_kind = %s, content = %s, warnings = %s, "
    "finished_at = %s "
    f"WHERE id = %s AND fence = %s AND status = '{CallStatus.RUNNING}'"
)
# One statement as well; each part depends on the row that the part before has changed.
END_STEP = (
    f"WITH ended AS ({END_CALL} RETURNING id), "
    f"completed AS ({COMPLETE_STEP} AND EXISTS (SELECT FROM ended) RETURNING id), "
    f"readied AS ({READY_ON_POSTGRESQL.format(step='(SELECT id FROM completed)')}) "
    "SELECT (SELECT COUNT(*) FROM ended), (SELECT COUNT(*) FROM completed), "
    "(SELECT COUNT(*) FROM readied WHERE dependencies_left = 0)"
)
WRITE_MEMORY = (
    "INSERT INTO plans_memoryitem (plan_id, type, key, value, step_id, at) VALUES (%s, 'value', %s, %s, %s, %s) "
    "ON CONFLICT (plan_id, key) WHERE type = 'value' DO UPDATE SET value = excluded.value, "
    "step_id = excluded.step_id, at = excluded.at"
)


def _changed_row(cursor: CursorWrapper) -> bool:
    return bool(cursor.rowcount == 1)


@dataclass(frozen=True, slots=True)
class Lease:
    owner: str
    now: datetime
    until: datetime


def claim_next(cursor: CursorWrapper, plan_pk: int, lease: Lease) -> ClaimedStep | None:
    """Claim the plan's next ready step; None if there is none, the plan is paused or has too many running steps."""
    statement = _next_statement(settings.TOOLGATE_MAX_RUNNING_PER_PLAN)
    limit = [plan_pk, settings.TOOLGATE_MAX_RUNNING_PER_PLAN] if settings.TOOLGATE_MAX_RUNNING_PER_PLAN else []
    return _claim(cursor, statement, [plan_pk, bind_datetime(lease.now), *limit], lease)


@cache
def _next_statement(limit: int) -> str:
    skip = "" if on_sqlite() else " FOR UPDATE SKIP LOCKED"
    return _claim_statement(NEXT_READY.format(skip=skip), limit=BELOW_STEP_LIMIT if limit else "")


def claim_step(cursor: CursorWrapper, step_pk: int, lease: Lease) -> ClaimedStep | None:
    """Claim this step; None if it is not ready or its plan is paused."""
    return _claim(cursor, _claim_statement("%s"), [step_pk], lease)


def claim_for_client(cursor: CursorWrapper, step_pk: int, lease: Lease) -> ClaimedStep | None:
    """Claim the step of a call that its client may start now; None if it may not, or if its plan is paused."""
    cursor.execute(CLAIM_FOR_CLIENT, [lease.owner, bind_datetime(lease.until), step_pk])
    row = cursor.fetchone()
    return ClaimedStep(*row) if row else None


def insert_claimed_step(cursor: CursorWrapper, step: Step, lease: Lease) -> ClaimedStep:
    """Insert the step of a direct call, claimed from the beginning.

    On PostgreSQL the row refers in advance to the call, which the same transaction inserts with a reserved key.
    """
    step.status, step.attempt = StepStatus.IN_PROGRESS, 1
    step.claimed_by, step.lease_until = lease.owner, lease.until
    step.started_at = step.waiting_since = lease.now
    step.ready_at = None
    insert_row(cursor, step, **({} if on_sqlite() else {"call_id": NEW_CALL_KEY}))
    claimed_step, new_call_pk = ClaimedStep.from_row(step), step.call_id
    return replace(claimed_step, call_pk=None, new_call_pk=new_call_pk, is_linked=new_call_pk is not None)


def _claim_statement(which: str, *, limit: str = "") -> str:
    return CLAIM.format(which=which, limit=limit, more="" if on_sqlite() else f", {NEW_CALL_KEY}")


def _claim(cursor: CursorWrapper, statement: str, parameters: list[Any], lease: Lease) -> ClaimedStep | None:
    moment = bind_datetime(lease.now)
    cursor.execute(statement, [lease.owner, bind_datetime(lease.until), moment, *parameters])
    row = cursor.fetchone()
    return ClaimedStep(*row) if row else None


def complete_step(cursor: CursorWrapper, step: ClaimedStep, *, now: datetime, skipped: bool) -> bool:
    """Complete the step; return False if its lease was lost."""
    cursor.execute(COMPLETE_STEP, _complete_row(step, now, skipped=skipped))
    return _changed_row(cursor)


def _complete_row(step: ClaimedStep, now: datetime, *, skipped: bool = False) -> list[Any]:
    return [bind_datetime(now), skipped, step.pk, step.claimed_by, step.attempt]


def fail_step(cursor: CursorWrapper, step: ClaimedStep, *, now: datetime, error: str) -> bool:
    """Fail the step with a message for people; return False if its lease was lost."""
    cursor.execute(FAIL_STEP, [bind_datetime(now), error, step.pk, step.claimed_by, step.attempt])
    return _changed_row(cursor)


@dataclass(frozen=True, slots=True)
class StepWait:
    """The wait of a released step: its reason, its call, and the time at which it is ready (None: set by a person)."""

    waiting_for: str
    call_pk: int | None
    now: datetime
    ready_at: datetime | None = None


def release_step(cursor: CursorWrapper, step: ClaimedStep, wait: StepWait) -> bool:
    """Release the step's lease and let it wait; return False if the lease was lost."""
    ready_at = bind_datetime(wait.ready_at) if wait.ready_at else None
    cursor.execute(
        RELEASE_STEP,
        [
            wait.waiting_for,
            bind_datetime(wait.now),
            ready_at,
            wait.call_pk,
            step.pk,
            step.claimed_by,
            step.attempt,
        ],
    )
    return _changed_row(cursor)


def ready_dependents(cursor: CursorWrapper, step_pk: int, *, now: datetime) -> int:
    """Decrement the open dependencies of each dependent; return how many became ready."""
    statement = READY_ON_SQLITE if on_sqlite() else READY_ON_POSTGRESQL.format(step="%s")
    cursor.execute(statement, [bind_datetime(now), step_pk])
    return sum(1 for _, left in cursor.fetchall() if left == 0)


def insert_call(cursor: CursorWrapper, call: Call) -> None:
    cursor.execute(INSERT_CALL, _call_row(call))
    call.pk = cursor.fetchone()[0]


def insert_step_call(cursor: CursorWrapper, step: ClaimedStep, call: Call, *, just_claimed: bool = False) -> bool:
    """Insert a new call and assign it to the step; return False if the step's lease was lost.

    With `just_claimed` the step was claimed in this transaction and cannot be lost, so the statement is pipelined.
    """
    if on_sqlite():
        insert_call(cursor, call)
        cursor.execute(SET_STEP_CALL, [call.pk, step.pk, step.claimed_by, step.attempt])
        return _changed_row(cursor)
    if step.is_linked:
        execute_pipelined(cursor, INSERT_KEYED_CALL, [step.new_call_pk, *_call_row(call)])
        call.pk = step.new_call_pk
        return True
    parameters = [step.new_call_pk, *_call_row(call), step.pk, step.claimed_by, step.attempt]
    if just_claimed and step.new_call_pk:
        execute_pipelined(cursor, INSERT_STEP_CALL, parameters)
        call.pk = step.new_call_pk
        return True
    cursor.execute(INSERT_STEP_CALL, parameters)
    row = cursor.fetchone()
    call.pk = row[0] if row else None
    return row is not None


def _call_row(call: Call) -> list[Any]:
    values = [getattr(call, each.attname) for each in CALL_FIELDS]
    return [bind_datetime(each) if isinstance(each, datetime) else each for each in values]


def start_call(cursor: CursorWrapper, call_pk: int, *, fence: int, now: datetime) -> bool:
    """Start a stored call under the step's fencing token; return False if it may no longer start."""
    cursor.execute(START_CALL, [bind_datetime(now), fence, call_pk])
    return _changed_row(cursor)


@dataclass(frozen=True, slots=True)
class CallEnding:
    """The end of a running call: status, standard response as JSON, message, error kind, content, warnings."""

    status: CallStatus
    response: str
    message: str
    error_kind: str
    now: datetime
    content: str = ""
    warnings: str = ""


def insert_ended_plan(cursor: CursorWrapper, plan: Plan, step: ClaimedStep, call: Call, ending: CallEnding) -> None:
    """Insert the plan of a direct call that has ended, with its only step and the call; set their keys."""
    plan.status, plan.completed_at = PlanStatus.COMPLETED, ending.now
    call.status, call.response, call.message = ending.status, ending.response, ending.message
    call.error_kind, call.finished_at = ending.error_kind, ending.now
    if on_sqlite():
        insert_row(cursor, plan)
        insert_call(cursor, call)
    else:  # two round trips: the call's key comes with the plan's, and the rest goes with COMMIT
        key = execute_pipelined(cursor, f"SELECT {NEW_CALL_KEY}", [])
        insert_row(cursor, plan)
        call.pk = key.fetchone()[0]
        execute_pipelined(cursor, INSERT_KEYED_CALL, [call.pk, *_call_row(call)])
    values = {name: getattr(step, name) for name in ("step_id", "description", "tool", "parameters", "attempt")}
    values |= {"plan_id": plan.pk, "call_id": call.pk, "status": StepStatus.COMPLETED, "completed_at": ending.now}
    values |= {"started_at": call.started_at, "waiting_since": call.started_at}
    insert_row_pipelined(cursor, new_row(Step, values))


def end_call(cursor: CursorWrapper, call: Call, ending: CallEnding) -> bool:
    """End the running call; return False if it has ended or has another fencing token."""
    cursor.execute(END_CALL, _end_row(call, ending))
    return _changed_row(cursor)


def _end_row(call: Call, ending: CallEnding) -> list[Any]:
    outcome = [ending.status, ending.response, ending.message, ending.error_kind, ending.content, ending.warnings]
    return [*outcome, bind_datetime(ending.now), call.pk, call.fence]


def end_step(cursor: CursorWrapper, step: ClaimedStep, call: Call, ending: CallEnding) -> Callable[[], int]:
    """End the running call and complete its step; return a check to pass to the transaction's `defer`.

    On PostgreSQL the statement is pipelined. The check returns how many steps became ready; it raises LeaseLost if the
    call no longer runs and Conflict if only the step was lost, and then the transaction must be rolled back.
    """
    if on_sqlite():
        ended = end_call(cursor, call, ending)
        completed = ended and complete_step(cursor, step, now=ending.now, skipped=False)
        ready = ready_dependents(cursor, step.pk, now=ending.now) if completed else 0
        return lambda: _check_ended(ended, completed, ready)
    left = execute_pipelined(cursor, END_STEP, [*_end_row(call, ending), *_complete_row(step, ending.now), ending.now])
    return lambda: _check_ended(*left.fetchone())


def _check_ended(ended: int, completed: int, ready: int) -> int:
    if not ended:
        raise LeaseLost("The call is no longer running.")
    if not completed:
        raise Conflict("Another worker took over this step before its call could end.")
    return ready


def write_memory(cursor: CursorWrapper, step: ClaimedStep, key: str, value: str, *, now: datetime) -> None:
    """Store JSON text under a key of the plan's memory, replacing an earlier value."""
    execute_pipelined(cursor, WRITE_MEMORY, [step.plan_pk, key, value, step.step_id, bind_datetime(now)])


def settle_plan(cursor: CursorWrapper, plan_pk: int, *, now: datetime) -> PlanStatus | None:
    """End a plan in which no step is active: completed if all of its steps are, otherwise failed.

    Return its new status; None if a step is active, the plan has ended, or it is a session's list.
    """
    cursor.execute(SETTLE_PLAN, [bind_datetime(now), plan_pk])
    row = cursor.fetchone()
    return PlanStatus(row[0]) if row else None


def renew_lease(cursor: CursorWrapper, step: ClaimedStep, *, until: datetime) -> bool:
    """Renew the lease of one step; return False if it was lost."""
    cursor.execute(RENEW, [bind_datetime(until), step.pk, step.claimed_by, step.attempt])
    return _changed_row(cursor)


def is_paused(cursor: CursorWrapper, plan_pk: int) -> bool:
    """Return whether the plan is paused; a step claimed earlier may then not start its call."""
    cursor.execute("SELECT 1 FROM plans_plan WHERE id = %s AND paused_at IS NOT NULL", [plan_pk])
    return cursor.fetchone() is not None


def load_step(cursor: CursorWrapper, step_pk: int) -> ClaimedStep:
    cursor.execute(f"SELECT {', '.join(STEP_COLUMNS)} FROM plans_step WHERE id = %s", [step_pk])
    return ClaimedStep(*cursor.fetchone())


def reclaim_step(cursor: CursorWrapper, step: ClaimedStep, *, now: datetime) -> bool:
    """Make a step whose lease was lost claimable again; return False if it has ended."""
    cursor.execute(
        "UPDATE plans_step SET lease_until = NULL, claimed_by = '', ready_at = %s, crashes = crashes + 1 "
        f"{FENCED}status = '{StepStatus.IN_PROGRESS}'",
        [bind_datetime(now), step.pk, step.claimed_by, step.attempt],
    )
    return _changed_row(cursor)


def due_plans(cursor: CursorWrapper, *, now: datetime, limit: int, after: int = 0) -> list[int]:
    """Return the ascending keys, above `after`, of plans that have a ready, unclaimed step and are not paused."""
    cursor.execute(
        f"SELECT DISTINCT plan_id FROM plans_step WHERE ready_at <= %s AND plan_id > %s AND {NOT_PAUSED} "
        "ORDER BY plan_id LIMIT %s",
        [bind_datetime(now), after, limit],
    )
    return [plan_pk for (plan_pk,) in cursor.fetchall()]


def ended_plans(cursor: CursorWrapper, plan_pks: Collection[int]) -> list[int]:
    keys, statuses = list(plan_pks), sorted(map(str, PLAN_TERMINAL))
    marks = [", ".join(["%s"] * len(each)) for each in (keys, statuses)]
    cursor.execute(f"SELECT id FROM plans_plan WHERE id IN ({marks[0]}) AND status IN ({marks[1]})", [*keys, *statuses])
    return [plan_pk for (plan_pk,) in cursor.fetchall()]


def lost_steps(cursor: CursorWrapper, *, now: datetime, limit: int) -> list[ClaimedStep]:
    cursor.execute(
        f"SELECT {', '.join(STEP_COLUMNS)} FROM plans_step WHERE lease_until < %s ORDER BY lease_until LIMIT %s",
        [bind_datetime(now), limit],
    )
    return [ClaimedStep(*row) for row in cursor.fetchall()]


def is_lost(cursor: CursorWrapper, step: ClaimedStep, *, now: datetime) -> bool:
    """Return whether the step's lease is still expired, and lock the step until the transaction ends."""
    lock = "" if on_sqlite() else " FOR UPDATE"
    cursor.execute(
        f"SELECT 1 FROM plans_step {FENCED}lease_until < %s{lock}",
        [step.pk, step.claimed_by, step.attempt, bind_datetime(now)],
    )
    return cursor.fetchone() is not None
