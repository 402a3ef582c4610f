"""Log lines, metrics and span attributes about the engine's work, emitted after commit.

They contain ids, tool names, levels and durations, never arguments, results or messages. Nothing is emitted for a
transaction that is rolled back.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic

from django.db import transaction
from structlog.contextvars import bound_contextvars

from approvals.models import ApprovalRequest
from approvals.states import APPLYING
from catalog.core import clock, tracing
from catalog.core.database import read_datetime
from catalog.core.tracing import log_extra
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallOutcome
from catalog.models import Call
from catalog.signals import Fact
from plans import metrics
from plans.engine.work import ApprovedCall, RunningCall, StaleApproval, WorkItem
from plans.models import Plan
from plans.store.statements import ClaimedStep

log = logging.getLogger("toolgate.calls")
CALL_ENDS = ("completed", "failed", "cancelled")
LATE = "late"
"""Outcome of an attempt that returned after its call had ended; logged, but not timed again."""
WARNING_ENDS = ("retrying", LATE)
WAIT = "wait for a person"
"""The name of the span from the opening of an approval request until its answer takes effect."""
WAIT_ENDS = frozenset(
    {"call.released", "call.refused", "call.responded", "call.sent_back", "approval.withdrawn", "approval.invalidated"}
)
"""Facts that end a wait for a person."""
WORK_WITH_CALL = (RunningCall, ApprovedCall, StaleApproval)


@contextmanager
def log_context(work: WorkItem) -> Iterator[None]:
    """Bind the plan, step, tool and call to the log lines and spans inside."""
    ids, traceparent = ids_of(work), work.plan.traceparent
    trace_id = tracing.trace_id_of(traceparent)
    with (
        bound_contextvars(**ids, **({"trace_id": trace_id} if trace_id else {})),
        tracing.span("step", ids, traceparent),
    ):
        yield


def ids_of(work: WorkItem) -> dict[str, str | int]:
    ids: dict[str, str | int] = {"plan": work.plan.ref, "step": work.step.step_id, "tool": work.step.tool}
    if isinstance(work, WORK_WITH_CALL):
        ids["call"] = work.call.public_id
    return ids


def run_in_span(running_call: RunningCall, run: Callable[[], CallOutcome]) -> CallOutcome:
    """Run a handler in a span and return its outcome. Without spans, an asynchronous one still has the plan's trace."""
    traceparent = running_call.plan.traceparent
    if not tracing.is_exporting():
        passes_on = running_call.prepared.target.tool.is_async and traceparent
        with tracing.remote_parent(traceparent) if passes_on else nullcontext():
            return run()
    ids = {"call": running_call.call.public_id, "tool": running_call.step.tool, "level": running_call.prepared.level}
    with tracing.span("tool call", ids | {"attempt": running_call.call.attempt}):
        outcome = run()
        if not outcome.success:
            tracing.fail_span(outcome.error_kind or "failed")
        return outcome


def report_attempt_ended(running_call: RunningCall, outcome: str) -> None:
    """Report on commit how an attempt ended: completed, failed, cancelled, retrying, outcome_unknown or late."""
    ended, call, level = monotonic(), running_call.call, running_call.prepared.level

    def report() -> None:
        if outcome != LATE:
            ready, waited = running_call.step.ready_since, None
            if ready is not None and call.started_at is not None:  # both are transaction times
                waited = max(0.0, (call.started_at - read_datetime(ready)).total_seconds())
            metrics.observe_step(level, outcome, seconds=monotonic() - running_call.began, waited=waited)
        if outcome in CALL_ENDS:
            metrics.count_ended_call(outcome, level)
        tracing.add_span_attributes(outcome=outcome, level=level)
        loudness = logging.WARNING
        if outcome not in WARNING_ENDS:
            loudness = logging.DEBUG if level == SafetyLevel.SAFE else logging.INFO  # safe calls are many
        if log.isEnabledFor(loudness):
            facts = _ids(call, running_call.step.step_id)
            facts |= {"status": outcome, "safety": level, "attempt": call.attempt}
            seconds = ended - running_call.began
            log.log(loudness, "call ended", extra=log_extra(**facts, duration_ms=round(seconds * 1000, 1)))

    transaction.on_commit(report, robust=True)


def report_lease_lost(lost_step: ClaimedStep, plan_ref: str) -> None:
    """Report on commit that a step was taken back because its lease expired."""

    def report() -> None:
        metrics.count_lost_lease()
        facts = {"plan": plan_ref, "step": lost_step.step_id, "tool": lost_step.tool, "attempt": lost_step.attempt}
        log.warning("lease lost", extra=log_extra(**facts, worker=lost_step.claimed_by))

    transaction.on_commit(report, robust=True)


def report_outcome_unknown(call: Call, step: ClaimedStep) -> None:
    """Report on commit that the outcome of a call is unknown and a person must settle it."""
    level = str(call.version.safety_level)

    def report() -> None:
        metrics.count_ended_call("outcome_unknown", level)
        facts = _ids(call, step.step_id) | {"safety": level, "attempt": call.attempt}
        log.warning("outcome unknown", extra=log_extra(**facts))

    transaction.on_commit(report, robust=True)


def _ids(call: Call, step_id: int) -> dict[str, str | int]:
    return {"plan": call.plan_ref, "step": step_id, "call": call.public_id, "tool": call.tool_name}


def trace_wait(sender: object, *, fact: Fact, **kwargs: object) -> None:
    """Add the span *wait for a person* on commit of the wait's end; receiver of the `fact` signal.

    The wait may have lasted for days and begun in another process: its times are those of the request.
    """
    if fact.kind not in WAIT_ENDS or fact.call is None or not tracing.is_exporting():
        return
    request = ApprovalRequest.objects.filter(call=fact.call).select_related("policy_revision__policy").first()
    # An approval that is withdrawn, expires or becomes void before its call has started: its wait has ended before.
    if request is None or (request.status not in APPLYING and request.applied_at is not None):
        return
    traceparent = Plan.objects.filter(public_id=fact.call.plan_ref).values_list("traceparent", flat=True).first() or ""
    ids: dict[str, str | int] = {
        "plan": fact.call.plan_ref,
        "step": int(fact.call.step_ref),
        "call": fact.call.public_id,
        "tool": fact.call.tool_name,
        "level": request.policy_revision.safety_level,
        "approval.id": request.public_id,
        "approval.status": request.status,
        "approval.round": request.round_number,
        "policy.name": request.policy_revision.policy.name,
        "policy.revision": request.policy_revision.number,
    }
    began, ended = request.opened_at, clock.now()

    def report() -> None:
        tracing.add_past_span(WAIT, ids, traceparent, began=began, ended=ended)

    transaction.on_commit(report, robust=True)


def count_review(sender: object, *, fact: Fact, **kwargs: object) -> None:
    """Count a review on commit; receiver of the `fact` signal."""
    if fact.kind == "approval.reviewed":
        verdict = str(fact.data.get("verdict", ""))
        transaction.on_commit(lambda: metrics.count_decision(verdict), robust=True)
