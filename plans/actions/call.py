"""Direct calls: a tool called over REST or from its page becomes a plan of one step, or one more step of a plan.

A rehearsal checks a call, asks the gate and computes the preview, but stores and counts nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import IntegrityError
from django.db.models import Max, Q

from approvals.audit.checkpoints import checkpoint_write_fault
from approvals.audit.restore_guard import ensure_not_restored
from approvals.errors import AuditUnavailable
from approvals.models import ApprovalRequest
from approvals.policies.gate import gate
from approvals.policies.history import History
from approvals.policies.rulebook import Rule
from approvals.requests.limits import check_pending_limit, reserve_slot
from catalog.access.roles import NotAllowed
from catalog.core.canonical_json import canonical_text
from catalog.core.database import insert_row
from catalog.core.transactions import retry_on_deadlock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.dispatch.pipeline import GateDecision
from catalog.errors import Conflict, Stopped, field_error
from catalog.models import ApiToken, Call, ClientRun, new_call_id
from catalog.results import Preview
from catalog.secrets.placeholders import redact_text
from catalog.sources.loading import runs_in_client
from catalog.states import CallStatus
from plans import spec
from plans.actions.create import new_plan
from plans.documents.references import escape_references
from plans.engine import (
    admission,
    calls,
    client_runs,
    finishing,
    grants,
    hints,
    holding,
    limits,
    loop,
    running_first,
    start,
    stops,
)
from plans.engine.calls import new_call
from plans.engine.hints import LocalExecutor
from plans.engine.holding import preview_in_share
from plans.engine.limits import request_owner
from plans.engine.refusals import record_denial, require_call_within_limits, require_plan_within_limits
from plans.engine.start import StartContext
from plans.engine.work import HeldCall, PlanSnapshot, PreparedCall, RunningCall, UnstoredCall, snapshot_of
from plans.models import Plan, Step
from plans.sessions.lists import require_no_session_list
from plans.states import PlanStatus
from plans.store import statements
from plans.store.plan_documents import removed_step_numbers
from plans.store.requesters import Requester
from plans.store.selectors import may_control, plan_for
from plans.store.statements import ClaimedStep
from plans.store.transactions import (
    PlanTransaction,
    new_plan_transaction,
    plan_transaction,
    recover_lost_commit,
    retry_while_database_is_away,
)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The gate's decision about a call, and the call's preview (None if the tool offers no previews)."""

    level: SafetyLevel
    verdict: GateDecision
    preview: Preview | None


def rehearse(tool: str, arguments: Mapping[str, Any], *, by: Requester) -> Rehearsal:
    """Check and preview a call without making it. Raises ToolError, and the errors of `create_call` before storing."""
    require_call_within_limits(tool, arguments, by.ids)
    prepared = replace(calls.prepare_call(tool, dict(arguments)), asker=by.ids)
    if prepared.target.tool.runs_in_client:
        raise runs_in_client(tool, prepared.target.source)
    plan = snapshot_of(new_plan(f"Call {tool}", by, Plan.Kind.CALL))
    verdict = gate(calls.facts_for_rules(prepared, plan))
    return Rehearsal(prepared.target.tool.safety_level, verdict, preview_in_share(plan, 1, prepared))


_SCALARS = (str, int, float, bool, type(None))
ALREADY_REPLACED = "That call was already replaced by another one; see its replaced_by."


@dataclass(frozen=True, slots=True)
class CallOrder:
    """A requested direct call; `plan_ref` adds it to an existing plan that may be changed.

    `replaces` is the id of an ended call of the same tool and requester that this call replaces. `caller_ids` are
    passed unchanged to the tool in its context, values other than JSON scalars as text. They are stored with a plan of
    one step, and ignored with a `plan_ref`. `prepared` is the prepared call, if the caller has it already. `client_run`
    is the unsaved row of a call that its client runs: if it is allowed, it is handed out in the same transaction.
    """

    tool: str
    arguments: Mapping[str, Any]
    query_type: str | None = None
    reason: str = ""
    plan_ref: str | None = None
    replaces: str | None = None
    caller_ids: Mapping[str, Any] = field(default_factory=dict)
    prepared: PreparedCall | None = None
    client_run: ClientRun | None = None


