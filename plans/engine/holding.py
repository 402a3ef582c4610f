"""Held calls: their preview, their request, and their start once they are approved or a grant or envelope covers them.

Previews run outside transactions. For requests of people and agents, each preview runs in its own thread, so a hanging
tool cannot block the request: after a timeout the approval request is opened with a notice instead. The preview is
computed again and compared before the call starts. Each requester may wait for only a few previews at once, so that
other requesters need not wait behind them.

A use of a grant or an envelope is counted when it lets a call start. A call so started is treated like an approved one:
it does not restart when its worker is lost, and repeating it needs a person.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import connection

from approvals.envelopes import coverage as envelope_coverage
from approvals.envelopes.services import open_envelope
from approvals.errors import ApprovalExpired, Invalidated
from approvals.grants import coverage
from approvals.grants.coverage import GrantCandidate
from approvals.models import ApprovalRequest
from approvals.policies.gate import can_look_back
from approvals.policies.rulebook import Rule
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.requests import deadlines, lifecycle, start_check
from approvals.requests import limits as request_limits
from approvals.requests.digests import ApprovalBinding
from approvals.requests.lifecycle import RequestProvenance
from approvals.reviews.edits import summarise_edits
from catalog.core.transactions import move
from catalog.dispatch import pipeline
from catalog.errors import Conflict, RateLimited, Stopped
from catalog.inventory import snapshot
from catalog.models import Call, CallRequester
from catalog.results import Preview
from catalog.states import CallStatus
from plans.engine import admission, calls, finishing, grants, limits, start, stops
from plans.engine.admission import CallSituation, classify
from plans.engine.calls import new_call, requesters_of
from plans.engine.limits import defer_if_queue_full, request_owner
from plans.engine.refusals import record_denial
from plans.engine.start import Permission, StartContext
from plans.engine.work import (
    ApprovedCall,
    HeldCall,
    PlanSnapshot,
    PreparedCall,
    RunningCall,
    StaleApproval,
    WorkItem,
    WorkWithPreview,
    load_snapshot_of,
)
from plans.states import WaitingFor
from plans.store import statements
from plans.store.requesters import input_authors_of
from plans.store.statements import StepWait
from plans.store.transactions import PlanTransaction

PREVIEWS_AT_ONCE = 4
SLOT_WAIT_SECONDS = 1.0
"""Longest time in seconds that a request waits for a free preview slot."""
PREVIEW_TIMED_OUT = "The preview timed out."
NOT_PREVIEWED = "The preview was not computed, because this call is stopped:"
TOO_MANY_PREVIEWS = "The preview was not computed because too many other previews are running."

PREVIEWS_PER_REQUESTER = 2
"""Previews that the direct calls of one token, or of one person on pages, wait for at once."""
SHARE_WAIT_SECONDS = 0.25
"""Longest time in seconds that a direct call waits, and blocks a thread, for other calls of its requester."""
BUSY_RETRY_SECONDS = 5
TOO_MANY_CALLS = "Too many of your calls are being previewed at this moment. Make this one again in a few seconds."

_preview_slots = threading.BoundedSemaphore(PREVIEWS_AT_ONCE)
_waiting: Counter[str] = Counter()
_waiting_changed = threading.Condition()


class CallBusy(RateLimited):
    """The call was not stored: it would wait too long for other calls of the same requester. → 429"""

    code = "call_busy"

    def __init__(self, message: str = TOO_MANY_CALLS) -> None:
        super().__init__(message, retry_after=BUSY_RETRY_SECONDS)


def compute_preview(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> Preview | None:
    """Compute the preview of a call. Raises Stopped, and ToolError if the tool refuses the call."""
    stops.require_not_stopped_now(plan, step_id, prepared)
    return _computed_preview(plan, step_id, prepared)


def _computed_preview(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> Preview | None:
    context = calls.context_for_preview(plan, step_id, prepared)
    return pipeline.preview_call(prepared.target.tool, prepared.arguments, context, secrets=prepared.secrets)


def preview_in_share(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> Preview | None:
    """Return the preview of a direct call like `preview_with_timeout`, within its requester's share of preview slots.

    Raises CallBusy if the share is used up. A preview that timed out does not count: its tool may never return.
    """
    with _share_of(prepared):
        return preview_with_timeout(plan, step_id, prepared)


@contextmanager
def _share_of(prepared: PreparedCall) -> Iterator[None]:
    asker = prepared.asker
    owner = "" if asker is None else f"token {asker.token_id}" if asker.token_id else f"user {asker.user_id}"
    with _waiting_changed:
        if not _waiting_changed.wait_for(lambda: _waiting[owner] < PREVIEWS_PER_REQUESTER, SHARE_WAIT_SECONDS):
            raise CallBusy
        _waiting[owner] += 1
    try:
        yield
    finally:
        with _waiting_changed:
            _waiting[owner] -= 1
            if not _waiting[owner]:
                del _waiting[owner]
            _waiting_changed.notify_all()


def preview_with_timeout(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> Preview | None:
    """Return a call's preview, or a notice if it timed out or no slot was free.

    Raises Stopped, and ToolError if the tool refuses the call.
    """
    if not _preview_slots.acquire(timeout=SLOT_WAIT_SECONDS):
        return Preview(TOO_MANY_PREVIEWS, "none")
    try:
        stops.require_not_stopped_now(plan, step_id, prepared)
    except BaseException:
        _preview_slots.release()
        raise
    answer: Future[Preview | None] = Future()

    def compute() -> None:
        try:
            answer.set_result(_computed_preview(plan, step_id, prepared))
        except BaseException as error:  # noqa: BLE001 - raised by answer.result()
            answer.set_exception(error)
        finally:
            connection.close()
            _preview_slots.release()

    # Daemon thread: a tool that never returns must not prevent the process from exiting.
    threading.Thread(target=compute, name="toolgate-preview", daemon=True).start()
    try:
        return answer.result(pipeline.PREVIEW_SECONDS)
    except TimeoutError:
        return Preview(PREVIEW_TIMED_OUT, "none")


def preview_again(call: Call, arguments: Mapping[str, Any]) -> Preview | None:
    """Preview a stored call with other arguments; a notice if a stop covers it.

    Raises the errors of `preview_with_timeout` and `prepare_call`.
    """
    plan = load_snapshot_of(call)
    prepared = calls.prepare_call(call.tool_name, arguments, plan_ref=plan.ref, kept=call.implementation_id)
    prepared = replace(prepared, asker=calls.requester_ids_of(call), cwd=calls.cwd_of(call))
    return preview_unless_stopped(plan, int(call.step_ref), prepared)


def preview_unless_stopped(plan: PlanSnapshot, step_id: int, prepared: PreparedCall) -> Preview | None:
    """Return a call's preview like `preview_with_timeout`, or a notice if a stop covers the call."""
    try:
        return preview_with_timeout(plan, step_id, prepared)
    except Stopped as stopped:
        return Preview(f"{NOT_PREVIEWED} {stopped.reason}", "none")


