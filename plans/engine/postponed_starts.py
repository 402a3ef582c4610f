"""Steps whose dangerous call could not be witnessed: they wait, and look again by themselves.

A call that is put back was started and its handler has not begun: the start counts as no attempt, and not
against the plan's budget.
"""

from datetime import timedelta
from typing import Any

from approvals.errors import AuditUnavailable
from catalog.core.transactions import try_move
from catalog.models import Call
from catalog.states import CallStatus
from plans.engine import limits
from plans.engine.work import RunningCall
from plans.states import WaitingFor
from plans.store import statements
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction

DELAY = timedelta(seconds=10)
"""How long a step waits before it is tried again."""
WORKER_STOPPED = "worker_stopped"
UNSTARTED_REASONS = frozenset({WORKER_STOPPED, AuditUnavailable.code})
"""Why a start that history and audit log tell of was no attempt."""


def postpone_start(tx: PlanTransaction, step: ClaimedStep) -> None:
    """Let a claimed step wait whose start could not be witnessed."""
    if statements.release_step(tx.cursor, step, _retry_wait(tx, step.call_pk)):
        tx.record("step.retrying", step.step_id, **_event_data())


def postpone_started_call(tx: PlanTransaction, run: RunningCall) -> None:
    """Let a started call wait whose checkpoint could not be written."""
    return_unstarted_call(tx, run, _retry_wait(tx, run.call.pk), **_event_data())


def return_unstarted_call(tx: PlanTransaction, run: RunningCall, parking: StepWait, **told: Any) -> None:
    """Let a started call whose handler has not begun be ready again; `told` says in its event why."""
    if statements.release_step(tx.cursor, run.step, parking):
        started = Call.objects.filter(pk=run.call.pk, fence=run.call.fence)
        if try_move(started, to=CallStatus.READY, attempt=run.call.attempt - 1):
            limits.give_back_call(tx.cursor, run.plan)
        tx.record("step.retrying", run.step.step_id, call=run.call.public_id, attempt=run.call.attempt, **told)


def _retry_wait(tx: PlanTransaction, call_pk: int | None) -> StepWait:
    return StepWait(WaitingFor.RETRY, call_pk, tx.now, tx.now + DELAY)


def _event_data() -> dict[str, Any]:
    return {"seconds": DELAY.seconds, "error": AuditUnavailable.code}
