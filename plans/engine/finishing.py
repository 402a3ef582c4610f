"""Recording outcomes: the end of the call and its step, memory, dependents, and the end of the plan.

All functions run inside an open plan transaction and are fenced: a worker that lost its lease changes nothing.
"""

import json
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import Any

from approvals.models import ApprovalRequest
from approvals.requests import lifecycle
from approvals.states import OPEN
from catalog import signals
from catalog.calls import vault
from catalog.calls.blobs import store_blobs
from catalog.calls.vault import SecretScope
from catalog.core import clock
from catalog.core.content_blocks import MAX_RESULT, StoredContent, stored_content
from catalog.core.transactions import retry_on_deadlock, try_move
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.dispatch.serialization import storable_error_text
from catalog.errors import Conflict, EffectUnknown, ToolDrifted, ToolError
from catalog.models import Call
from catalog.results import NO_MESSAGE, ResultWarning
from catalog.secrets.placeholders import holds_secret
from catalog.states import CallStatus
from catalog.tools.registry import output_key_of
from plans.engine import early_requests, extensions, hints, late_results, model_texts, reports, retries
from plans.engine.calls import record_trials
from plans.engine.late_results import as_json
from plans.engine.limits import BudgetExceeded
from plans.engine.work import RunningCall
from plans.models import MemoryItem, Plan, Step
from plans.sessions import commands
from plans.spec import extract_value
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store import statements
from plans.store.statements import CallEnding, ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction, ended_plan_transaction, record_call_event, recover_lost_commit

RELEASED_COLUMNS: dict[str, Any] = {"ready_at": None, "waiting_for": "", "claimed_by": "", "lease_until": None}
CUT_CONTENT = (
    f"The content was too large: at most {MAX_RESULT:,} bytes are kept, and of an image or a file all or nothing."
)
CANCELLED_BY_STOP = "A stop cancelled the call while it ran. Retry the step once the stop is lifted."
WAS_STOPPED = (pipeline.CANCELLED_WHILE_RUNNING, pipeline.CANCELLED_BEFORE_START)


def finish(
    tx: PlanTransaction, running_call: RunningCall, outcome: pipeline.CallOutcome, *, optimistic: bool = True
) -> None:
    """Record the outcome of a call:

    | outcome | call | step |
    | --- | --- | --- |
    | retryable failure | ready | waits for its retry |
    | cut off, possibly after it took effect | outcome_unknown | waits for a person |
    | success or warning | completed | completed; its dependents count one dependency less |
    | stopped with its plan | cancelled | cancelled |
    | stopped alone | cancelled | failed |
    | any other | failed | failed |

    If the lease was lost, nothing changes and a late result is kept as evidence. With `optimistic`, a success is
    written without checking the lease; if the lease was lost, the transaction raises LeaseLost before it commits.
    """
    call, step, tool = running_call.call, running_call.step, running_call.prepared.target.tool
    if outcome.late is not None:
        late_results.keep_as_evidence(call, late_results.evidence_of(running_call, outcome, outcome.late))
    if outcome.left_running:
        late_results.record_abandoned(tx, running_call)
    delay = retries.retry_delay(tx, running_call, outcome)
    if delay is not None:
        is_retrying = retries.retry_failed(tx, running_call, outcome, delay)
        late_results.record_superseded(running_call, outcome, "retrying" if is_retrying else reports.LATE)
        return
    was_cut_off = outcome.error_kind in ("timeout", EffectUnknown.kind, pipeline.CANCELLED_WHILE_RUNNING)
    if was_cut_off and not retries.is_repeatable(tool):
        waits = wait_for_settlement(tx, step, call)
        late_results.record_superseded(running_call, outcome, CallStatus.OUTCOME_UNKNOWN if waits else reports.LATE)
        return
    if running_call.sent:
        asker = running_call.prepared.asker or running_call.plan.asker
        outcome = commands.apply_sent_commands(call, asker, running_call.sent, outcome)
    edited = running_call.edited
    if edited is not None:  # tell the requester which fields were edited and by whom; the arguments have the values
        note = f"Edited by {' and '.join(edited.by)} before it was approved: {', '.join(edited.fields)}."
        message = note if outcome.message == NO_MESSAGE else f"{note} {outcome.message}"
        fields_edited = {"edited": {"by": list(edited.by), "fields": list(edited.fields)}}
        outcome = replace(outcome, message=message, fields={**outcome.fields, **fields_edited})
    _end_call(tx, running_call, outcome, optimistic=optimistic)