def prepare(work: WorkWithPreview) -> PreparedCall:
    """Return the prepared call, which needs a preview before it is held or started. Raises ToolError."""
    if isinstance(work, HeldCall):
        return work.prepared
    is_approved = isinstance(work, ApprovedCall)
    return calls.prepare_stored_call(work.call) if is_approved else calls.prepare_replacement(work.call)


def hold_or_start(
    tx: PlanTransaction, work: WorkWithPreview, prepared: PreparedCall, preview: Preview | None
) -> WorkItem | None:
    """Start a call whose preview was computed, or store it with its approval request; no thread waits for a decision.

    Returns the started call or, if the approval is no longer valid, the next work on the step. Raises ToolError,
    AuditUnavailable, and Conflict if the lease was lost.
    """
    if isinstance(work, ApprovedCall):
        return _start_approved(tx, work, prepared, preview)
    if isinstance(work, HeldCall):
        held = _judged_again(tx, work)
        if not isinstance(held, HeldCall):
            return held
        work = held
        run = start_covered(tx, work, preview)
        if run is None and not defer_if_queue_full(tx, work, exactly=True):
            store_held(tx, work, preview)
        return run
    history = calls.history_of(prepared, work.plan, tx=tx)
    if _can_look_back(work, prepared):  # before the log records anything: its lock comes after those of counts
        admission.ask_gate(work.plan, prepared, history, work.step.pk)
    lifecycle.invalidate(work.call.approval, reason=work.reason, drift=work.what)
    admitted = admission.admit(StartContext(tx, work.plan, work.step), prepared, counted=True, history=history)
    if isinstance(admitted, HeldCall):
        store_held(tx, admitted, preview)
        return None
    return admitted


