"""Admission of ready steps: claim, done_check, resolve references, validate, and ask the gate.

All functions run inside an open plan transaction, normally the one that finished the previous step. Previews and
handlers are returned as work items to run after commit.
"""

from dataclasses import replace
from enum import Enum, auto

from django.db import DatabaseError

from approvals.errors import ApprovalExpired, AuditUnavailable, Invalidated
from approvals.models import ApprovalRequest
from approvals.policies.gate import gate
from approvals.policies.history import History, HistoryBusy
from approvals.requests import held_calls, start_check
from approvals.requests.lifecycle import ASKED_AGAIN, CHANGED_PREFIX
from approvals.reviews.edits import summarise_edits
from catalog.core import tracing
from catalog.core.transactions import log_unexpected
from catalog.dispatch import pipeline
from catalog.errors import Conflict, PolicyRefusal, Stopped, ToolDrifted, ToolError
from catalog.inventory import snapshot
from catalog.models import Call
from catalog.states import TERMINAL, CallStatus
from plans import conditions
from plans.engine import (
    early_requests,
    extensions,
    finishing,
    grants,
    hints,
    limits,
    questions,
    retries,
    start,
    stops,
)
from plans.engine.calls import (
    edited_arguments,
    facts_for_rules,
    history_of,
    new_call,
    new_lease,
    prepare_replacement,
    prepare_step_call,
    prepare_stored_call,
    record_trials,
    requester_ids_of,
)
from plans.engine.limits import BudgetExceeded, defer_if_queue_full
from plans.engine.refusals import record_denial
from plans.engine.start import Permission, StartContext
from plans.engine.work import (
    ApprovedCall,
    HeldCall,
    Memory,
    PlanSnapshot,
    PreparedCall,
    RateLimitedCall,
    RunningCall,
    WorkItem,
)
from plans.models import Step
from plans.states import WaitingFor
from plans.store import statements
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction

SETTLED_AT_ONCE = 50
"""Limit of steps skipped or failed in one transaction, so that other plans get their turn."""


def next_work(tx: PlanTransaction, plan: PlanSnapshot, *, owner: str, is_fresh: bool = False) -> WorkItem | None:
    """Claim ready steps of the plan until one yields a work item; None if none is ready.

    `is_fresh` is True if the transaction has done nothing yet that the audit log records.
    """
    for done in range(SETTLED_AT_ONCE):
        step = limits.claim_within_limits(tx.cursor, plan.pk, new_lease(owner, tx))
        if step is None:
            return None
        as_of_now = plan.with_deadline_of(step)
        if step.may_be_stopped:
            as_of_now = stops.with_counted_deadline(tx, as_of_now)
        else:
            tx.no_stops_stand()
        context = StartContext(tx, as_of_now, step, just_claimed=True, is_fresh=is_fresh and not done)
        try:
            work = _advance(context)
        except HistoryBusy:  # claimed again in a transaction that may wait
            statements.release_step(tx.cursor, step, StepWait("", step.call_pk, tx.now, ready_at=tx.now))
            hints.hint(plan.pk)
            return None
        if work is not None:
            return work
    hints.hint(plan.pk, Step.objects.filter(plan=plan.pk, ready_at__lte=tx.now).count())
    return None


def _advance(context: StartContext) -> WorkItem | None:
    tx, step = context.tx, context.step
    target = snapshot.callable_tool(step.tool) if step.call_pk is not None else None
    if target is not None and target.tool.runs_in_client:  # its client starts it, when it asks again
        statements.release_step(tx.cursor, step, StepWait(WaitingFor.CLIENT, step.call_pk, tx.now))
        return None
    try:
        stops.require_step_not_stopped(tx, context.plan, step)
        extensions.require_agent_enabled(step)
        if step.agent and extensions.agent_loop().go_on(tx, context.plan, step):
            return None
        return _begin_without_call(context) if step.call_pk is None else _continue_with_call(context, step.call_pk)
    except Stopped as stopped:
        stops.wait_for_lift(tx, step, stopped)
    except ToolError as error:
        refuse_or_release(tx, step, error)
    except AuditUnavailable:
        retries.postpone_start(tx, step)
    except (Conflict, DatabaseError, HistoryBusy):
        raise
    except Exception as error:  # noqa: BLE001 - raising would undo the claim and repeat the step forever
        log_unexpected(error)
        refuse_or_release(tx, step, ToolError(f"The step could not begin: {type(error).__name__}."))
    return None


