"""Starting ready steps: claim, done_check, resolve references, validate, gate, start.

All functions run inside an open plan transaction, normally the one that finished the previous step. Previews and
handlers are returned as work items to run after commit.
"""

from dataclasses import dataclass, replace

from django.db import DatabaseError

from approvals.errors import ApprovalExpired, AuditUnavailable, Invalidated
from approvals.models import ApprovalRequest
from approvals.policies.gate import gate
from approvals.requests import held_calls, start_check
from approvals.reviews.edits import summarise_edits
from catalog.core.transactions import log_unexpected
from catalog.dispatch import pipeline
from catalog.errors import Conflict, ToolDrifted, ToolError
from catalog.models import Call
from catalog.states import CallStatus
from plans import conditions
from plans.engine import (
    early_requests,
    extensions,
    finishing,
    hints,
    limits,
    questions,
    retries,
)
from plans.engine.calls import (
    edited_arguments,
    facts_for_rules,
    new_call,
    new_lease,
    prepare_replacement,
    prepare_step_call,
    prepare_stored_call,
    requester_ids_of,
    store_call_secrets,
)
from plans.engine.denials import record_denial
from plans.engine.limits import BudgetExceeded, defer_if_queue_full
from plans.engine.situations import CallSituation, classify
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
from plans.store import statements
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction, record_call_event

SETTLED_AT_ONCE = 50
"""Limit of steps skipped or failed in one transaction, so that other plans get their turn."""


@dataclass(frozen=True, slots=True)
class StartContext:
    """A claimed step to begin, with its open plan transaction."""

    tx: PlanTransaction
    plan: PlanSnapshot
    step: ClaimedStep
    just_claimed: bool = False
    """The step was claimed in this transaction."""


def next_work(tx: PlanTransaction, plan: PlanSnapshot, *, owner: str) -> WorkItem | None:
    """Claim ready steps of the plan until one yields a work item; None if none is ready."""
    for _ in range(SETTLED_AT_ONCE):
        step = limits.claim_within_limits(tx.cursor, plan.pk, new_lease(owner, tx))
        if step is None:
            return None
        work = _begin(StartContext(tx, plan.with_deadline_of(step), step, just_claimed=True))
        if work is not None:
            return work
    hints.hint(plan.pk, Step.objects.filter(plan=plan.pk, ready_at__lte=tx.now).count())
    return None


def _begin(start: StartContext) -> WorkItem | None:
    """Advance a claimed step as far as possible within the transaction."""
    step = start.step
    try:
        extensions.require_agent_enabled(step)
        if step.agent and extensions.resume_agent_step(start.tx, start.plan, step):
            return None
        return _begin_without_call(start) if step.call_pk is None else _continue_with_call(start)
    except ToolError as error:
        may_run_elsewhere = isinstance(error, ToolDrifted) and error.may_run_elsewhere
        if not (may_run_elsewhere and retries.release_for_other_worker(start.tx, step)):
            finishing.refuse(start.tx, step, error)
            extensions.abandon_agent_step(start.tx, step)
    except AuditUnavailable:
        retries.postpone_start(start.tx, step)
    except (Conflict, DatabaseError):
        raise
    except Exception as error:  # noqa: BLE001 - raising would undo the claim and repeat the step forever
        log_unexpected(error)
        finishing.refuse(start.tx, step, ToolError(f"The step could not begin: {type(error).__name__}."))
        extensions.abandon_agent_step(start.tx, step)
    return None


def _begin_without_call(start: StartContext) -> WorkItem | None:
    """Advance a step without a call: skip it, complete it, ask its question, or admit its call."""
    step = start.step
    is_question = step.tool == questions.ASK_USER
    answered = is_question and questions.is_answered(step.pk)
    note = _NOT_DONE if answered else _skip_reason(start)
    start.tx.record("step.started", step.step_id, attempt=step.attempt, **note.event)
    if note.done:
        finishing.complete_as_skipped(start.tx, step)
        return None
    if step.agent:
        extensions.begin_agent_step(start.tx, start.plan, step)
        return None
    if not step.tool:
        finishing.complete_note(start.tx, step)
        return None
    order = prepare_step_call(start.plan, step)
    if is_question and not answered:
        _ask_question(start, order)
        return None
    return admit(start, order)


@dataclass(frozen=True, slots=True)
class _DoneCheck:
    done: bool
    event: dict[str, str]


_NOT_DONE = _DoneCheck(done=False, event={})


