"""From an outcome to the database: the call's end, the step's, its memory, its dependents and the plan's.

Everything here happens inside one open recording of the plan and is fenced: a worker that lost its lease changes
nothing.
"""

import json
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

from approvals.models import ApprovalRequest
from approvals.requests import lifecycle
from approvals.reviews.edits import Edited
from approvals.states import OPEN
from catalog import signals
from catalog.calls import vault
from catalog.calls.vault import Place
from catalog.core.transactions import try_move
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.dispatch.serialization import words
from catalog.errors import Conflict, ToolDrifted, ToolError
from catalog.models import Call
from catalog.secrets.placeholders import holds_secret
from catalog.states import CallStatus
from catalog.tools.registry import output_key_of
from plans.engine import early_requests, extensions, hints, late_results, model_texts, reports
from plans.engine.late_results import as_json
from plans.engine.limits import BudgetExceeded
from plans.engine.work import Order, Run
from plans.models import MemoryItem, Plan, Step
from plans.sessions import commands
from plans.spec import extract_value
from plans.states import PLAN_TERMINAL, PlanStatus, StepStatus, WaitingFor
from plans.store import statements
from plans.store.statements import CallEnding, Claimed, Parking
from plans.store.transactions import Recording, tell

RELEASED: dict[str, Any] = {"ready_at": None, "waiting_for": "", "claimed_by": "", "lease_until": None}
WAS_STOPPED = (pipeline.STOPPED, pipeline.NOT_BEGUN)
TRIES = 3
RETRY_JITTER = (0.8, 1.2)
"""Limits of the random factor of the delay before a retry."""
CRASHES = 3
"""A call that loses its worker this often is parked for a person."""


def finish(batch: Recording, run: Run, outcome: pipeline.Outcome, *, optimistic: bool = True) -> None:
    """Record the outcome of a call:

    | outcome | call | step |
    | --- | --- | --- |
    | may be retried | ready | waits for its retry |
    | cut off, and may have had its effect | outcome_unknown | waits for a person |
    | success or warning | completed | completed; its dependents count one dependency less |
    | stopped with its plan | cancelled | cancelled |
    | any other | failed | failed |

    If the lease was lost, nothing changes and a late result is kept as evidence. With `optimistic` a success is written
    without looking at the lease first. If that turns out wrong, the transaction raises LeaseLost before it commits.
    """
    if outcome.late is not None:
        late_results.keep_as_evidence(run.call, late_results.evidence_of(run, outcome, outcome.late))
    if outcome.left_running:
        late_results.note_left(batch, run)
    delay = _delay_of_retry(batch, run, outcome)
    if delay is not None:
        is_retrying = _retry(batch, run, outcome, delay)
        late_results.left_to_others(run, outcome, "retrying" if is_retrying else reports.LATE)
        return
    if _is_unknown(run, outcome):
        parked = park_as_unknown(batch, run.step, run.call)
        late_results.left_to_others(run, outcome, CallStatus.OUTCOME_UNKNOWN if parked else reports.LATE)
        return
    if run.sent:
        outcome = commands.taken_in(run.call, run.order.asker or run.plan.asker, run.sent, outcome)
    _end(batch, run, _marked(outcome, run.edited) if run.edited else outcome, optimistic=optimistic)


def _end(batch: Recording, run: Run, outcome: pipeline.Outcome, *, optimistic: bool) -> None:
    """End the call as its handler ended, and the step with it; with one statement unless a hook comes in between."""
    response = pipeline.standard_response(run.order.target.tool, run.order.shown, outcome)
    ending = CallEnding(
        status=_status_of(outcome),
        response=as_json(response),
        message=outcome.message,
        error_kind=outcome.error_kind or "",
        now=batch.now,
    )
    in_one_go = optimistic and _went_well(outcome) and not extensions.has_result_handler(run.step.tool)
    if in_one_go:
        batch.defer(statements.end_step(batch.cursor, run.step, run.call, ending))
    elif not statements.end_call(batch.cursor, run.call, ending):
        late_results.left_to_others(run, outcome, reports.LATE)
        return
    model_texts.keep(run.call, outcome)
    _tell_end(batch, run, outcome)
    reports.attempt_ended(run, ending.status)
    if in_one_go:
        _tell_completed(batch, run.step, response, run.call)
    elif _went_well(outcome):
        batch.became_ready += complete(batch, run.step, response, call=run.call)
    elif outcome.error_kind in WAS_STOPPED:
        _cancel(batch, run, outcome)
    else:
        fail(batch, run.step, outcome.message, call=run.call)


