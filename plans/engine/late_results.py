"""Attempts that no longer count: whether one still does, and what is kept of the result that came too late.

Nothing here moves a status; a late result is kept beside its call as evidence for the person who settles it.
"""

import json
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from catalog.core import clock
from catalog.dispatch import pipeline
from catalog.models import Call
from catalog.states import CallStatus
from plans.engine import reports
from plans.engine.work import RunningCall
from plans.models import Step
from plans.states import SETTLED
from plans.store import statements
from plans.store.transactions import PlanTransaction

TRUSTED_LEASE_SHARE = 0.9
"""The part of a lease during which a worker need not ask whether it still has it."""


def holds_lease(run: RunningCall) -> bool:
    """Say whether the call is still this worker's to run; only after a lease's time can it be anyone else's.

    Asked a little earlier than that: this process's measure of the database's time lies a little behind.
    """
    now, seconds = clock.now(), timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS)
    if run.call.started_at is None or now < run.call.started_at + TRUSTED_LEASE_SHARE * seconds:
        return True
    with connection.cursor() as cursor:
        return statements.renew_lease(cursor, run.step, until=now + seconds)


def may_undo(run: RunningCall) -> bool:
    """Say whether what this attempt changed may be undone: nobody has begun another, or said what became of the call.

    Another attempt may have written the very same, and whoever settles a call may count on what is there. A call that
    ended while its handler could not be stopped is undone when that comes back.
    """
    mine = Step.objects.filter(pk=run.step.pk, attempt=run.step.attempt, call=run.call.pk, call__fence=run.call.fence)
    return mine.exclude(call__status=CallStatus.COMPLETED).exclude(call__error_kind=SETTLED).exists()


as_json = json.JSONEncoder(ensure_ascii=False).encode


def record_superseded(run: RunningCall, outcome: pipeline.CallOutcome, told: str) -> None:
    """Tell of an attempt that did not end its call, and keep what it gave when its lease was lost."""
    if told == reports.LATE and not outcome.left_running:  # else it has not given anything yet
        keep_as_evidence(run.call, evidence_of(run, outcome, outcome.late or outcome))
    reports.report_attempt_ended(run, told)


def record_late_return(tx: PlanTransaction, run: RunningCall, outcome: pipeline.CallOutcome) -> bool:
    """Note that a handler which was left running came back, with what it answered; False when it was not left.

    Another attempt may have been left running since: then the call still says so.
    """
    if not run.abandoned_at or _running_attempt(run.call).exists():
        return False
    noted = Call.objects.filter(pk=run.call.pk, left_running_at=run.abandoned_at[-1])
    noted.update(came_back_at=tx.now)
    reports.report_attempt_ended(run, reports.LATE)
    if outcome.late is not None or outcome.not_restored:
        keep_as_evidence(run.call, evidence_of(run, outcome, outcome.late or outcome))
    names = {"call": run.call.public_id, "tool": run.call.tool_name}
    if outcome.restored:
        tx.record("call.restored", run.step.step_id, call=run.call.public_id)
    tx.record(
        "tool.invoked", run.step.step_id, **names, success=outcome.late is not None and outcome.late.success, late=True
    )
    return True


def note_abandoned(tx: PlanTransaction, run: RunningCall) -> None:
    """Note that the attempt ends while its handler goes on; one that has just come back has ended it already."""
    if _running_attempt(run.call).update(left_running_at=tx.now, came_back_at=None):
        run.abandoned_at.append(tx.now)


def _running_attempt(call: Call) -> QuerySet[Call]:
    """Return the call while it runs in this attempt."""
    return Call.objects.filter(pk=call.pk, fence=call.fence, status=CallStatus.RUNNING)


def evidence_of(run: RunningCall, outcome: pipeline.CallOutcome, late: pipeline.CallOutcome) -> str:
    """Return what came too late, of which attempt, and whether what that had changed was undone."""
    response = pipeline.standard_response(run.order.target.tool, run.order.shown, late)
    undone: dict[str, Any] = {"restored": True} if outcome.restored else {}
    kept = {"not_restored": list(outcome.not_restored)} if outcome.not_restored else {}
    return as_json(response | {"attempt": run.call.attempt} | undone | kept)


def keep_as_evidence(call: Call, evidence: str) -> None:
    """A result that came too late changes nothing, but whoever settles the call may want to see it."""
    Call.objects.filter(pk=call.pk, late_evidence="").update(late_evidence=evidence)