def refuse_or_release(tx: PlanTransaction, step: ClaimedStep, error: ToolError) -> None:
    """Fail a claimed step. If its tool has other code here, leave it to another process, up to MAX_RELEASES times."""
    may_run_elsewhere = isinstance(error, ToolDrifted) and error.may_run_elsewhere
    if not (may_run_elsewhere and retries.release_for_other_worker(tx, step)):
        finishing.refuse(tx, step, error)
        extensions.abandon_agent_step(tx, step)


def _begin_without_call(context: StartContext) -> WorkItem | None:
    tx, plan, step = context.tx, context.plan, context.step
    is_question = step.tool == questions.ASK_USER
    answered = is_question and questions.is_answered(step.pk)
    if _skip_if_done(context, has_check=not answered):
        return None
    if step.agent:
        extensions.agent_loop().begin(tx, plan, step)
        return None
    if not step.tool:
        finishing.complete_note(tx, step)
        return None
    prepared = prepare_step_call(plan, step)
    if not is_question or answered:
        return admit(context, prepared)
    if isinstance(_ask_gate(context, prepared, _history_of(context, prepared)), pipeline.Hold):
        raise ToolError(
            "A policy holds questions for approval, which is not supported. Change it to allow or deny them."
        )
    questions.ask_question(tx, step, str(prepared.redacted_arguments["question"]))
    return None


def _skip_if_done(context: StartContext, call: Call | None = None, *, has_check: bool = True) -> bool:
    """Record that a step starts. If its check is true, complete it as skipped and withdraw its early request."""
    tx, step = context.tx, context.step
    done, reason = False, ""
    if has_check and step.done_check:
        memory = dict(Memory(step.plan_pk))
        verdict = conditions.evaluate(step.done_check, memory, expected_key=step.expected_key or None)
        done, reason = verdict.done, finishing.public_condition(step, verdict.reason)
    note = {"check": reason} if reason and not done else {}
    tx.record("step.started", step.step_id, attempt=step.attempt, **note)
    if done and call is not None:
        why = "The step is not needed: its check says that it is already done."
        early_requests.withdraw_early_requests([call], why)
    if done:
        finishing.complete_as_skipped(tx, step)
    return done


def admit(
    context: StartContext, prepared: PreparedCall, *, counted: bool = False, history: History | None = None
) -> RunningCall | RateLimitedCall | HeldCall | None:
    """Pass the call through the gate: start it, return it to be held, or refuse it with its step.

    A rate-limited call that is not `counted` yet is returned to be counted first. `history` is that of the call, if it
    was judged in this transaction before. Raises HistoryBusy if the transaction is not fresh.
    """
    tx, plan, step = context.tx, context.plan, context.step
    history = history or _history_of(context, prepared)
    try:
        verdict = _ask_gate(context, prepared, history)
        hold: HeldCall | None = None
        if isinstance(verdict, pipeline.Hold):
            hold = HeldCall(step, plan, prepared, verdict.terms, history=history)
            first = rejected_request(plan.ref, prepared)
            if first is not None:
                refuse_as_before(context, prepared, first)
                return None
            if not counted and not grants.may_be_covered(plan, prepared) and defer_if_queue_full(tx, hold):
                return None
        limits.check_budget(tx.cursor, plan)
    except (PolicyRefusal, BudgetExceeded) as refusal:
        finishing.refuse(tx, step, refusal)
        return None
    if not counted and limits.is_rate_limited(prepared):
        return RateLimitedCall(step, plan, prepared)
    return hold or start.begin(context, prepared, permission=Permission(history=history))


