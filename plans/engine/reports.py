"""Log lines, metrics and span attributes about the engine's work, emitted after commit.

They contain ids, tool names, levels and durations, never arguments, results or messages. Nothing is emitted for a
transaction that is rolled back.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from time import monotonic

from django.db import transaction
from structlog.contextvars import bound_contextvars

from catalog.core import tracing
from catalog.core.database import read_datetime
from catalog.core.tracing import log_extra
from catalog.definitions.levels import SafetyLevel
from catalog.models import Call
from catalog.signals import Fact
from plans import metrics
from plans.engine.work import ApprovedCall, RunningCall, StaleApproval, WorkItem
from plans.store.statements import ClaimedStep

log = logging.getLogger("toolgate.calls")
CALL_ENDS = ("completed", "failed", "cancelled")
LATE = "late"
"""Outcome of an attempt that returned after its call had ended; logged, but not timed again."""
WARNING_ENDS = ("retrying", LATE)
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
    """Return the ids of the work for logs and spans."""
    ids: dict[str, str | int] = {"plan": work.plan.ref, "step": work.step.step_id, "tool": work.step.tool}
    if isinstance(work, WORK_WITH_CALL):
        ids["call"] = work.call.public_id
    return ids


def handler_span(running_call: RunningCall) -> AbstractContextManager[object]:
    """Return a span for the tool's code."""
    ids = {"call": running_call.call.public_id, "tool": running_call.step.tool, "level": running_call.prepared.level}
    return tracing.span("tool call", ids | {"attempt": running_call.call.attempt})


def report_attempt_ended(running_call: RunningCall, outcome: str) -> None:
    """Report on commit how an attempt ended: completed, failed, cancelled, retrying, outcome_unknown or late."""
    transaction.on_commit(partial(_report_end, running_call, outcome, monotonic()), robust=True)


def _report_end(running_call: RunningCall, outcome: str, ended: float) -> None:
    level, seconds = running_call.prepared.level, monotonic() - running_call.began
    if outcome != LATE:
        metrics.observe_step(level, outcome, seconds=seconds, waited=_seconds_ready(running_call))
    if outcome in CALL_ENDS:
        metrics.count_ended_call(outcome, level)
    tracing.add_span_attributes(outcome=outcome, level=level)
    loudness = _log_level(level, outcome)
    if log.isEnabledFor(loudness):
        facts = _ids(running_call.call, running_call.step.step_id) | {
            "status": outcome,
            "safety": level,
            "attempt": running_call.call.attempt,
        }
        log.log(
            loudness, "call ended", extra=log_extra(**facts, duration_ms=round((ended - running_call.began) * 1000, 1))
        )


def _log_level(level: str, outcome: str) -> int:
    """Return the log level: debug for safe calls, which are many; warning for retries and late results."""
    if outcome in WARNING_ENDS:
        return logging.WARNING
    return logging.DEBUG if level == SafetyLevel.SAFE else logging.INFO


def _seconds_ready(running_call: RunningCall) -> float | None:
    """Return how many seconds the step was ready before it started; both are transaction times."""
    since, started = running_call.step.ready_since, running_call.call.started_at
    if since is None or started is None:
        return None
    return max(0.0, (started - read_datetime(since)).total_seconds())


def report_lease_lost(lost_step: ClaimedStep, plan_ref: str) -> None:
    """Report on commit that a step was taken back because its lease expired."""
    transaction.on_commit(partial(_report_lease_lost, lost_step, plan_ref), robust=True)


def _report_lease_lost(lost_step: ClaimedStep, plan_ref: str) -> None:
    metrics.count_lost_lease()
    facts = {"plan": plan_ref, "step": lost_step.step_id, "tool": lost_step.tool, "attempt": lost_step.attempt}
    log.warning("lease lost", extra=log_extra(**facts, worker=lost_step.claimed_by))


def report_outcome_unknown(call: Call, step: ClaimedStep) -> None:
    """Report on commit that the outcome of a call is unknown and a person must settle it."""
    level = str(call.version.safety_level)
    transaction.on_commit(partial(_report_outcome_unknown, call, step, level), robust=True)


def _report_outcome_unknown(call: Call, step: ClaimedStep, level: str) -> None:
    metrics.count_ended_call("outcome_unknown", level)
    facts = _ids(call, step.step_id) | {"safety": level, "attempt": call.attempt}
    log.warning("outcome unknown", extra=log_extra(**facts))


def _ids(call: Call, step_id: int) -> dict[str, str | int]:
    return {"plan": call.plan_ref, "step": step_id, "call": call.public_id, "tool": call.tool_name}


def count_review(sender: object, *, fact: Fact, **kwargs: object) -> None:
    """Count a review on commit; receiver of the `fact` signal."""
    if fact.kind == "approval.reviewed":
        verdict = str(fact.data.get("verdict", ""))
        transaction.on_commit(partial(metrics.count_decision, verdict), robust=True)