def _marked(outcome: pipeline.Outcome, edited: Edited) -> pipeline.Outcome:
    """Tell whoever asked what people changed of the call; with which values it ran, its arguments show."""
    names, fields = " and ".join(edited.by), ", ".join(edited.fields)
    message = f"Edited by {names} before it was approved: {fields}. {outcome.message}"
    told = {"edited": {"by": list(edited.by), "fields": list(edited.fields)}}
    return replace(outcome, message=message, fields={**outcome.fields, **told})


def _cancel(batch: Recording, run: Run, outcome: pipeline.Outcome) -> None:
    """Cancel the step of a call that was stopped with its plan; nothing changes when its lease was lost."""
    mine = Step.objects.filter(pk=run.step.pk, claimed_by=run.step.claimed_by, attempt=run.step.attempt)
    if try_move(mine, to=StepStatus.CANCELLED, completed_at=batch.now, **RELEASED):
        more = {"left_running": True} if outcome.left_running else {}
        batch.add("step.cancelled", run.step.step_id, call=run.call.public_id, **more)


def _status_of(outcome: pipeline.Outcome) -> CallStatus:
    if outcome.error_kind in WAS_STOPPED:
        return CallStatus.CANCELLED
    return CallStatus.COMPLETED if _went_well(outcome) else CallStatus.FAILED


def _went_well(outcome: pipeline.Outcome) -> bool:
    """Nothing found is a warning: the call did what it could, and whoever reads the result sees it."""
    return outcome.success or outcome.warning


def _must_retry(run: Run, outcome: pipeline.Outcome) -> bool:
    tool = run.order.target.tool
    return (
        not outcome.success
        and outcome.retryable
        and tool.retry_safe
        and tool.safety_level != SafetyLevel.DANGEROUS
        and run.call.attempt < TRIES
    )


def _is_unknown(run: Run, outcome: pipeline.Outcome) -> bool:
    """A handler that was cut off, at its deadline or with its plan, may have had its effect, unless it is harmless."""
    return outcome.error_kind in ("timeout", pipeline.STOPPED) and not harmless(run.order)


def plan_is_over(batch: Recording) -> bool:
    """Say whether the plan has ended: what still runs in it ends by itself, and nothing starts again."""
    return Plan.objects.filter(pk=batch.plan_pk, status__in=PLAN_TERMINAL).exists()


def harmless(order: Order) -> bool:
    """Say whether the call may run again by itself after its worker was lost."""
    tool = order.target.tool
    if tool.safety_level == SafetyLevel.DANGEROUS:
        return False
    return tool.safety_level == SafetyLevel.SAFE or tool.retry_safe


def _delay_of_retry(batch: Recording, run: Run, outcome: pipeline.Outcome) -> timedelta | None:
    """Return when the call starts once more; None: never, also where its plan would be past its deadline by then."""
    if not _must_retry(run, outcome) or plan_is_over(batch):
        return None
    usual = 2 ** (run.call.attempt - 1) * random.uniform(*RETRY_JITTER)  # noqa: S311 (jitter, not a secret)
    delay = timedelta(seconds=max(usual, outcome.retry_after))
    deadline = run.plan.deadline_at
    return None if deadline and batch.now + delay >= deadline else delay


def _retry(batch: Recording, run: Run, outcome: pipeline.Outcome, delay: timedelta) -> bool:
    """Let the call start once more after a delay; False when its lease was lost."""
    ready_at = batch.now + delay
    if not statements.park_step(batch.cursor, run.step, Parking(WaitingFor.RETRY, run.call.pk, batch.now, ready_at)):
        return False
    try_move(Call.objects.filter(pk=run.call.pk), to=CallStatus.READY)
    left = {"left_running": True} if outcome.left_running else {}
    batch.add(
        "step.retrying", run.step.step_id, call=run.call.public_id, attempt=run.call.attempt, of=TRIES,
        seconds=round(delay.total_seconds(), 1), error=outcome.error_kind, **left,
    )  # fmt: skip
    return True