def _history_of(context: StartContext, prepared: PreparedCall, call: Call | None = None) -> History:
    return history_of(prepared, context.plan, call, tx=context.tx, waits=context.is_fresh)


def rejected_request(plan_ref: str, prepared: PreparedCall) -> ApprovalRequest | None:
    """Return the first rejected request of the plan with the same tool and arguments, or None."""
    tool = prepared.target.tool
    return held_calls.find_previous_rejection(plan_ref, tool.name, tool.input_schema, prepared.text, prepared.secrets)


def refuse_as_before(context: StartContext, prepared: PreparedCall, request: ApprovalRequest) -> Call:
    """Store the call of a claimed step and reject it like the earlier request `request`."""
    call = new_call(context.plan, context.step.step_id, prepared, status=CallStatus.CREATED)
    call.created_at = context.tx.now
    if not statements.insert_step_call(context.tx.cursor, context.step, call):
        raise Conflict("Another worker took over this step before its call could be rejected.")
    record_trials(call, prepared, context.plan, step_pk=context.step.pk)
    held_calls.repeat_rejection(call, request)
    return call


def ask_gate(
    plan: PlanSnapshot, prepared: PreparedCall, history: History, step_pk: int | None = None
) -> pipeline.GateDecision:
    """Return the gate's verdict on a call, in a span of the plan's trace."""
    ids = {"tool": prepared.target.tool.name, "level": prepared.level}
    with tracing.span("gate", ids, plan.traceparent):
        verdict = gate(facts_for_rules(prepared, plan, step_pk, history))
        facts = {"verdict": type(verdict).__name__.lower()}
        if isinstance(verdict, pipeline.Hold):
            facts["policy.name"] = verdict.terms.policy
        elif isinstance(verdict, pipeline.Deny) and verdict.policy:
            facts["policy.name"] = verdict.policy
        tracing.add_span_attributes(**facts)
    return verdict


def _ask_gate(context: StartContext, prepared: PreparedCall, history: History) -> pipeline.Allow | pipeline.Hold:
    verdict = ask_gate(context.plan, prepared, history, context.step.pk)
    if isinstance(verdict, pipeline.Deny):
        raise record_denial(verdict, context.plan, prepared, context.step)
    return verdict


class CallSituation(Enum):
    """The situation of a claimed step's stored call, which determines how the step continues."""

    EARLY = auto()
    """An approval was requested before the step was ready; it is pending or approved."""
    EARLY_ANSWERED = auto()
    """Reviewers ended the call before its step was ready: they rejected it, answered it or sent it back."""
    EARLY_UNANSWERED = auto()
    """An early request ended without a decision; the step must request a new approval."""
    ENDED = auto()
    """The call was sent back and has ended; the step continues with the arguments that a person entered."""
    APPROVED = auto()
    """The call is approved and its approval not yet consumed."""
    HANDED_BACK = auto()
    """The approval is consumed, and the worker stopped before the handler began."""
    COVERED = auto()
    """A grant or an envelope let the call start, and the worker stopped before the handler began."""
    UNBEGUN = auto()
    """The call needed no approval and has not run: a direct call left to the executor, or a call handed back."""
    ATTEMPTED = auto()
    """The handler ran: the call is retried, or its worker was lost."""


EARLY_SITUATIONS = (CallSituation.EARLY, CallSituation.EARLY_ANSWERED, CallSituation.EARLY_UNANSWERED)
"""Approval was requested early, and the step has now become ready."""