def ending_of(
    outcome: pipeline.CallOutcome, response: dict[str, Any], *, now: datetime
) -> tuple[CallEnding, StoredContent | None]:
    """Return the columns of a call that has ended with this outcome, and its content blocks with their bytes."""
    content = stored_content(outcome.content) if outcome.content is not None else None
    warnings = list(outcome.warnings)
    if content is not None and content.is_cut and all(each.code != "cut" for each in warnings):
        warnings.append(ResultWarning("cut", CUT_CONTENT))
    ending = CallEnding(
        status=_status_of(outcome),
        response=as_json(response),
        message=outcome.message,
        error_kind=outcome.error_kind or "",
        now=now,
        content=as_json(content.blocks) if content else "",
        warnings=as_json([each.as_json() for each in warnings]) if warnings or content else "",
    )
    return ending, content


def _end_call(
    tx: PlanTransaction, running_call: RunningCall, outcome: pipeline.CallOutcome, *, optimistic: bool
) -> None:
    """End the call and its step; in one statement if the call succeeded and its tool has no result handler."""
    call, step, prepared = running_call.call, running_call.step, running_call.prepared
    response = pipeline.standard_response(prepared.target.tool, prepared.given_arguments, outcome)
    ending, content = ending_of(outcome, response, now=tx.now)
    in_one_go = optimistic and _succeeded(outcome) and not extensions.has_result_handler(step.tool)
    if in_one_go:
        tx.defer(statements.end_step(tx.cursor, step, call, ending))
    elif not statements.end_call(tx.cursor, call, ending):
        late_results.record_superseded(running_call, outcome, reports.LATE)
        return
    if content is not None:
        store_blobs(call, content.blobs)
    model_texts.store_model_text(call, outcome)
    _record_call_end(tx, running_call, outcome)
    reports.report_attempt_ended(running_call, ending.status)
    if in_one_go:
        _record_completed(tx, step, response, call)
    elif _succeeded(outcome):
        tx.became_ready += complete(tx, step, response, call=call)
    elif outcome.error_kind in WAS_STOPPED and not retries.plan_is_over(tx):
        fail(tx, step, CANCELLED_BY_STOP, call=call)
    elif outcome.error_kind in WAS_STOPPED:  # the step is cancelled with its plan, unless the lease was lost
        mine = Step.objects.filter(pk=step.pk, claimed_by=step.claimed_by, attempt=step.attempt)
        if try_move(mine, to=StepStatus.CANCELLED, completed_at=tx.now, **RELEASED_COLUMNS):
            more = {"left_running": True} if outcome.left_running else {}
            tx.record("step.cancelled", step.step_id, call=call.public_id, **more)
    else:
        fail(tx, step, outcome.message, call=call)


@recover_lost_commit
@retry_on_deadlock
def store_ended(plan: Plan, running_call: RunningCall, outcome: pipeline.CallOutcome) -> Call | None:
    """Store the plan of a direct call that ran before it was stored, ended, and return its call as stored.

    None if the outcome is more than a success without content, commands or notes: it must be started and finished.
    """
    call, tool = copy(running_call.call), running_call.prepared.target.tool
    if not outcome.success or outcome.warnings or outcome.content is not None or running_call.sent:
        return None
    now = clock.now()
    response = as_json(pipeline.standard_response(tool, running_call.prepared.given_arguments, outcome))
    ending = CallEnding(CallStatus.COMPLETED, response, outcome.message, "", now)
    events: list[tuple[str, int | None, dict[str, Any]]] = [
        ("plan.created", None, {}),
        ("plan.started", None, {}),
        ("step.started", 1, {"attempt": 1}),
        ("call.started", 1, {"call": call.public_id, "attempt": 1}),
        ("call.succeeded", 1, {"call": call.public_id}),
        ("tool.invoked", 1, {"call": call.public_id, "tool": tool.name, "success": True}),
        ("step.completed", 1, {"call": call.public_id}),
        ("plan.completed", None, {}),
    ]
    with ended_plan_transaction(plan, now, events) as tx:
        statements.insert_ended_plan(tx.cursor, plan, running_call.step, call, ending)
        record_trials(call, running_call.prepared, running_call.plan)
        # As if the call had been read: it has no request, and its model text is known.
        call._state.fields_cache.update(approval=None, model_text=model_texts.store_model_text(call, outcome))
        reports.report_attempt_ended(running_call, ending.status)
        tx.result = call
    return call


def _status_of(outcome: pipeline.CallOutcome) -> CallStatus:
    if outcome.error_kind in WAS_STOPPED:
        return CallStatus.CANCELLED
    return CallStatus.COMPLETED if _succeeded(outcome) else CallStatus.FAILED


def _succeeded(outcome: pipeline.CallOutcome) -> bool:
    """Return whether the call counts as successful; a warning such as "nothing found" counts as success."""
    return outcome.success or outcome.warning