def _judged_again(tx: PlanTransaction, held_call: HeldCall) -> WorkItem | None:
    """Return the held call as judged in this transaction, which stores it, if rules look back at what came before.

    Others may have called since it was admitted, and rules may have changed. If nothing holds it now, it is started; if
    it is denied, its step is refused: None.
    """
    prepared, plan, step = held_call.prepared, held_call.plan, held_call.step
    if not _can_look_back(held_call, prepared):
        return replace(held_call, history=None)
    context = StartContext(tx, plan, step)
    if held_call.call is None:
        return admission.admit(context, prepared, counted=True)
    history = calls.history_of(prepared, plan, held_call.call, tx=tx)
    verdict = admission.ask_gate(plan, prepared, history, step.pk)
    if isinstance(verdict, pipeline.Deny):
        finishing.refuse(tx, step, record_denial(verdict, plan, prepared, step))
        return None
    if isinstance(verdict, pipeline.Hold):
        return replace(held_call, rule=verdict.terms, history=history)
    return start.begin(context, prepared, held_call.call, Permission(history=history))


def _can_look_back(work: WorkWithPreview, prepared: PreparedCall) -> bool:
    return can_look_back(calls.facts_for_rules(prepared, work.plan, work.step.pk))


def _start_approved(
    tx: PlanTransaction, approved: ApprovedCall, prepared: PreparedCall, preview: Preview | None
) -> RunningCall | StaleApproval | None:
    """Consume the approval and start the call; None if the approval has expired, which fails the step."""
    call, target, state = approved.call, prepared.target, (preview.state_token or "") if preview else ""
    binding = ApprovalBinding(target.fingerprint, target.implementation_digest, call.arguments, state)
    limits.check_budget(tx.cursor, approved.plan)  # first: nobody is asked again for a call that may not start
    history = calls.history_of(prepared, approved.plan, call, tx=tx)
    try:
        approved_round = start_check.consume(call, binding, now=tx.now, history=history)
    except ApprovalExpired:
        deadlines.expire_if_due(call.approval, tx.now)
        return None
    except Invalidated as change:
        snapshot.drop_snapshot()
        return StaleApproval(approved.step, approved.plan, call, str(change), change.what)
    edited = summarise_edits(approved_round.request) if approved_round.number > 1 else None
    context = StartContext(tx, approved.plan, approved.step)
    opens = partial(open_envelope, now=tx.now) if call.tool_name == PROPOSE_ENVELOPE else None
    permission = Permission(state or None, edited, record=opens, history=history)
    return start.begin(context, prepared, call, permission)


def start_covered(tx: PlanTransaction, held_call: HeldCall, preview: Preview | None) -> RunningCall | None:
    """Start a held call under a grant or an envelope that covers it, in this transaction; None if none covers it now.

    If the call was started before and handed back before its handler began, it keeps that use, if it is still valid.
    Raises Conflict if the step was taken over in the meantime, and BudgetExceeded.
    """
    prepared, plan, step = held_call.prepared, held_call.plan, held_call.step
    was_covered = held_call.call is not None and classify(held_call.call) is CallSituation.COVERED
    if not (was_covered or grants.may_be_covered(plan, prepared)):
        return None
    # If nothing covers it, a request is opened; its slot lock comes before the audit log's, which a use takes.
    request_limits.lock_slots(request_owner(plan, prepared))
    limits.check_budget(tx.cursor, plan)
    people = requesters_of(plan, prepared, step.pk)
    candidate = grants.grant_query(plan, prepared, people, input_authors_of(step))
    if held_call.call is not None and was_covered:
        used = coverage if hasattr(held_call.call, "grant_use") else envelope_coverage
        if not used.is_still_valid(held_call.call, candidate, held_call.rule, now=tx.now):
            return None
        record = None
    else:
        record = _use_recorder(candidate, held_call.rule, people, tx.now)
        if record is None:
            return None
    state = (preview.state_token or None) if preview else None
    permission = Permission(state, record=record, history=held_call.history)
    return start.begin(StartContext(tx, plan, step), prepared, held_call.call, permission)