def create_call(order: CallOrder, *, by: Requester) -> Call:
    """Store a direct call as a plan of one step, or as one more step of a plan, and start it or let it wait.

    Raises RestoredDatabase first, because calls also arrive by MCP. Raises UnknownTool, ToolDisabled, ParameterError,
    QueryTypeUnsupported, PolicyRefusal, RateLimited, Stopped, and ToolError for a tool that only its client runs,
    before anything is stored; AuditUnavailable if a call of a client cannot be handed out; Conflict if the plan
    accepts no more steps; Plan.DoesNotExist if the requester may not see the plan; NotAllowed if they may not control
    the plan; OutsideLimits for the tool, or for other steps of the plan.
    """
    ensure_not_restored()
    require_call_within_limits(order.tool, order.arguments, by.ids)
    plan = _plan_of_one(order, by) if order.plan_ref is None else _plan_to_join(order.plan_ref, by)
    arguments = dict(order.arguments)
    if order.query_type is not None:
        arguments = {"query_type": order.query_type, "parameters": arguments}
    prepared = calls.prepare_for_plan(order.tool, arguments, plan.public_id, order.prepared)
    run = order.client_run
    if run is not None:
        prepared = replace(prepared, cwd=run.cwd)
    elif prepared.target.tool.runs_in_client:
        raise runs_in_client(order.tool, prepared.target.source)
    old = replaced_call(order.replaces, order.tool, by) if order.replaces else None
    prepared = replace(prepared, reason=redact_text(order.reason), asker=by.ids, replaces=old)
    facts = snapshot_of(plan)
    admitted = _admit(facts, prepared)
    try:
        return _run_or_store(plan, facts, admitted, run, joins=order.plan_ref is not None)
    except IntegrityError:
        if old is None or not Call.objects.filter(replaces=old).exists():
            raise
        raise Conflict(ALREADY_REPLACED) from None


def replaced_call(public_id: str, tool: str, by: Requester) -> Call:
    """Return the ended call that another call replaces.

    Raises ParameterError if another requester made the call or it is a call of another tool, and Conflict if it has not
    ended, has succeeded, or was already replaced.
    """
    is_agent = by.token is not None and by.token.kind == ApiToken.Kind.AGENT
    own = Q(token=by.token) if is_agent else Q(requested_by=by.user)
    old = Call.objects.filter(own, public_id=public_id).first()
    if old is None:
        raise field_error("replaces", "unknown_call", "You made no call with this id.")
    if old.tool_name != tool:
        raise field_error(
            "replaces",
            "other_tool",
            f"That call is of {old.tool_name}; only a call of the same tool can replace it.",
        )
    if old.status not in (CallStatus.FAILED, CallStatus.CANCELLED):
        raise Conflict("Only a failed or cancelled call can be replaced. Withdraw that call first if it is waiting.")
    if Call.objects.filter(replaces=old).exists():
        raise Conflict(ALREADY_REPLACED)
    return old


def _plan_to_join(plan_ref: str, by: Requester) -> Plan:
    plan = plan_for(by.user, by.token, plan_ref)
    if not may_control(by.user, by.token, plan):
        raise NotAllowed("Only the plan's owner or an administrator may add calls to it.")
    # Checked again when the step is stored; checking here keeps a call that must fail from counting against a limit.
    _check_open(plan)
    require_plan_within_limits(plan, by.ids)  # the call's result may be what a later step takes as argument
    return plan


def _plan_of_one(order: CallOrder, by: Requester) -> Plan:
    """Return an unsaved plan for a direct call. Its status is `in_progress` from the beginning."""
    plan = new_plan(f"Call {order.tool}", by, Plan.Kind.CALL, status=PlanStatus.IN_PROGRESS)
    plan.started_at = plan.created_at
    if order.caller_ids:
        ids = {name: each if isinstance(each, _SCALARS) else str(each) for name, each in order.caller_ids.items()}
        plan.caller_ids = json.dumps(ids)
    return plan


def _check_open(plan: Plan) -> None:
    require_no_session_list(plan)
    plan.refresh_from_db(fields=["status", "can_modify", "paused_at", "calls_used", "seconds_used"])
    if plan.paused_at is not None:
        raise Conflict("This plan is paused. Resume it before you add calls to it.")
    if not plan.can_modify or plan.status != PlanStatus.IN_PROGRESS:
        raise Conflict("This plan accepts no more steps: it cannot be changed, has not started, or has ended.")
    if limits.is_budget_used_up(plan):
        raise Conflict("This plan accepts no more calls: its budget is used up.")
    if plan.steps.count() >= spec.MAX_STEPS:
        raise Conflict(f"This plan has {spec.MAX_STEPS} steps, which is the maximum.")