def _record_call_end(tx: PlanTransaction, running_call: RunningCall, outcome: pipeline.CallOutcome) -> None:
    call, step_id, level = running_call.call, running_call.step.step_id, running_call.prepared.level
    # The secrets of a failed call are kept: it may be retried and needs them.
    if running_call.prepared.secrets and _status_of(outcome) != CallStatus.FAILED:
        vault.delete_call_secrets(call)
    if outcome.restored:
        tx.record("call.restored", step_id, call=call.public_id)
    if outcome.error_kind not in WAS_STOPPED:
        kind = "call.succeeded" if _succeeded(outcome) else "call.failed"
        extra: dict[str, Any] = {} if outcome.success else {"error": outcome.error_kind}
        if outcome.not_restored:
            extra["not_restored"] = list(outcome.not_restored)
        record_call_event(tx, kind, call, level=level, **extra)
    elif level != SafetyLevel.SAFE:  # for the audit log, which does not record steps
        signals.record_fact("call.stopped", call=call, level=level)
    if not outcome.left_running:  # otherwise recorded when it returns
        tx.record("tool.invoked", step_id, call=call.public_id, tool=call.tool_name, success=outcome.success)


def complete(tx: PlanTransaction, step: ClaimedStep, response: dict[str, Any], *, call: Call) -> int:
    """Complete a step: store its response, memory and event. Return how many dependent steps became ready.

    If the tool's result handler refuses the response, the step fails with the handler's reason.
    """
    refusal = extensions.handle_result(tx, step, response)
    if refusal:
        fail(tx, step, refusal, call=call)
        return 0
    if not statements.complete_step(tx.cursor, step, now=tx.now, skipped=False):
        if extensions.has_result_handler(step.tool):
            raise Conflict("Another worker took over this step before its result was stored.")
        return 0
    _record_completed(tx, step, response, call)
    return statements.ready_dependents(tx.cursor, step.pk, now=tx.now)


def _record_completed(tx: PlanTransaction, step: ClaimedStep, response: dict[str, Any], call: Call) -> None:
    # The result of an agent's call is not stored: the agent's own step stores its result.
    key = "" if step.parent_pk is not None else step.expected_key or output_key_of(step.tool)
    if key:
        value = extract_value(response, json.loads(step.output_path) if step.output_path else None)
        statements.write_memory(tx.cursor, step, key, as_json(value), now=tx.now)
        tx.record("memory.written", step.step_id, key=key)
    tx.record("step.completed", step.step_id, call=call.public_id, **({"key": key} if key else {}))


def complete_note(tx: PlanTransaction, step: ClaimedStep) -> None:
    """Complete a note: a step without tool and agent."""
    if statements.complete_step(tx.cursor, step, now=tx.now, skipped=False):
        _wake_dependents(tx, step)
        tx.record("step.completed", step.step_id)


def complete_as_skipped(tx: PlanTransaction, step: ClaimedStep) -> None:
    """Complete a step as skipped because its done_check is true; keep a value that its key already has."""
    if not statements.complete_step(tx.cursor, step, now=tx.now, skipped=True):
        return
    if holds_secret(step.parameters):
        vault.delete_secrets(SecretScope(tx.plan_ref, str(step.step_id)))
    note_skip(tx, step, "Success criterion already satisfied")
    _wake_dependents(tx, step)
    tx.record("step.skipped", step.step_id, done_check=public_condition(step, step.done_check))


def public_condition(step: ClaimedStep, text: str) -> str:
    """Return `text`, which quotes a step's condition, for the history; empty if the condition is private."""
    return "" if Step.objects.filter(pk=step.pk, after_answer=True).exists() else text


def note_skip(tx: PlanTransaction, step: ClaimedStep, reason: str, *, by: str = "") -> None:
    """Store the note of a skipped step, and a marker under the step's key unless the key has a value."""
    note = {
        "description": step.description,
        "output_path": json.loads(step.output_path) if step.output_path else None,
        "done_check": step.done_check,
        "tool": step.tool or None,
        **({"by": by, "reason": reason} if by else {}),
    }
    if by:
        early_requests.withdraw_early_requests_of_dependents(tx, step)
    MemoryItem.objects.create(
        plan_id=step.plan_pk, type=MemoryItem.Type.STEP_SKIPPED, key=step.expected_key, value=json.dumps(note),
        step_id=step.step_id, at=tx.now,
    )  # fmt: skip
    if step.expected_key:
        value = json.dumps({"skipped": True, "reason": reason})
        _, made = MemoryItem.objects.get_or_create(
            plan_id=step.plan_pk, type=MemoryItem.Type.VALUE, key=step.expected_key,
            defaults={"value": value, "step_id": step.step_id, "at": tx.now},
        )  # fmt: skip
        if made:
            tx.record("memory.written", step.step_id, key=step.expected_key)