def _use_recorder(
    candidate: GrantCandidate, rule: Rule, people: Iterable[int], now: datetime
) -> Callable[[Call], None] | None:
    """Count a use of a grant, or else of an envelope, and return what records it with the call; None without one."""
    grant = coverage.consume_use(candidate, rule, now=now)
    fit = envelope_coverage.consume_use(candidate, rule, now=now) if grant is None else None
    if grant is None and fit is None:
        return None

    def record_use(call: Call) -> None:
        CallRequester.objects.bulk_create(CallRequester(call=call, user_id=person) for person in people)
        if grant is not None:
            coverage.record_grant_use(grant, call, now=now)
        elif fit is not None:
            envelope_coverage.record_use(fit, call, now=now)

    return record_use


def store_held(tx: PlanTransaction, held_call: HeldCall, preview: Preview | None) -> Call:
    """Store a held call, its requesters and its approval request. Raises Conflict if the lease was lost."""
    call = store_as_held(tx, held_call)
    if not statements.release_step(tx.cursor, held_call.step, StepWait(WaitingFor.APPROVAL, call.pk, tx.now)):
        raise Conflict("Another worker took over this step while its preview was computed.")
    request = open_approval_request(tx, held_call, call, preview)
    tx.record(
        "step.waiting", held_call.step.step_id, waiting_for="approval", call=call.public_id, approval=request.public_id
    )
    return call


def store_as_held(tx: PlanTransaction, held_call: HeldCall) -> Call:
    """Store the call as held; a call that was stored while a grant or an envelope covered it becomes held."""
    call = held_call.call
    if call is not None:
        move(Call.objects.filter(pk=call.pk), to=CallStatus.HELD)
    else:
        call = new_call(held_call.plan, held_call.step.step_id, held_call.prepared, status=CallStatus.HELD)
        call.created_at = tx.now
        statements.insert_call(tx.cursor, call)
        calls.store_call_secrets(held_call.prepared, held_call.plan.ref, held_call.step.step_id)
        step_pk, history = held_call.step.pk, held_call.history
        calls.record_trials(call, held_call.prepared, held_call.plan, step_pk=step_pk, history=history)
    if held_call.history is not None:
        held_call.history.keep(call, is_started=False, held_by=held_call.rule.revision_id)
    return call


def open_approval_request(
    tx: PlanTransaction, held_call: HeldCall, call: Call, preview: Preview | None, *, early_by: User | None = None
) -> ApprovalRequest:
    """Store a held call's requesters and open its approval request; `early_by` is the person who asked for it early."""
    people = requesters_of(held_call.plan, held_call.prepared, held_call.step.pk)
    if call.requested_by_id is not None:
        people.add(call.requested_by_id)
    rows = [CallRequester(call=call, user_id=person) for person in people]
    # An earlier start under a grant or an envelope may have stored some.
    CallRequester.objects.bulk_create(rows, ignore_conflicts=True)
    background = RequestProvenance(early_by, input_authors_of(held_call.step))
    request = lifecycle.open_request(call, rule=held_call.rule, preview=preview, now=tx.now, provenance=background)
    candidate = grants.grant_query(held_call.plan, held_call.prepared, people)
    envelope_coverage.record_mismatch(candidate, call, now=tx.now)
    if held_call.prepared.replaces is not None:
        lifecycle.supersede(held_call.prepared.replaces, request)
    return request