def _tell_end(batch: Recording, run: Run, outcome: pipeline.Outcome) -> None:
    if run.order.secrets and _status_of(outcome) != CallStatus.FAILED:  # else it may be tried again in its plan
        vault.forget_call(run.call)
    if outcome.restored:
        batch.add("call.restored", run.step.step_id, call=run.call.public_id)
    if outcome.error_kind not in WAS_STOPPED:
        kind = "call.succeeded" if _went_well(outcome) else "call.failed"
        extra: dict[str, Any] = {} if outcome.success else {"error": outcome.error_kind}
        if outcome.not_restored:
            extra["not_restored"] = list(outcome.not_restored)
        tell(batch, kind, run.call, level=run.order.level, **extra)
    elif run.order.level != SafetyLevel.SAFE:  # the history has the step's end; the audit log has no steps
        signals.record("call.stopped", call=run.call, level=run.order.level)
    if not outcome.left_running:  # else when it comes back
        batch.add(
            "tool.invoked",
            run.step.step_id,
            call=run.call.public_id,
            tool=run.call.tool_name,
            success=outcome.success,
        )


def complete(batch: Recording, step: Claimed, response: dict[str, Any], *, call: Call) -> int:
    """Complete a step with its response: memory, dependents, event. Returns how many steps became ready.

    Where what it gave means more for its plan, and that cannot be, the step fails with why.
    """
    refusal = extensions.handle_result(batch, step, response)
    if refusal:
        fail(batch, step, refusal, call=call)
        return 0
    if not statements.complete_step(batch.cursor, step, now=batch.now, skipped=False):
        if extensions.has_result_handler(step.tool):
            raise Conflict("The step was taken over before what came of it was kept.")
        return 0
    _tell_completed(batch, step, response, call)
    return statements.ready_dependents(batch.cursor, step.pk, now=batch.now)


def _tell_completed(batch: Recording, step: Claimed, response: dict[str, Any], call: Call) -> None:
    key = _remember(batch, step, response)
    batch.add("step.completed", step.step_id, call=call.public_id, **({"key": key} if key else {}))


def _remember(batch: Recording, step: Claimed, response: dict[str, Any]) -> str:
    """Store what the step is to leave behind; an empty key means nothing was stored, as of what an agent calls."""
    if step.parent_pk is not None:  # its model is told; what the plan keeps is for the agent's own step to say
        return ""
    key = step.expected_key or output_key_of(step.tool)
    if not key:
        return ""
    value = extract_value(response, json.loads(step.output_path) if step.output_path else None)
    statements.write_memory(batch.cursor, step, key, as_json(value), now=batch.now)
    batch.add("memory.written", step.step_id, key=key)
    return key


def complete_note(batch: Recording, step: Claimed) -> None:
    """Complete a step that names neither tool nor agent: a note to self."""
    if statements.complete_step(batch.cursor, step, now=batch.now, skipped=False):
        _wake_dependents(batch, step)
        batch.add("step.completed", step.step_id)


def skip(batch: Recording, step: Claimed) -> None:
    """Complete a step whose done_check holds: keep the value under its key, or write that it was skipped."""
    if not statements.complete_step(batch.cursor, step, now=batch.now, skipped=True):
        return
    if holds_secret(step.parameters):
        vault.forget(Place(batch.plan_ref, str(step.step_id)))
    note_skip(batch, step, "Success criterion already satisfied")
    _wake_dependents(batch, step)
    batch.add("step.skipped", step.step_id, done_check=for_the_history(step, step.done_check))


def for_the_history(step: Claimed, text: str) -> str:
    """Return a text that repeats a step's condition, or nothing where that is private: everyone reads the history."""
    return "" if Step.objects.filter(pk=step.pk, after_answer=True).exists() else text


def note_skip(batch: Recording, step: Claimed, reason: str, *, by: str = "") -> None:
    """Leave behind what a skipped step does: a note, and a value under its key unless there is one."""
    note = {
        "description": step.description,
        "output_path": json.loads(step.output_path) if step.output_path else None,
        "done_check": step.done_check,
        "tool": step.tool or None,
        **({"by": by, "reason": reason} if by else {}),
    }
    if by:
        early_requests.take_back_needing(batch, step)
    MemoryItem.objects.create(
        plan_id=step.plan_pk, type=MemoryItem.Type.STEP_SKIPPED, key=step.expected_key, value=json.dumps(note),
        step_id=step.step_id, at=batch.now,
    )  # fmt: skip
    if step.expected_key:
        value = json.dumps({"skipped": True, "reason": reason})
        _, made = MemoryItem.objects.get_or_create(
            plan_id=step.plan_pk, type=MemoryItem.Type.VALUE, key=step.expected_key,
            defaults={"value": value, "step_id": step.step_id, "at": batch.now},
        )  # fmt: skip
        if made:
            batch.add("memory.written", step.step_id, key=step.expected_key)


def _wake_dependents(batch: Recording, step: Claimed) -> None:
    """Ready what waited for the step; whoever settled it claims one of them, the others get hints."""
    hints.hint(batch.plan_pk, statements.ready_dependents(batch.cursor, step.pk, now=batch.now) - 1)