def _wake_dependents(tx: PlanTransaction, step: ClaimedStep) -> None:
    """Make the step's dependents ready; the caller claims one of them, other workers get hints for the rest."""
    hints.hint(tx.plan_pk, statements.ready_dependents(tx.cursor, step.pk, now=tx.now) - 1)


def refuse(tx: PlanTransaction, step: ClaimedStep, error: ToolError) -> None:
    """Fail a step before its tool is called: invalid parameters, unknown tool, missing key, denied by a policy.

    Its call, if it has one, fails too, and an unused approval is invalidated.
    """
    message = storable_error_text(error.user_message())
    is_spent = isinstance(error, BudgetExceeded)
    if not fail(tx, step, message, code=error.kind if is_spent else "") or step.call_pk is None:
        return
    kind = "drifted" if isinstance(error, ToolDrifted) else error.kind if is_spent else "refused"
    request = ApprovalRequest.objects.select_related("call").filter(call_id=step.call_pk, status__in=OPEN).first()
    if request is not None:
        lifecycle.invalidate(request, reason=message)
    calls = Call.objects.filter(pk=step.call_pk)
    try_move(calls, to=CallStatus.FAILED, message=message, error_kind=kind, finished_at=tx.now)


def fail(tx: PlanTransaction, step: ClaimedStep, message: str, *, call: Call | None = None, code: str = "") -> bool:
    """Fail a step with a message for people, also stored in memory; return False if its lease was lost."""
    if not statements.fail_step(tx.cursor, step, now=tx.now, error=message):
        return False
    event_data = ({"call": call.public_id} if call else {}) | ({"error": code} if code else {})
    _record_failure(tx, step.step_id, step.tool, message, event_data)
    return True


def _record_failure(tx: PlanTransaction, step_id: int, tool: str, message: str, event_data: dict[str, str]) -> None:
    """Record a failed step in memory and history; withdraw early requests of steps that depend on it."""
    early_requests.withdraw_early_requests_of_blocked(tx, step_id)
    MemoryItem.objects.create(
        plan_id=tx.plan_pk, type=MemoryItem.Type.STEP_FAILED,
        value=json.dumps({"tool": tool or None, "error": message}), step_id=step_id, at=tx.now,
    )  # fmt: skip
    tx.record("step.failed", step_id, **event_data)


def wait_for_settlement(tx: PlanTransaction, step: ClaimedStep, call: Call) -> bool:
    """Mark the call's outcome as unknown and let the step wait for a person to settle it.

    The call may have taken effect and must not be repeated automatically. Return False if the lease was lost.
    """
    if not statements.release_step(tx.cursor, step, StepWait(WaitingFor.OUTCOME, call.pk, tx.now)):
        return False
    if try_move(Call.objects.filter(pk=call.pk, fence=call.fence), to=CallStatus.OUTCOME_UNKNOWN):
        signals.record_fact("step.outcome_unknown", call=call)
        reports.report_outcome_unknown(call, step)
    return True


def settle_plan(tx: PlanTransaction) -> bool:
    """End the plan if no step runs, waits or is ready; return whether it ended now."""
    to = statements.settle_plan(tx.cursor, tx.plan_pk, now=tx.now)
    if to is None:
        return False
    tx.record(f"plan.{to.value}")
    if to is PlanStatus.FAILED:  # in a completed plan every call has ended and deleted its secrets
        vault.delete_secrets(SecretScope(tx.plan_ref))
    return True


def skip_held_step(tx: PlanTransaction, call: Call, reason: str, *, by: str) -> None:
    """Complete the step of a rejected or expired call as skipped, and make its dependents ready."""
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    pk = steps.values_list("pk", flat=True).first()
    if (
        not try_move(steps, to=StepStatus.COMPLETED, skipped=True, completed_at=tx.now, **RELEASED_COLUMNS)
        or pk is None
    ):
        return
    step = statements.load_step(tx.cursor, pk)
    note_skip(tx, step, reason, by=by)
    hints.hint(tx.plan_pk, statements.ready_dependents(tx.cursor, pk, now=tx.now))
    tx.record("step.skipped", step.step_id, call=call.public_id, by=by, reason=reason)


def fail_held_step(tx: PlanTransaction, call: Call, message: str) -> None:
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    if try_move(steps, to=StepStatus.FAILED, error=message, completed_at=tx.now, **RELEASED_COLUMNS):
        _record_failure(tx, int(call.step_ref), call.tool_name, message, {"call": call.public_id})