def classify(call: Call) -> CallSituation:
    """Return the situation of a call; no query if its `approval`, `grant_use` and `envelope_use` are loaded."""
    request = call.approval if hasattr(call, "approval") else None
    has_ended = call.status in TERMINAL
    if request is not None and request.is_pre_approval:
        if not has_ended:
            return CallSituation.EARLY
        is_unanswered = call.error_kind == ASKED_AGAIN or call.error_kind.startswith(CHANGED_PREFIX)
        return CallSituation.EARLY_UNANSWERED if is_unanswered else CallSituation.EARLY_ANSWERED
    if has_ended:
        return CallSituation.ENDED
    if request is not None and request.consumed_at is None:
        return CallSituation.APPROVED
    is_covered = hasattr(call, "grant_use") or hasattr(call, "envelope_use")
    unattempted = CallSituation.COVERED if is_covered else CallSituation.UNBEGUN
    if request is not None:
        unattempted = CallSituation.HANDED_BACK
    return CallSituation.ATTEMPTED if call.attempt else unattempted


def _continue_with_call(context: StartContext, call_pk: int) -> WorkItem | None:
    tx, plan, step = context.tx, context.plan, context.step
    call = Call.objects.select_related("approval", "grant_use", "envelope_use", "token").get(pk=call_pk)
    situation = classify(call)
    if _skip_if_done(context, call, has_check=situation in EARLY_SITUATIONS):
        return None
    work: WorkItem | None = None
    match situation:
        case CallSituation.EARLY | CallSituation.EARLY_UNANSWERED:
            prepared = prepare_step_call(plan, step)
            if situation is CallSituation.EARLY and _is_request_current(context, call, prepared):
                work = ApprovedCall(step, plan, call) if early_requests.attach(tx, step, call) else None
            else:
                current = replace(prepared, replaces=call, asker=requester_ids_of(call))
                work = admit(replace(context, is_fresh=False), current, counted=True)
        case CallSituation.EARLY_ANSWERED:
            early_requests.apply_early_answer(tx, step, call)
        case CallSituation.ENDED:
            work = admit(context, prepare_replacement(call, edited_arguments(step, plan.ref)))
        case CallSituation.APPROVED:
            work = ApprovedCall(step, plan, call)
        case _:
            work = start_stored(context, call, situation)
    return work


def _is_request_current(context: StartContext, call: Call, prepared: PreparedCall) -> bool:
    """Return whether an early request is still valid. End it if the call changed or was rejected in this plan since."""
    return not (
        early_requests.invalidate_if_outdated(context.tx, call, prepared)
        or early_requests.withdraw_if_rejected_before(call)
    )


def start_stored(context: StartContext, call: Call, situation: CallSituation) -> RunningCall | HeldCall:
    """Start a stored call. Hold it if it needed no approval when it was stored but policies now require one.

    A call that a grant or envelope allowed is held too, because that is checked again after the preview. A call with a
    consumed approval must still match it.

    Raises ToolDrifted if the tool's definition has changed, and ToolError if policies now deny the call, its approval
    is no longer valid or the call was settled in the meantime. Raises BudgetExceeded.
    """
    prepared = prepare_stored_call(call)
    if prepared.target.version_pk != call.version_id:
        raise ToolDrifted(
            f"The definition of {call.tool_name} has changed since this call was requested; request it again."
        )
    history = _history_of(context, prepared, call)
    if situation is CallSituation.HANDED_BACK:
        target = prepared.target
        try:
            start_check.recheck_consumed(call, target.fingerprint, target.implementation_digest, history=history)
        except (ApprovalExpired, Invalidated) as change:
            raise ToolError(f"{change} It was approved but has not run; request it again.") from None
    if situation is not CallSituation.ATTEMPTED:
        verdict = _ask_gate(context, prepared, history)
        if isinstance(verdict, pipeline.Hold) and situation is not CallSituation.HANDED_BACK:
            return HeldCall(context.step, context.plan, prepared, verdict.terms, call, history)
    if not hasattr(call, "approval"):
        return start.begin(context, prepared, call, Permission(history=history))
    # The reviewers' edits, and for the first attempt the target state that they saw; a retry may find another.
    approved = call.approval.rounds.get(number=call.approval.round_number)
    edited = summarise_edits(call.approval) if approved.number > 1 else None
    state = approved.state_token if not call.attempt else ""
    return start.begin(context, prepared, call, Permission(state or None, edited, history=history))