def refuse(batch: Recording, step: Claimed, error: ToolError) -> None:
    """Fail a step before its tool was called: bad parameters, an unknown tool, a missing key, a policy's no."""
    message = words(error.user_message())
    is_spent = isinstance(error, BudgetExceeded)
    if fail(batch, step, message, code=error.kind if is_spent else "") and step.call_pk is not None:
        kind = "drifted" if isinstance(error, ToolDrifted) else error.kind if is_spent else "refused"
        _end_unstarted_call(batch, step.call_pk, message, kind)


def _end_unstarted_call(batch: Recording, call_pk: int, message: str, kind: str) -> None:
    """Fail a call that will not start; an approval of it that was not used is no longer valid."""
    approval = ApprovalRequest.objects.select_related("call").filter(call_id=call_pk, status__in=OPEN).first()
    if approval is not None:
        lifecycle.invalidate(approval, reason=message)
    calls = Call.objects.filter(pk=call_pk)
    try_move(calls, to=CallStatus.FAILED, message=message, error_kind=kind, finished_at=batch.now)


def fail(batch: Recording, step: Claimed, message: str, *, call: Call | None = None, code: str = "") -> bool:
    """Fail a step with a sentence for people, kept in memory too; False when its lease was lost."""
    if not statements.fail_step(batch.cursor, step, now=batch.now, error=message):
        return False
    told = ({"call": call.public_id} if call else {}) | ({"error": code} if code else {})
    _note_failure(batch, step.step_id, step.tool, message, told)
    return True


def _note_failure(batch: Recording, step_id: int, tool: str, message: str, told: dict[str, str]) -> None:
    """Leave behind in memory and history that a step failed; what needs it is not asked about early any more."""
    early_requests.take_back_after(batch, step_id)
    MemoryItem.objects.create(
        plan_id=batch.plan_pk, type=MemoryItem.Type.STEP_FAILED,
        value=json.dumps({"tool": tool or None, "error": message}), step_id=step_id, at=batch.now,
    )  # fmt: skip
    batch.add("step.failed", step_id, **told)


def park_as_unknown(batch: Recording, step: Claimed, call: Call) -> bool:
    """Let a person say what happened: the call may have had its effect, and must not run again by itself.

    False when the lease was lost.
    """
    if not statements.park_step(batch.cursor, step, Parking(WaitingFor.OUTCOME, call.pk, batch.now)):
        return False
    if try_move(Call.objects.filter(pk=call.pk, fence=call.fence), to=CallStatus.OUTCOME_UNKNOWN):
        signals.record("step.outcome_unknown", call=call)
        reports.outcome_unknown(call, step)
    return True


def settle_plan(batch: Recording) -> None:
    """End the plan when nothing in it runs, waits or is ready."""
    progress = statements.progress(batch.cursor, batch.plan_pk)
    if progress.active:
        return
    whole = not progress.failed and not progress.pending
    to = PlanStatus.COMPLETED if whole else PlanStatus.FAILED
    ended = {"completed_at": batch.now, "paused_at": None, "paused_by": None}
    works = Plan.objects.filter(pk=batch.plan_pk).exclude(kind=Plan.Kind.SESSION)  # whose list is its own to move
    if try_move(works, to=to, **ended):
        batch.add(f"plan.{to.value}")
        if not whole:  # the calls of one that is whole have ended, and their secrets with them
            vault.forget(Place(batch.plan_ref))


def skip_held_step(batch: Recording, call: Call, reason: str, *, by: str) -> None:
    """Complete as skipped the step of a call that people refused, or let expire, and let go on what needs it."""
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    pk = steps.values_list("pk", flat=True).first()
    if not try_move(steps, to=StepStatus.COMPLETED, skipped=True, completed_at=batch.now, **RELEASED) or pk is None:
        return
    step = statements.look_at(batch.cursor, pk)
    note_skip(batch, step, reason, by=by)
    hints.hint(batch.plan_pk, statements.ready_dependents(batch.cursor, pk, now=batch.now))
    batch.add("step.skipped", step.step_id, call=call.public_id, by=by, reason=reason)


def fail_held_step(batch: Recording, call: Call, message: str) -> None:
    """Fail the step of a call that people refused or let expire."""
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    if try_move(steps, to=StepStatus.FAILED, error=message, completed_at=batch.now, **RELEASED):
        _note_failure(batch, int(call.step_ref), call.tool_name, message, {"call": call.public_id})