def _ask_question(start: StartContext, order: PreparedCall) -> None:
    """Let the step wait for the answer to its question. Raises ToolError if policies deny or hold the question."""
    verdict = gate(facts_for_rules(order, start.plan, start.step.pk))
    if isinstance(verdict, pipeline.Deny):
        raise record_denial(verdict, start.plan, order, start.step.step_id)
    if isinstance(verdict, pipeline.Hold):
        raise ToolError(
            "A policy holds questions for approval, which is not supported. Change it to allow or deny them."
        )
    questions.ask_question(start.tx, start.step, str(order.redacted_arguments["question"]))


def _skip_reason(start: StartContext) -> _DoneCheck:
    step = start.step
    if not step.done_check:
        return _NOT_DONE
    memory = dict(Memory(step.plan_pk))
    verdict = conditions.evaluate(step.done_check, memory, expected_key=step.expected_key or None)
    reason = finishing.public_condition(step, verdict.reason)
    return _DoneCheck(done=verdict.done, event={"check": reason} if reason and not verdict.done else {})


def admit(
    start: StartContext, order: PreparedCall, *, counted: bool = False
) -> RunningCall | RateLimitedCall | HeldCall | None:
    """Pass the call through the gate: start it, return it to be held, or refuse it with its step.

    A rate-limited call that is not `counted` yet is returned to be counted first.
    """
    verdict = gate(facts_for_rules(order, start.plan, start.step.pk))
    if isinstance(verdict, pipeline.Deny):
        finishing.refuse(start.tx, start.step, record_denial(verdict, start.plan, order, start.step.step_id))
        return None
    hold = HeldCall(start.step, start.plan, order, verdict.terms) if isinstance(verdict, pipeline.Hold) else None
    if hold is not None and (
        _refuse_if_rejected_before(start, order) or (not counted and defer_if_queue_full(start.tx, hold))
    ):
        return None
    try:
        limits.check_budget(start.tx.cursor, start.plan)
    except BudgetExceeded as refusal:
        finishing.refuse(start.tx, start.step, refusal)
        return None
    if not counted and limits.is_rate_limited(order):
        return RateLimitedCall(start.step, start.plan, order)
    if hold is not None:
        return hold
    call = new_call(start.plan, start.step.step_id, order, status=CallStatus.RUNNING)
    call.fence, call.attempt = start.step.attempt, 1
    call.created_at = call.started_at = start.tx.now
    if not statements.insert_step_call(start.tx.cursor, start.step, call, just_claimed=start.just_claimed):
        raise Conflict("Another worker took over this step before its call could start.")
    store_call_secrets(order, start.plan.ref, start.step.step_id)
    return _record_started(start, call, order)


def _refuse_if_rejected_before(start: StartContext, order: PreparedCall) -> bool:
    """Reject the call if the same call was rejected in this plan before; return whether it was."""
    first = rejected_request(start.plan.ref, order)
    if first is not None:
        refuse_as_before(start, order, first)
    return first is not None


def rejected_request(plan_ref: str, order: PreparedCall) -> ApprovalRequest | None:
    """Return the first rejected request of the plan with the same tool and arguments, or None."""
    tool = order.target.tool
    return held_calls.find_previous_rejection(plan_ref, tool.name, tool.input_schema, order.text, order.secrets)


def refuse_as_before(start: StartContext, order: PreparedCall, first: ApprovalRequest) -> Call:
    """Store the call of a claimed step and reject it like the earlier request `first`."""
    call = new_call(start.plan, start.step.step_id, order, status=CallStatus.CREATED)
    call.created_at = start.tx.now
    if not statements.insert_step_call(start.tx.cursor, start.step, call):
        raise Conflict("Another worker took over this step before its call could be rejected.")
    held_calls.repeat_rejection(call, first)
    return call


def _record_started(start: StartContext, call: Call, order: PreparedCall) -> RunningCall:
    record_call_event(start.tx, "call.started", call, level=order.level, attempt=call.attempt)
    return RunningCall(start.step, start.plan, call, order, budget=limits.spend_call(start.tx.cursor, start.plan))


