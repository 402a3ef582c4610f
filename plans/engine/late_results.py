"""Superseded attempts: checks whether an attempt still counts, and storage of results that came too late.

Nothing here changes a status. A late result is stored with its call as evidence for the person who settles it.
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
"""Share of a lease during which a worker relies on it without a query."""


def holds_lease(running_call: RunningCall) -> bool:
    """Return whether this worker still holds the call's lease; renews it if it may soon expire.

    Queries the database before the lease is over, because this process's estimate of the database time lags.
    """
    now, seconds = clock.now(), timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS)
    if running_call.call.started_at is None or now < running_call.call.started_at + TRUSTED_LEASE_SHARE * seconds:
        return True
    with connection.cursor() as cursor:
        return statements.renew_lease(cursor, running_call.step, until=now + seconds)


def may_undo(running_call: RunningCall) -> bool:
    """Return whether this attempt's changes may be undone: no later attempt has begun and the call is not settled.

    Another attempt may have made the same change, and people rely on a settled call. If a call ended while its handler
    could not be stopped, its changes are undone when the handler returns.
    """
    step, call = running_call.step, running_call.call
    mine = Step.objects.filter(pk=step.pk, attempt=step.attempt, call=call.pk, call__fence=call.fence)
    return mine.exclude(call__status=CallStatus.COMPLETED).exclude(call__error_kind=SETTLED).exists()


as_json = json.JSONEncoder(ensure_ascii=False).encode


def record_superseded(running_call: RunningCall, outcome: pipeline.CallOutcome, status: str) -> None:
    """Report an attempt that did not end its call; if its lease was lost, keep the result as evidence."""
    if status == reports.LATE and not outcome.left_running:  # a handler left running has no result yet
        keep_as_evidence(running_call.call, evidence_of(running_call, outcome, outcome.late or outcome))
    reports.report_attempt_ended(running_call, status)


def record_late_return(tx: PlanTransaction, running_call: RunningCall, outcome: pipeline.CallOutcome) -> bool:
    """Record that a handler that was left running has returned; return False if it was not left running.

    The call stays marked as left running if a later attempt was left running too.
    """
    call, step_id = running_call.call, running_call.step.step_id
    if not running_call.abandoned_at or _running_attempt(call).exists():
        return False
    noted = Call.objects.filter(pk=call.pk, left_running_at=running_call.abandoned_at[-1])
    noted.update(came_back_at=tx.now)
    reports.report_attempt_ended(running_call, reports.LATE)
    if outcome.late is not None or outcome.not_restored:
        keep_as_evidence(call, evidence_of(running_call, outcome, outcome.late or outcome))
    if outcome.restored:
        tx.record("call.restored", step_id, call=call.public_id)
    success = outcome.late is not None and outcome.late.success
    tx.record("tool.invoked", step_id, call=call.public_id, tool=call.tool_name, success=success, late=True)
    return True


def record_abandoned(tx: PlanTransaction, running_call: RunningCall) -> None:
    """Record that the attempt ends while its handler is still running, unless it has just returned."""
    if _running_attempt(running_call.call).update(left_running_at=tx.now, came_back_at=None):
        running_call.abandoned_at.append(tx.now)


def _running_attempt(call: Call) -> QuerySet[Call]:
    return Call.objects.filter(pk=call.pk, fence=call.fence, status=CallStatus.RUNNING)


def evidence_of(running_call: RunningCall, outcome: pipeline.CallOutcome, late_outcome: pipeline.CallOutcome) -> str:
    """Return the late response as JSON, with its attempt and whether its changes were undone."""
    prepared = running_call.prepared
    response = pipeline.standard_response(prepared.target.tool, prepared.given_arguments, late_outcome)
    undone: dict[str, Any] = {"restored": True} if outcome.restored else {}
    kept = {"not_restored": list(outcome.not_restored)} if outcome.not_restored else {}
    return as_json(response | {"attempt": running_call.call.attempt} | undone | kept)


def keep_as_evidence(call: Call, evidence: str) -> None:
    """Store a late result for the person who settles the call, unless one is stored already."""
    Call.objects.filter(pk=call.pk, late_evidence="").update(late_evidence=evidence)
