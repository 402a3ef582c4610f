"""Direct calls: a tool called over REST or from its page becomes a plan of one step, or one more step of a plan.

A rehearsal checks a call, asks the gate and computes the preview, but stores and counts nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import IntegrityError
from django.db.models import Max, Q

from approvals.audit.restore_guard import checkpoint_write_fault, ensure_not_restored
from approvals.models import ApprovalRequest
from approvals.policies.gate import gate
from approvals.policies.rulebook import Rule
from approvals.requests.limits import check_pending_limit, reserve_slot
from catalog.access.roles import NotAllowed
from catalog.core.canonical_json import canonical_text
from catalog.core.database import insert_row
from catalog.core.transactions import retry_on_deadlock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch import pipeline
from catalog.dispatch.pipeline import GateDecision
from catalog.errors import Conflict, field_error
from catalog.models import ApiToken, Call
from catalog.results import Preview
from catalog.secrets.placeholders import redact_text
from catalog.states import CallStatus
from plans import spec
from plans.actions.create import new_plan
from plans.documents.references import escape_references
from plans.engine import admission, calls, grants, hints, holding, limits
from plans.engine.admission import record_denial
from plans.engine.calls import new_call
from plans.engine.hints import LocalExecutor
from plans.engine.holding import preview_in_share
from plans.engine.limits import request_owner
from plans.engine.start import StartContext
from plans.engine.work import HeldCall, PlanSnapshot, PreparedCall, RunningCall, snapshot_of
from plans.models import Plan, Step
from plans.sessions.lists import require_no_session_list
from plans.states import PlanStatus
from plans.store import statements
from plans.store.plan_documents import removed_step_numbers
from plans.store.requesters import Requester, RequesterIds
from plans.store.selectors import may_control, plan_for
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction, new_plan_transaction, plan_transaction, recover_lost_commit


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Decision of the gate about a call, and the tool's preview of it (None if the tool has none)."""

    level: SafetyLevel
    verdict: GateDecision
    preview: Preview | None


def rehearse(tool: str, arguments: Mapping[str, Any], *, by: Requester) -> Rehearsal:
    """Return what would happen to a call. Raises ToolError, and what `create_call` raises before it stores anything."""
    asker = RequesterIds(by.user.pk, by.token.pk if by.token else None, by.via, by.session)
    order = replace(calls.prepare_call(tool, dict(arguments)), asker=asker)
    plan = snapshot_of(new_plan(f"Call {tool}", by, Plan.Kind.CALL))
    verdict = gate(calls.facts_for_rules(order, plan))
    return Rehearsal(order.target.tool.safety_level, verdict, preview_in_share(plan, 1, order))


_SCALARS = (str, int, float, bool, type(None))
ALREADY_REPLACED = "That call was already replaced by another one; see its replaced_by."


@dataclass(frozen=True, slots=True)
class CallOrder:
    """A requested direct call; `plan_ref` adds it to an existing plan that may be changed.

    `replaces` is the id of an ended call of the same tool and requester that this call replaces. `caller_ids` are
    passed unchanged to the tool in its context, values other than JSON scalars as text. They are stored with a plan of
    one step, and ignored with a `plan_ref`.
    """

    tool: str
    arguments: Mapping[str, Any]
    query_type: str | None = None
    reason: str = ""
    plan_ref: str | None = None
    replaces: str | None = None
    caller_ids: Mapping[str, Any] = field(default_factory=dict)


def create_call(order: CallOrder, *, by: Requester) -> Call:
    """Store a direct call as a plan of one step, or as one more step of a plan, and start it or let it wait.

    Raises RestoredDatabase first, because calls also arrive by MCP. Raises UnknownTool, ToolDisabled,
    ParameterError, QueryTypeUnsupported, PolicyRefusal and RateLimited before anything is stored; Conflict if the plan
    accepts no more steps; Plan.DoesNotExist if the requester may not see it; NotAllowed if they may not control it.
    """
    ensure_not_restored()
    asker = RequesterIds(by.user.pk, by.token.pk if by.token else None, by.via, by.session)
    plan = _plan_of_one(order, by) if order.plan_ref is None else _plan_to_join(order.plan_ref, by)
    prepared = calls.prepare_call(order.tool, _arguments_of(order), plan_ref=plan.public_id, to_leave=True)
    old = replaced_call(order.replaces, order.tool, by) if order.replaces else None
    admission = _admit(plan, replace(prepared, reason=redact_text(order.reason), asker=asker, replaces=old))
    try:
        return _store_alone(plan, admission) if order.plan_ref is None else _add_to_plan(plan, admission)
    except IntegrityError:
        if old is None or not Call.objects.filter(replaces=old).exists():
            raise
        raise Conflict(ALREADY_REPLACED) from None