@dataclass(frozen=True, slots=True)
class _AdmittedCall:
    """A direct call that the gate allows or holds, with its preview if held; computed outside the transaction."""

    prepared: PreparedCall
    rule: Rule | None
    preview: Preview | None
    first: ApprovalRequest | None = None
    """The request for the same tool and arguments that people rejected earlier in this plan."""
    history: History | None = None
    """The history of the call, if rules ask: of the moment, or judged in the transaction that stores the call."""
    is_previewed: bool = False
    counted_at: datetime | None = None
    """Time at which its rate limit counted the call, if it has one."""

    @property
    def may_run_first(self) -> bool:
        """True if no rule holds the call, or could still do so when it is stored."""
        return self.rule is None and self.history is None


class _JudgedOtherwise(Exception):
    """In the transaction that stores a call, what came before it gave a verdict that needs work outside of it."""

    def __init__(self, verdict: GateDecision) -> None:
        super().__init__()
        self.verdict = verdict


def _run_or_store(
    plan: Plan, plan_snapshot: PlanSnapshot, admitted: _AdmittedCall, run: ClientRun | None, *, joins: bool
) -> Call:
    """Run an admitted call before it is stored if it may, or else store it.

    A call that a stop refuses here does not count against its rate limit.
    """
    prepared = admitted.prepared
    try:
        if run is None and not joins and admitted.may_run_first and not prepared.target.drifted:
            executor = hints.local_executor()
            if executor is not None and running_first.may_run_first(prepared):
                call = _run_first(plan, plan_snapshot, prepared, executor)
                if call is not None:
                    return call
        if admitted.rule is None:
            stops.require_not_stopped_now(plan_snapshot, 1, prepared)
        while True:
            try:
                return _store(plan, plan_snapshot, admitted, run, joins=joins)
            except _JudgedOtherwise as judged:
                admitted = _as_judged(plan_snapshot, admitted, judged.verdict)
    except Stopped:
        _give_back_count(plan_snapshot, admitted)
        raise


def _give_back_count(plan: PlanSnapshot, admitted: _AdmittedCall) -> None:
    if admitted.counted_at is not None:
        limits.give_back_count(admitted.prepared, plan, admitted.counted_at)


def _admit(plan: PlanSnapshot, prepared: PreparedCall) -> _AdmittedCall:
    history = calls.history_of(prepared, plan)
    verdict = admission.ask_gate(plan, prepared, history)
    admitted = _AdmittedCall(prepared, None, None, history=history if history.was_asked else None)
    return _as_judged(plan, admitted, verdict, counts=True)


def _as_judged(
    plan: PlanSnapshot, admitted: _AdmittedCall, verdict: GateDecision, *, counts: bool = False
) -> _AdmittedCall:
    """Return the call as the gate has judged it, with its preview if it is held; if it `counts`, by its rate limit."""
    prepared = admitted.prepared
    if isinstance(verdict, pipeline.Deny):
        raise record_denial(verdict, plan, prepared)
    if isinstance(verdict, pipeline.Hold):
        first = admission.rejected_request(plan.ref, prepared) if plan.pk else None
        if first is not None:
            return replace(admitted, rule=verdict.terms, first=first, is_previewed=True)
        if not grants.may_be_covered(plan, prepared):
            check_pending_limit(request_owner(plan, prepared))
    if counts and limits.is_rate_limited(prepared):
        admitted = replace(admitted, counted_at=limits.count_call(prepared, plan))
    if not isinstance(verdict, pipeline.Hold):
        return admitted
    try:
        stops.require_not_stopped_now(plan, 1, prepared)
    except Stopped:
        _give_back_count(plan, admitted)
        raise
    # Reviewers see the preview computed by the catalog's code: a process that has that code computes it and asks them.
    preview = None if prepared.target.drifted else preview_in_share(plan, 1, prepared)
    return replace(admitted, rule=verdict.terms, preview=preview, is_previewed=True)


def _judge_exactly(tx: PlanTransaction, plan: PlanSnapshot, admitted: _AdmittedCall) -> _AdmittedCall:
    """Judge a call in the transaction that stores it, if a rule that looks back could match it.

    Raises _JudgedOtherwise if the call is denied, or held and has no preview yet: then nothing is stored.
    """
    if admitted.history is None:
        return admitted
    history = calls.history_of(admitted.prepared, plan, tx=tx)
    verdict = admission.ask_gate(plan, admitted.prepared, history)
    if isinstance(verdict, pipeline.Deny) or (isinstance(verdict, pipeline.Hold) and not admitted.is_previewed):
        raise _JudgedOtherwise(verdict)
    rule = verdict.terms if isinstance(verdict, pipeline.Hold) else None
    return replace(admitted, rule=rule, first=admitted.first if rule else None, history=history)


