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
from plans.engine.work import Run
from plans.states import WaitingFor
from plans.store import statements
from plans.store.statements import Claimed, Parking
from plans.store.transactions import Recording

DELAY = timedelta(seconds=10)
"""How long a step waits before it is tried again."""
WORKER_STOPPED = "worker_stopped"
PUT_BACK = frozenset({WORKER_STOPPED, AuditUnavailable.code})
"""Why a start that history and audit log tell of was no attempt."""


def put_off(batch: Recording, step: Claimed) -> None:
    """Let a claimed step wait whose start could not be witnessed."""
    if statements.park_step(batch.cursor, step, _waiting(batch, step.call_pk)):
        batch.add("step.retrying", step.step_id, **_told())


def put_off_started(batch: Recording, run: Run) -> None:
    """Let a started call wait whose checkpoint could not be written."""
    put_back(batch, run, _waiting(batch, run.call.pk), **_told())


def put_back(batch: Recording, run: Run, parking: Parking, **told: Any) -> None:
    """Let a started call whose handler has not begun be ready again; `told` says in its event why."""
    if statements.park_step(batch.cursor, run.step, parking):
        started = Call.objects.filter(pk=run.call.pk, fence=run.call.fence)
        if try_move(started, to=CallStatus.READY, attempt=run.call.attempt - 1):
            limits.give_back_call(batch.cursor, run.plan)
        batch.add("step.retrying", run.step.step_id, call=run.call.public_id, attempt=run.call.attempt, **told)


def _waiting(batch: Recording, call_pk: int | None) -> Parking:
    return Parking(WaitingFor.RETRY, call_pk, batch.now, batch.now + DELAY)


def _told() -> dict[str, Any]:
    return {"seconds": DELAY.seconds, "error": AuditUnavailable.code}
