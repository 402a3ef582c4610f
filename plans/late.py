"""What comes of an attempt that no longer counts, or whose handler could not be stopped: it is noted beside its call.

Nothing here moves a status; what came too late is kept as evidence for whoever settles the call.
"""

import json
from typing import Any

from django.db.models import QuerySet

from catalog.dispatch import pipeline
from catalog.models import Call
from catalog.states import CallStatus
from plans import reports
from plans.store.transactions import Recording
from plans.work import Run

as_json = json.JSONEncoder(ensure_ascii=False).encode


def left_to_others(run: Run, outcome: pipeline.Outcome, told: str) -> None:
    """Tell of an attempt that did not end its call, and keep what it gave when its lease was lost."""
    if told == reports.LATE and not outcome.left_running:  # else it has not given anything yet
        keep_as_evidence(run.call, evidence_of(run, outcome, outcome.late or outcome))
    reports.attempt_ended(run, told)


def come_back(batch: Recording, run: Run, outcome: pipeline.Outcome) -> bool:
    """Note that a handler which was left running came back, with what it answered; False when it was not left.

    Another attempt may have been left running since: then the call still says so.
    """
    if not run.left_at or _runs(run.call).exists():
        return False
    noted = Call.objects.filter(pk=run.call.pk, left_running_at=run.left_at[-1])
    noted.update(came_back_at=batch.now)
    reports.attempt_ended(run, reports.LATE)
    if outcome.late is not None or outcome.not_restored:
        keep_as_evidence(run.call, evidence_of(run, outcome, outcome.late or outcome))
    names = {"call": run.call.public_id, "tool": run.call.tool_name}
    if outcome.restored:
        batch.add("call.restored", run.step.step_id, call=run.call.public_id)
    batch.add(
        "tool.invoked", run.step.step_id, **names, success=outcome.late is not None and outcome.late.success, late=True
    )
    return True


def note_left(batch: Recording, run: Run) -> None:
    """Note that the attempt ends while its handler goes on; one that has just come back has ended it already."""
    if _runs(run.call).update(left_running_at=batch.now, came_back_at=None):
        run.left_at.append(batch.now)


def _runs(call: Call) -> QuerySet[Call]:
    """Return the call while it runs in this attempt."""
    return Call.objects.filter(pk=call.pk, fence=call.fence, status=CallStatus.RUNNING)


def evidence_of(run: Run, outcome: pipeline.Outcome, late: pipeline.Outcome) -> str:
    """Return what came too late, of which attempt, and whether what that had changed was undone."""
    response = pipeline.standard_response(run.order.target.tool, run.order.shown, late)
    undone: dict[str, Any] = {"restored": True} if outcome.restored else {}
    kept = {"not_restored": list(outcome.not_restored)} if outcome.not_restored else {}
    return as_json(response | {"attempt": run.call.attempt} | undone | kept)


def keep_as_evidence(call: Call, evidence: str) -> None:
    """A result that came too late changes nothing, but whoever settles the call may want to see it."""
    Call.objects.filter(pk=call.pk, late_evidence="").update(late_evidence=evidence)