def _run_first(plan: Plan, snapshot: PlanSnapshot, prepared: PreparedCall, executor: LocalExecutor) -> Call | None:
    """Run an allowed call and store it when it has ended; after 50 ms, it is stored as running.

    None if no thread is idle to run it. Raises Stopped.
    """
    prepared = replace(prepared, call_id=new_call_id())
    call = new_call(snapshot, 1, prepared, status=CallStatus.RUNNING)
    call.created_at = call.started_at = plan.created_at
    call.attempt = call.fence = 1
    step = Step(step_id=1, description=f"Call {call.tool_name}", tool=call.tool_name, parameters=prepared.given_text)
    step.attempt, step.claimed_by, step.waiting_since = 1, executor.owner, plan.created_at
    running_call = RunningCall(ClaimedStep.from_row(step), snapshot, call, prepared)
    unstored_call, store = UnstoredCall(running_call), partial(_store_running, plan, snapshot, prepared, executor)
    if not executor.run_first(unstored_call):
        return None
    outcome = unstored_call.wait(store)
    if unstored_call.stopped is not None:
        raise unstored_call.stopped
    if outcome is None:
        return unstored_call.stored.call if unstored_call.stored is not None else None
    ended = finishing.store_ended(plan, running_call, outcome)
    if ended is not None:
        return ended
    stored = replace(store(), sent=running_call.sent, began=running_call.began)
    time_slice = loop.TimeSlice(executor.owner, steps_left=0)
    retry_while_database_is_away(partial(loop.finish_and_claim_next, stored, outcome, time_slice))
    return stored.call


@recover_lost_commit
@retry_on_deadlock
def _store_running(plan: Plan, snapshot: PlanSnapshot, prepared: PreparedCall, executor: LocalExecutor) -> RunningCall:
    """Store a call that already runs, with its plan and its step, as begun when the plan was made."""
    with new_plan_transaction(plan, now=plan.created_at) as tx:
        tx.record("plan.created")
        tx.record("plan.started")
        name = prepared.target.tool.name
        step = Step(plan=plan, step_id=1, description=f"Call {name}", tool=name, parameters=prepared.given_text)
        claimed = statements.insert_claimed_step(tx.cursor, step, calls.new_lease(executor.owner, tx))
        tx.record("step.started", 1, attempt=claimed.attempt)
        context = StartContext(tx, replace(snapshot, pk=plan.pk), claimed, just_claimed=True)
        tx.result = running_call = start.begin(context, prepared, runs_already=True)
    return running_call


@recover_lost_commit
@retry_on_deadlock
def _store(
    plan: Plan, plan_snapshot: PlanSnapshot, admitted: _AdmittedCall, run: ClientRun | None, *, joins: bool
) -> Call:
    with plan_transaction(plan.pk, plan.public_id) if joins else new_plan_transaction(plan) as tx:
        step_id = 1
        if joins:
            _check_open(plan)
            last: int = plan.steps.aggregate(last=Max("step_id", default=0))["last"]
            step_id = max({last} | removed_step_numbers(plan)) + 1
        else:
            tx.record("plan.created")
            tx.record("plan.started")
        name, parameters = admitted.prepared.target.tool.name, admitted.prepared.given_text
        # Arguments of a call are literal, those of a plan's step may have references.
        if plan.kind != Plan.Kind.CALL and "${" in parameters:
            parameters = canonical_text(escape_references(json.loads(parameters)))
        step = Step(plan=plan, step_id=step_id, description=f"Call {name}", tool=name, parameters=parameters)
        now_stored = replace(plan_snapshot, pk=plan.pk)
        admitted = _judge_exactly(tx, now_stored, admitted)
        if run is not None:
            tx.result = call = _add_client_call(tx, now_stored, step, admitted, run)
        else:
            step.ready_at = tx.now
            tx.result = call = _add_call(tx, now_stored, step, admitted)
    return call