def replaced_call(public_id: str, tool: str, by: Requester) -> Call:
    """Return the ended call that another call replaces.

    Raises ParameterError if it is not the requester's own or is of another tool, and Conflict if it has not ended,
    succeeded, or was already replaced.
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


@recover_lost_commit
@retry_on_deadlock
def _store_alone(plan: Plan, admission: "_Admission") -> Call:
    with new_plan_transaction(plan) as tx:
        tx.record("plan.created")
        tx.record("plan.started")
        tx.result = call = _add_call(plan, tx, admission, step_id=1)
    return call


@recover_lost_commit
@retry_on_deadlock
def _add_to_plan(plan: Plan, admission: "_Admission") -> Call:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        _check_open(plan)
        tx.result = call = _add_call(plan, tx, admission, step_id=_next_step_id(plan))
    return call


def _plan_to_join(plan_ref: str, by: Requester) -> Plan:
    plan = plan_for(by.user, by.token, plan_ref)
    if not may_control(by.user, by.token, plan):
        raise NotAllowed("Only the plan's owner or an administrator may add calls to it.")
    # Checked again when the step is stored; checking here keeps a call that must fail from counting against a limit.
    _check_open(plan)
    return plan


def _plan_of_one(order: CallOrder, by: Requester) -> Plan:
    """Return the plan behind a direct call; it is in progress as soon as it is stored."""
    plan = new_plan(f"Call {order.tool}", by, Plan.Kind.CALL, status=PlanStatus.IN_PROGRESS)
    plan.started_at = plan.created_at
    if order.caller_ids:
        ids = {name: each if isinstance(each, _SCALARS) else str(each) for name, each in order.caller_ids.items()}
        plan.caller_ids = json.dumps(ids)
    return plan


def _next_step_id(plan: Plan) -> int:
    last: int = plan.steps.aggregate(last=Max("step_id", default=0))["last"]
    return max({last} | removed_step_numbers(plan)) + 1


def _arguments_of(order: CallOrder) -> dict[str, Any]:
    if order.query_type is None:
        return dict(order.arguments)
    return {"query_type": order.query_type, "parameters": dict(order.arguments)}


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
class _Admission:
    """Decision of the gate about a direct call, and the preview of a held one; computed outside the transaction."""

    order: PreparedCall
    rule: Rule | None
    preview: Preview | None
    first: ApprovalRequest | None = None
    """The request for the same tool and arguments that people rejected earlier in this plan."""


def _admit(plan: Plan, order: PreparedCall) -> _Admission:
    verdict = gate(calls.facts_for_rules(order, snapshot_of(plan)))
    if isinstance(verdict, pipeline.Deny):
        raise record_denial(verdict, snapshot_of(plan), order)
    if isinstance(verdict, pipeline.Hold):
        first = admission.rejected_request(plan.public_id, order) if plan.pk else None
        if first is not None:
            return _Admission(order, verdict.terms, None, first)
        if order.target.grant_limits is None:
            check_pending_limit(request_owner(snapshot_of(plan), order))
    if limits.is_rate_limited(order):
        limits.count_call(order, snapshot_of(plan))
    if not isinstance(verdict, pipeline.Hold):
        return _Admission(order, None, None)
    # Reviewers see the preview computed by the catalog's code: a process that has that code computes it and asks them.
    preview = None if order.target.drifted else preview_in_share(snapshot_of(plan), 1, order)
    return _Admission(order, verdict.terms, preview)


@dataclass(frozen=True, slots=True)
class _DirectCall:
    """An admitted call, its step and the transaction that stores both; `is_granted`: held, but covered by a grant."""

    tx: PlanTransaction
    plan: PlanSnapshot
    admission: _Admission
    step: Step
    is_granted: bool

    @property
    def order(self) -> PreparedCall:
        """The call to store."""
        return self.admission.order


def _add_call(plan: Plan, tx: PlanTransaction, admission: _Admission, *, step_id: int) -> Call:
    """Add the step of a direct call: hold it, start it in this transaction, or leave it to an executor."""
    order, facts = admission.order, snapshot_of(plan)
    name, is_drifted, is_rejected = order.target.tool.name, order.target.drifted, admission.first is not None
    parameters = order.given_text
    if plan.kind != Plan.Kind.CALL and "${" in parameters:  # arguments of a call are literal, parameters of a step not
        parameters = canonical_text(escape_references(json.loads(parameters)))
    step = Step(plan=plan, step_id=step_id, description=f"Call {name}", tool=name, parameters=parameters)
    step.ready_at = tx.now
    is_held = admission.rule is not None
    is_granted = (
        admission.rule is not None and not is_rejected and grants.is_covered_by_grant(facts, order, admission.rule)
    )
    direct = _DirectCall(tx, facts, admission, step, is_granted)
    # If the tool's code differs in this process, a process with the right code holds or starts the call.
    if is_rejected or (is_held and not is_granted and not is_drifted):
        return hold_direct_call(direct)
    executor = None
    may_start = not is_drifted and not (is_granted and checkpoint_write_fault())
    if may_start and limits.can_start_now(tx.cursor, name, plan.pk, joins=step_id > 1):
        executor = hints.local_executor()
    return enqueue_direct_call(direct) if executor is None else start_direct_call(direct, executor)


def hold_direct_call(direct: _DirectCall) -> Call:
    """Store the call as held, with its approval request; reject it if people rejected the same call in its plan before.

    Raises TooManyWaiting if no more requests may be pending.
    """
    claimed = _claim_new_step(direct, "api")
    if direct.admission.first is not None:
        start = StartContext(direct.tx, direct.plan, claimed)
        return admission.refuse_as_before(start, direct.order, direct.admission.first)
    return _request_approval(direct, claimed)


def start_direct_call(direct: _DirectCall, executor: LocalExecutor) -> Call:
    """Start the call in this transaction; the executor of this process, which holds its lease, runs it after commit.

    Holds the call if its grant was used up in the meantime. Raises Conflict if a policy changed in the meantime.
    """
    tx, claimed = direct.tx, _claim_new_step(direct, executor.owner)
    tx.record("step.started", claimed.step_id, attempt=claimed.attempt)
    if direct.is_granted:
        run = holding.start_granted(tx, _store_held_step(direct, claimed), direct.admission.preview)
        if run is None:
            return _request_approval(direct, claimed)
    else:
        work = admission.admit(StartContext(tx, direct.plan, claimed), direct.order, counted=True)
        if not isinstance(work, RunningCall):
            raise Conflict("A policy changed while this call was being stored. Call again.")
        run = work
    tx.on_commit(lambda: executor.take(run))
    return run.call


def enqueue_direct_call(direct: _DirectCall) -> Call:
    """Store the call with its ready step, for an executor to claim."""
    tx, order, step = direct.tx, direct.order, direct.step
    call = new_call(direct.plan, step.step_id, order, status=CallStatus.CREATED)
    call.created_at = tx.now
    statements.insert_call(tx.cursor, call)
    calls.store_call_secrets(order, direct.plan.ref, step.step_id)
    step.call = call
    insert_row(tx.cursor, step)
    hints.hint(direct.plan.pk)
    return call


def _claim_new_step(direct: _DirectCall, owner: str) -> ClaimedStep:
    """Store the step and claim it for `owner`."""
    return statements.insert_claimed_step(direct.tx.cursor, direct.step, calls.new_lease(owner, direct.tx))


def _store_held_step(direct: _DirectCall, claimed: ClaimedStep) -> HeldCall:
    assert direct.admission.rule is not None  # noqa: S101 (every held call has a rule)
    return HeldCall(claimed, direct.plan, direct.order, direct.admission.rule)


def _request_approval(direct: _DirectCall, claimed: ClaimedStep) -> Call:
    reserve_slot(request_owner(direct.plan, direct.order))
    return holding.store_held(direct.tx, _store_held_step(direct, claimed), direct.admission.preview)