def _continue_with_call(start: StartContext) -> WorkItem | None:
    """Continue a step that already has a call."""
    tx, step = start.tx, start.step
    call = Call.objects.select_related("approval", "grant_use").get(pk=step.call_pk or 0)
    situation = classify(call)
    check = _skip_reason(start) if situation.is_early else _NOT_DONE
    tx.record("step.started", step.step_id, attempt=step.attempt, **check.event)
    if check.done:
        early_requests.withdraw_early_requests(
            [call], "The step is not needed: its check says that it is already done."
        )
        finishing.complete_as_skipped(tx, step)
        return None
    work: WorkItem | None = None
    match situation:
        case CallSituation.EARLY:
            work = _continue_early(start, call)
        case CallSituation.EARLY_ANSWERED:
            early_requests.apply_early_answer(tx, step, call)
        case CallSituation.EARLY_UNANSWERED:
            work = _replace_early_call(start, call, prepare_step_call(start.plan, step))
        case CallSituation.ENDED:
            work = admit(start, prepare_replacement(call, edited_arguments(step, start.plan.ref)))
        case CallSituation.APPROVED:
            work = ApprovedCall(step, start.plan, call)
        case CallSituation.HANDED_BACK:
            work = _start_handed_back(start, call)
        case CallSituation.GRANTED | CallSituation.UNBEGUN:
            work = _start_unbegun(start, call)
        case CallSituation.ATTEMPTED:
            work = _start_stored(start, call, _prepare_unchanged(call))
    return work


def _continue_early(start: StartContext, call: Call) -> WorkItem | None:
    """Continue with the early request, unless the call has changed or was rejected since."""
    order = prepare_step_call(start.plan, start.step)
    if early_requests.invalidate_if_outdated(start.tx, call, order):
        return _replace_early_call(start, call, order)
    if early_requests.withdraw_if_rejected_before(call):
        return _replace_early_call(start, call, order)
    return ApprovedCall(start.step, start.plan, call) if early_requests.attach(start.tx, start.step, call) else None


def _replace_early_call(start: StartContext, call: Call, order: PreparedCall) -> WorkItem | None:
    """Admit the step's current call in place of `call`, which was requested early."""
    return admit(start, replace(order, replaces=call, asker=requester_ids_of(call)), counted=True)


def _start_handed_back(start: StartContext, call: Call) -> RunningCall:
    """Start a call whose approval is consumed and whose handler has not begun, if it still matches the approval.

    Raises ToolError if policies now deny the call or its approval is no longer valid.
    """
    order = _prepare_unchanged(call)
    try:
        start_check.recheck_consumed(call, order.target.fingerprint, order.target.implementation_digest)
    except (ApprovalExpired, Invalidated) as change:
        raise ToolError(f"{change} It was approved but has not run; request it again.") from None
    _ask_gate(start, order)
    return _start_stored(start, call, order)


def _start_unbegun(start: StartContext, call: Call) -> RunningCall | HeldCall:
    """Start a call that has not run and needed no approval, or hold it if policies now require one.

    A call started by a grant is held too: its grant is checked again after the preview. Raises ToolError if policies
    now deny the call.
    """
    order = _prepare_unchanged(call)
    verdict = _ask_gate(start, order)
    if isinstance(verdict, pipeline.Hold):
        return HeldCall(start.step, start.plan, order, verdict.terms, call)
    return _start_stored(start, call, order)


def _ask_gate(start: StartContext, order: PreparedCall) -> pipeline.Allow | pipeline.Hold:
    """Return the gate's verdict. Raises PolicyRefusal if policies deny the call."""
    verdict = gate(facts_for_rules(order, start.plan, start.step.pk))
    if isinstance(verdict, pipeline.Deny):
        raise record_denial(verdict, start.plan, order, start.step.step_id)
    return verdict


def _prepare_unchanged(call: Call) -> PreparedCall:
    """Return a stored call, prepared to run. Raises ToolDrifted if its tool's definition has changed."""
    order = prepare_stored_call(call)
    if order.target.version_pk != call.version_id:
        raise ToolDrifted(
            f"The definition of {call.tool_name} has changed since this call was requested; request it again."
        )
    return order


def _start_stored(start: StartContext, call: Call, order: PreparedCall) -> RunningCall:
    """Start a stored call. Raises BudgetExceeded, and ToolError if it was settled in the meantime."""
    limits.check_budget(start.tx.cursor, start.plan)
    if not statements.start_call(start.tx.cursor, call.pk, fence=start.step.attempt, now=start.tx.now):
        raise ToolError("The call was settled before it could start.")
    if order.target.implementation_pk != call.implementation_id:  # the stored one is switched off
        Call.objects.filter(pk=call.pk).update(implementation=order.target.implementation_pk)
    call.fence, call.attempt, call.started_at = start.step.attempt, call.attempt + 1, start.tx.now
    run = _record_started(start, call, order)
    return _with_approved_edit(run, call.approval) if hasattr(call, "approval") else run


def _with_approved_edit(run: RunningCall, request: ApprovalRequest) -> RunningCall:
    """Add the reviewers' edits, and for the first attempt the target state that they saw; a retry may find another."""
    approved = request.rounds.get(number=request.round_number)
    state = approved.state_token if run.call.attempt == 1 else ""
    return replace(run, edited=summarise_edits(request) if approved.number > 1 else None, target_state=state or None)