def _add_client_call(
    tx: PlanTransaction, plan: PlanSnapshot, step: Step, admitted: _AdmittedCall, run: ClientRun
) -> Call:
    """Store a call that its client runs: handed out if it is allowed or a grant or an envelope covers it, else held.

    Its row replaces that of the call which it replaces. Raises AuditUnavailable if the start of a dangerous call could
    not be witnessed, and IntegrityError if the client's call is stored already.
    """
    prepared, rule = admitted.prepared, admitted.rule
    claimed = statements.insert_claimed_step(tx.cursor, step, calls.new_lease(client_runs.OWNER, tx))
    if prepared.replaces is not None:
        ClientRun.objects.filter(call=prepared.replaces).update(is_current=False)
    if rule is None or grants.coverage_of(plan, prepared, rule) is not None:
        fault = checkpoint_write_fault() if prepared.level == SafetyLevel.DANGEROUS else ""
        if fault:
            raise AuditUnavailable(fault)
        running_call = _begin(tx, plan, claimed, admitted)
        if running_call is not None:
            client_runs.hand_over(tx, running_call, run)
            return running_call.call
    run.call = _request_approval(tx, plan, claimed, admitted)
    run.save(force_insert=True)
    return run.call


def _add_call(tx: PlanTransaction, plan: PlanSnapshot, step: Step, admitted: _AdmittedCall) -> Call:
    prepared, rule, is_drifted = admitted.prepared, admitted.rule, admitted.prepared.target.drifted
    is_held = rule is not None and admitted.first is None
    is_covered = is_held and rule is not None and grants.coverage_of(plan, prepared, rule) is not None
    # If the tool's code differs in this process, a process with the right code holds or starts the call.
    if admitted.first is not None or (rule is not None and not is_covered and not is_drifted):
        claimed = statements.insert_claimed_step(tx.cursor, step, calls.new_lease("api", tx))
        if admitted.first is not None:
            return admission.refuse_as_before(StartContext(tx, plan, claimed), prepared, admitted.first)
        return _request_approval(tx, plan, claimed, admitted)
    may_start = not is_drifted and not (is_covered and checkpoint_write_fault())
    if may_start and limits.can_start_now(tx.cursor, step.tool, plan.pk, joins=step.step_id > 1):
        executor = hints.local_executor()
        if executor is not None:
            return _start(tx, plan, step, admitted, executor)
    call = new_call(plan, step.step_id, prepared, status=CallStatus.CREATED)
    call.created_at = tx.now
    statements.insert_call(tx.cursor, call)
    calls.store_call_secrets(prepared, plan.ref, step.step_id)
    calls.record_trials(call, prepared, plan, history=admitted.history)
    if admitted.history is not None:
        admitted.history.keep(call, is_started=False)
    step.call = call
    insert_row(tx.cursor, step)
    hints.hint(plan.pk)
    return call


def _start(
    tx: PlanTransaction, plan: PlanSnapshot, step: Step, admitted: _AdmittedCall, executor: LocalExecutor
) -> Call:
    """Start the call in this transaction. The executor of this process holds the lease and runs the call after commit.

    If the call's grant or envelope was used up in the meantime, request approval instead. Raises Conflict if a policy
    changed.
    """
    claimed = statements.insert_claimed_step(tx.cursor, step, calls.new_lease(executor.owner, tx))
    running_call = _begin(tx, plan, claimed, admitted)
    if running_call is None:
        return _request_approval(tx, plan, claimed, admitted)
    tx.on_commit(lambda: executor.run_call(running_call))
    return running_call.call


def _begin(
    tx: PlanTransaction, plan: PlanSnapshot, claimed: ClaimedStep, admitted: _AdmittedCall
) -> RunningCall | None:
    """Start an allowed call in this transaction; None if its grant or envelope was used up in the meantime.

    Raises Conflict if a policy changed.
    """
    tx.record("step.started", claimed.step_id, attempt=claimed.attempt)
    if admitted.rule is not None:
        held_call = HeldCall(claimed, plan, admitted.prepared, admitted.rule, history=admitted.history)
        return holding.start_covered(tx, held_call, admitted.preview)
    context = StartContext(tx, plan, claimed, just_claimed=True)
    work = admission.admit(context, admitted.prepared, counted=True, history=admitted.history)
    if not isinstance(work, RunningCall):
        raise Conflict("A policy changed while this call was being stored. Call again.")
    return work


def _request_approval(tx: PlanTransaction, plan: PlanSnapshot, claimed: ClaimedStep, admitted: _AdmittedCall) -> Call:
    assert admitted.rule is not None  # noqa: S101 (every held call has a rule)
    reserve_slot(request_owner(plan, admitted.prepared))
    held_call = HeldCall(claimed, plan, admitted.prepared, admitted.rule, history=admitted.history)
    return holding.store_held(tx, held_call, admitted.preview)
