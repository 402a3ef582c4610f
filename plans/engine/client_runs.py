"""Calls that their clients run: started when they are handed out, ended by a report, or unknown after their time.

A call is handed out in one transaction, which claims its step, checks and starts it like every other call, and gives
the lease back: the step then waits for the client's report. No executor claims such a step.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Literal

from django.contrib.auth.models import User

from approvals.audit import checkpoints
from approvals.errors import AuditUnavailable
from approvals.requests import lifecycle
from approvals.reviews.edits import EditSummary, summarise_edits
from catalog import signals
from catalog.calls.blobs import store_blobs
from catalog.context import ToolContext
from catalog.core import clock
from catalog.core.canonical_json import digest
from catalog.core.transactions import move, run_each, try_move
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.errors import Conflict, PolicyRefusal, Stopped, ToolError
from catalog.inventory.client_tools import ALLOWANCE_SECONDS
from catalog.models import Call, ClientRun
from catalog.results import Preview, UpstreamResult
from catalog.states import CallStatus
from plans.engine import admission, finishing, hints, holding, late_results, model_texts
from plans.engine.admission import CallSituation
from plans.engine.calls import new_lease, prepare_reported_call, prepare_stored_call
from plans.engine.start import StartContext
from plans.engine.work import (
    ApprovedCall,
    HeldCall,
    PreparedCall,
    RunningCall,
    StaleApproval,
    WorkItem,
    load_snapshot,
    load_snapshot_of,
)
from plans.models import Step
from plans.states import WaitingFor
from plans.store import statements
from plans.store.statements import StepWait
from plans.store.transactions import PlanTransaction, transact, transact_for

DOMAIN = "client-run-v1"
BATCH = 100
OWNER = "client"
"""Owner of the lease within the transaction that hands a call out; nobody else ever sees it."""


def run_digest(client: str, session: str, client_tool: str, arguments: str) -> str:
    """Return the digest that an allowance is bound to; `arguments` is RFC 8785 text with the secrets cut out."""
    return digest(DOMAIN, client, session, client_tool, arguments)


def hand_over(tx: PlanTransaction, running_call: RunningCall, run: ClientRun) -> None:
    """Hand a call that was started in this transaction over to its client. Raises Conflict if it was handed out before.

    `run` is stored if it is new. The caller passes the answer on after `confirm_start`.
    """
    call, step = running_call.call, running_call.step
    if not statements.release_step(tx.cursor, step, StepWait(WaitingFor.CLIENT, call.pk, tx.now)):
        raise Conflict("Another process took over this step before its call could be handed out.")
    tx.record("step.waiting", step.step_id, waiting_for="client", call=call.public_id)
    until = tx.now + timedelta(seconds=ALLOWANCE_SECONDS)
    bound = run_digest(run.client, run.session, run.client_tool, call.arguments)
    if run.pk is None:
        run.call, run.allowed_at, run.allowed_until, run.run_digest = call, tx.now, until, bound
        run.save(force_insert=True)
    elif not ClientRun.objects.filter(pk=call.pk, allowed_at=None).update(
        allowed_at=tx.now, allowed_until=until, run_digest=bound
    ):
        raise Conflict("This call was handed out already.")


def hand_out(run: ClientRun) -> bool:
    """Start a call that waits for its client, and hand it out; return False if that was not possible or not needed.

    The call may have ended by then: its approval has expired or no longer fits, its tool is disabled, or a policy now
    denies it. Raises Stopped, AuditUnavailable, RestoredDatabase, and Conflict if the call has just changed: read it
    again.
    """
    call = Call.objects.get(pk=run.call_id)
    plan = load_snapshot_of(call)
    try:
        prepared = prepare_stored_call(call)
        preview = holding.compute_preview(plan, int(call.step_ref), prepared)
        is_out = transact(plan.pk, plan.ref, lambda tx: _start(tx, run, call.arguments, prepared, preview))
    except Stopped:
        raise
    except ToolError as error:
        transact(plan.pk, plan.ref, partial(_refuse, call=call, error=error))
        return False
    return is_out and confirm_start(run)


def _claim(tx: PlanTransaction, call_pk: int) -> StartContext | None:
    step_pk = Step.objects.filter(call=call_pk).values_list("pk", flat=True).first()
    claimed = statements.claim_for_client(tx.cursor, step_pk, new_lease(OWNER, tx)) if step_pk is not None else None
    if claimed is None:
        return None
    tx.record("step.started", claimed.step_id, attempt=claimed.attempt)
    return StartContext(tx, load_snapshot(tx.plan_pk).with_deadline_of(claimed), claimed)


def _start(
    tx: PlanTransaction, run: ClientRun, arguments: str, prepared: PreparedCall, preview: Preview | None
) -> bool:
    """Claim, check, start and hand over the call, if its stored `arguments` are still those that were prepared."""
    context = _claim(tx, run.call_id)
    if context is None:
        return False
    call = Call.objects.select_related("approval", "grant_use", "envelope_use", "token").get(pk=run.call_id)
    if call.arguments != arguments:
        raise Conflict("The call was edited at this moment.")
    situation = admission.classify(call)
    work: WorkItem | None
    if situation is CallSituation.APPROVED:
        work = ApprovedCall(context.step, context.plan, call)
    else:
        try:
            work = admission.start_stored(context, call, situation)
        except PolicyRefusal as refusal:  # ends the call here, since raising would undo the refusal's audit entry
            finishing.refuse(tx, context.step, refusal)
            work = None
    if isinstance(work, ApprovedCall | HeldCall):
        work = holding.hold_or_start(tx, work, prepared, preview)
    if isinstance(work, StaleApproval):  # the client's next question makes a new call
        lifecycle.invalidate(call.approval, reason=work.reason, drift=work.what)
        finishing.fail(tx, context.step, work.reason, call=call)
    elif isinstance(work, RunningCall):
        hand_over(tx, work, run)
    finishing.settle_plan(tx)
    return isinstance(work, RunningCall)


def _refuse(tx: PlanTransaction, call: Call, error: ToolError) -> None:
    context = _claim(tx, call.pk)
    if context is not None:
        finishing.refuse(tx, context.step, error)
        finishing.settle_plan(tx)


def confirm_start(run: ClientRun) -> bool:
    """Return True if the client may be told to run a call that was just handed out.

    A dangerous call whose start no checkpoint of the audit log covers is taken back: after a database restore, nothing
    would show that it ran.
    """
    call = Call.objects.select_related("version").get(pk=run.call_id)
    if call.version.safety_level != SafetyLevel.DANGEROUS or checkpoints.ensure_start_checkpoint(call):
        return True
    transact_for(call, lambda tx: _take_back(tx, call))
    return False


def _take_back(tx: PlanTransaction, call: Call) -> None:
    started = Call.objects.filter(pk=call.pk, fence=call.fence)
    if try_move(started, to=CallStatus.READY, attempt=call.attempt - 1):
        ClientRun.objects.filter(pk=call.pk).update(allowed_at=None, allowed_until=None, run_digest="")
        more = {"call": call.public_id, "attempt": call.attempt, "error": AuditUnavailable.code}
        tx.record("step.retrying", int(call.step_ref), **more)
        tx.record("step.waiting", int(call.step_ref), waiting_for="client", call=call.public_id)


def stop_waiting_for_report(run: ClientRun) -> None:
    """Let the outcome of a call that was handed out become unknown now. Does nothing if its end was reported."""
    now = clock.now()
    out = ClientRun.objects.filter(pk=run.pk, reported_at=None, call__status=CallStatus.RUNNING)
    out.filter(allowed_until__gt=now).update(allowed_until=now)


def expire_unreported(now: datetime) -> int:
    """Mark the outcome of calls as unknown that were handed out and not reported in time; return their number."""
    overdue = ClientRun.objects.filter(allowed_until__lte=now).select_related("call__version").order_by("allowed_until")
    return run_each(_expire, list(overdue[:BATCH]))


def _expire(run: ClientRun) -> bool:
    return transact_for(run.call, lambda tx: _set_unknown(tx, run))


def _set_unknown(tx: PlanTransaction, run: ClientRun) -> bool:
    if not ClientRun.objects.filter(pk=run.pk, allowed_until__lte=tx.now).update(allowed_until=None):
        return False  # reported in the meantime
    step = statements.load_step(tx.cursor, Step.objects.values_list("pk", flat=True).get(call=run.call_id))
    call = Call.objects.select_related("version").get(pk=run.call_id)
    if call.status == CallStatus.RUNNING:
        finishing.wait_for_settlement(tx, step, call)
    return True


def outcome_of_report(call: Call, result: UpstreamResult[object]) -> tuple[PreparedCall, pipeline.CallOutcome]:
    """Return the call prepared to be ended, and its outcome: the reported result like that of a tool that ran here."""
    prepared = prepare_reported_call(call)
    reported = prepared.target.tool.with_code(lambda arguments: result, None)
    return prepared, pipeline.run_call(reported, prepared.arguments, ToolContext(), secrets=prepared.secrets)


EndEffect = Literal["ended", "late", "repeated", "kept"]


def end_reported(call_pk: int, result: UpstreamResult[object], *, by: User) -> EndEffect:
    """End a call with its client's report. Return the effect: `ended`, `late`, `repeated`, or `kept`.

    `late` means that the report settled a call whose outcome was unknown, and `kept` that the call had ended otherwise:
    the report is then kept as evidence.
    """
    call = Call.objects.select_related("token", "version").get(pk=call_pk)
    prepared, outcome = outcome_of_report(call, result)
    plan = load_snapshot_of(call)

    def end(tx: PlanTransaction) -> EndEffect:
        unreported = ClientRun.objects.filter(pk=call_pk, allowed_at__isnull=False, reported_at=None)
        if not unreported.update(reported_at=tx.now, allowed_until=None):
            return "repeated" if ClientRun.objects.filter(pk=call_pk, reported_at__isnull=False).exists() else "kept"
        now = Call.objects.select_related("token", "version").get(pk=call_pk)
        step = statements.load_step(tx.cursor, Step.objects.values_list("pk", flat=True).get(call=call_pk))
        running_call = RunningCall(step, plan, now, prepared, edited=_edits_of(now))
        if now.started_at is not None:
            running_call = replace(running_call, began=monotonic() - (tx.now - now.started_at).total_seconds())
        effect: EndEffect
        if now.status == CallStatus.RUNNING:
            finishing.finish(tx, running_call, outcome)
            effect = "ended"
        elif now.status == CallStatus.OUTCOME_UNKNOWN:
            _settle(tx, running_call, outcome, by)
            effect = "late"
        else:
            late_results.keep_as_evidence(now, late_results.evidence_of(running_call, outcome, outcome))
            effect = "kept"
        hints.hint(tx.plan_pk, tx.run_deferred())
        finishing.settle_plan(tx)
        return effect

    return transact(plan.pk, plan.ref, end)


def _edits_of(call: Call) -> EditSummary | None:
    request = getattr(call, "approval", None)
    return summarise_edits(request) if request is not None and request.round_number > 1 else None


def _settle(tx: PlanTransaction, running_call: RunningCall, outcome: pipeline.CallOutcome, by: User) -> None:
    """Settle a call of unknown outcome with the report that came late."""
    call, step, prepared = running_call.call, running_call.step, running_call.prepared
    response = pipeline.standard_response(prepared.target.tool, prepared.given_arguments, outcome)
    ending, content = finishing.ending_of(outcome, response, now=tx.now)
    signals.record_fact("call.settled", call=call, by=by, verdict="reported", reason="The client reported it late.")
    columns = {name: getattr(ending, name) for name in ("response", "message", "error_kind", "content", "warnings")}
    move(Call.objects.filter(pk=call.pk), to=ending.status, finished_at=tx.now, **columns)
    if content is not None:
        store_blobs(call, content.blobs)
    model_texts.store_model_text(call, outcome)
    kind = "call.succeeded" if ending.status == CallStatus.COMPLETED else "call.failed"
    tx.record(kind, step.step_id, call=call.public_id, settled=True)
    if ending.status == CallStatus.COMPLETED:
        tx.became_ready += finishing.complete(tx, step, response, call=call)
    else:
        finishing.fail(tx, step, outcome.message, call=call)
