"""Automatic retries: after a failure, a lost worker, or a start that did not take place.

- A failed call is retried up to TRIES attempts with growing delays, if its tool allows it.
- A call whose worker was lost runs again if that is harmless; otherwise a person settles it.
- A dangerous call whose start could not be written to the checkpoint file is postponed. A started call whose handler
  has not begun can be returned: the start then counts neither as an attempt nor against the plan's budget.
- A step whose tool has other code here than in the catalog is left to other processes, up to MAX_RELEASES times.
"""

import random
from datetime import datetime, timedelta
from itertools import takewhile
from time import monotonic
from typing import Any

from approvals.errors import AuditUnavailable
from catalog.core.transactions import try_move
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.tool import Tool
from catalog.dispatch import pipeline
from catalog.models import Call, ToolVersion
from catalog.states import CallStatus
from plans.engine.work import RunningCall
from plans.models import Event, Plan
from plans.states import PLAN_TERMINAL, WaitingFor
from plans.store import statements
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction

TRIES = 3
RETRY_JITTER = (0.8, 1.2)
"""Limits of the random factor of the delay before a retry."""
CRASHES = 3
"""A call that loses its worker this often must be settled by a person."""
UNWITNESSED_DELAY = timedelta(seconds=10)
"""Delay of a step whose start could not be written to the checkpoint file."""
WORKER_STOPPED = "worker_stopped"
UNSTARTED_REASONS = frozenset({WORKER_STOPPED, AuditUnavailable.code})
"""Reasons for which a recorded start does not count as an attempt."""
GIVE_BACK_CALL = "UPDATE plans_plan SET calls_used = calls_used - 1 WHERE id = %s AND calls_used > 0"


def retry_later(
    tx: PlanTransaction, step: ClaimedStep, until: datetime | None, *, call: Call | None = None, **data: Any
) -> bool:
    """Release a claimed step to be retried at `until` (None: at once); return False if its lease was lost.

    `call` is the started call, if there is one; `data` goes into the event.
    """
    reason, call_pk = WaitingFor.RETRY if until else "", call.pk if call else step.call_pk
    if not statements.release_step(tx.cursor, step, StepWait(reason, call_pk, tx.now, until or tx.now)):
        return False
    tx.record("step.retrying", step.step_id, **({"call": call.public_id} if call else {}), **data)
    return True


def is_repeatable(tool: Tool[Any, Any] | ToolVersion) -> bool:
    """Return whether a call of the tool may run again although it may have taken effect."""
    if tool.safety_level == SafetyLevel.DANGEROUS:
        return False
    return tool.safety_level == SafetyLevel.SAFE or tool.retry_safe


def may_run_again(call: Call) -> bool:
    """Return whether a call may run again automatically after its worker was lost."""
    return call.attempt < CRASHES and is_repeatable(call.version)


def plan_is_over(tx: PlanTransaction) -> bool:
    return Plan.objects.filter(pk=tx.plan_pk, status__in=PLAN_TERMINAL).exists()


def most_attempts(tool: Tool[Any, Any]) -> int:
    """Return how often a call of the tool may be made in all, if its attempts fail in a way that permits another."""
    return TRIES if tool.retry_safe and tool.safety_level != SafetyLevel.DANGEROUS else 1


def retry_delay(tx: PlanTransaction, running_call: RunningCall, outcome: pipeline.CallOutcome) -> timedelta | None:
    """Return the delay before the call's next attempt; None if it may not be retried before the plan's deadline."""
    most = most_attempts(running_call.prepared.target.tool)
    if outcome.success or not outcome.retryable or running_call.call.attempt >= most or plan_is_over(tx):
        return None
    usual = 2 ** (running_call.call.attempt - 1) * random.uniform(*RETRY_JITTER)  # noqa: S311 (jitter, not a secret)
    delay = timedelta(seconds=max(usual, outcome.retry_after))
    deadline = running_call.plan.deadline_at
    return None if deadline and tx.now + delay >= deadline else delay


def retry_failed(
    tx: PlanTransaction, running_call: RunningCall, outcome: pipeline.CallOutcome, delay: timedelta
) -> bool:
    """Schedule another attempt of the call after a delay; return False if its lease was lost."""
    left = {"left_running": True} if outcome.left_running else {}
    if not retry_later(
        tx, running_call.step, tx.now + delay, call=running_call.call, attempt=running_call.call.attempt, of=TRIES,
        seconds=round(delay.total_seconds(), 1), error=outcome.error_kind, **left,
    ):  # fmt: skip
        return False
    try_move(Call.objects.filter(pk=running_call.call.pk), to=CallStatus.READY)
    return True


def postpone_start(tx: PlanTransaction, step: ClaimedStep) -> None:
    """Postpone a claimed step whose start could not be written to the checkpoint file."""
    seconds = UNWITNESSED_DELAY.seconds
    retry_later(tx, step, tx.now + UNWITNESSED_DELAY, seconds=seconds, error=AuditUnavailable.code)


def postpone_started_call(tx: PlanTransaction, running_call: RunningCall) -> None:
    """Postpone a started call whose checkpoint could not be written."""
    until, seconds = tx.now + UNWITNESSED_DELAY, UNWITNESSED_DELAY.seconds
    return_unstarted_call(tx, running_call, until, seconds=seconds, error=AuditUnavailable.code)


def return_unstarted_call(tx: PlanTransaction, running_call: RunningCall, until: datetime | None, **data: Any) -> None:
    """Make a started call whose handler has not begun ready again; `data` goes into the event."""
    plan, call = running_call.plan, running_call.call
    if retry_later(tx, running_call.step, until, call=call, attempt=call.attempt, **data):
        started = Call.objects.filter(pk=call.pk, fence=call.fence)
        if try_move(started, to=CallStatus.READY, attempt=call.attempt - 1) and plan.has_budget:
            tx.cursor.execute(GIVE_BACK_CALL, [plan.pk])


MAX_RELEASES = 5
RELEASE_SECONDS = 1.0
RELEASED_PAUSE_SECONDS = 3.0
"""Delay in seconds before this process wakes a plan that it left to others; other processes poll every second."""
DRIFTED = "drifted"

_released_until: dict[int, float] = {}


def release_for_other_worker(tx: PlanTransaction, step: ClaimedStep) -> bool:
    """Release a claimed step for another process; return False if it was released MAX_RELEASES times already."""
    events = Event.objects.filter(plan_id=tx.plan_pk, step_id=step.step_id).exclude(type="step.started")
    lately = events.order_by("-seq").values_list("type", "data")[:MAX_RELEASES]
    times = sum(1 for _ in takewhile(lambda each: each[0] == "step.retrying" and f'"{DRIFTED}"' in each[1], lately))
    until = tx.now + timedelta(seconds=RELEASE_SECONDS)
    if times >= MAX_RELEASES or not retry_later(
        tx, step, until, attempt=times + 1, of=MAX_RELEASES, seconds=RELEASE_SECONDS, error=DRIFTED
    ):
        return False
    now = monotonic()
    for plan_pk, released_until in list(_released_until.items()):
        if released_until < now:
            _released_until.pop(plan_pk, None)
    _released_until[tx.plan_pk] = now + RELEASED_PAUSE_SECONDS
    return True


def is_released_here(plan_pk: int) -> bool:
    """Return whether this process has just released a step of the plan to others."""
    return monotonic() < _released_until.get(plan_pk, 0.0)
