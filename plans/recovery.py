"""What is left behind when a worker dies: expired leases are taken back, and nothing dangerous runs twice."""

from datetime import datetime

from django.db import connection

from catalog.definitions import SafetyLevel
from catalog.models import Call
from catalog.states import CallStatus
from catalog.transitions import try_move
from plans import carriers, claims, finishing
from plans.claims import Claimed
from plans.events import Recording, recording
from plans.work import plan_facts

BATCH = 100


def take_back_lost_steps(now: datetime) -> int:
    """Take back the steps whose lease has expired; return how many there were."""
    with connection.cursor() as cursor:
        lost = claims.lost_steps(cursor, now=now, limit=BATCH)
    for step in lost:
        plan = plan_facts(step.plan_pk)
        with recording(plan.pk, plan.ref) as batch:
            _take_back(batch, step)
    return len(lost)


def _take_back(batch: Recording, step: Claimed) -> None:
    """Give the step to another worker when its call may run (again), else to a person."""
    call = Call.objects.select_related("version").filter(pk=step.call_pk or 0).first()
    running = call is not None and call.status == CallStatus.RUNNING
    if call is not None and running and not _may_run_again(call):
        finishing.park_as_unknown(batch, step, call)
        return
    if not claims.take_back(batch.cursor, step, now=batch.now):
        return
    if call is not None and running:
        try_move(Call.objects.filter(pk=call.pk), to=CallStatus.READY)
        batch.add("step.retrying", step.step_id, attempt=call.attempt, error="worker_lost")
    carriers.hint(step.plan_pk)


def _may_run_again(call: Call) -> bool:
    if call.attempt >= finishing.CRASHES or call.version.safety_level == SafetyLevel.DANGEROUS:
        return False
    return call.version.safety_level == SafetyLevel.SAFE or call.version.retry_safe
