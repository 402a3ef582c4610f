"""Direct calls: a tool called over REST is a plan of one step, or one more step of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Max

from approvals.gate import gate
from approvals.policy import Rule
from catalog import dispatch
from catalog.access import NotAllowed
from catalog.errors import Conflict, ToolError
from catalog.models import Call
from catalog.results import Preview
from catalog.retries import retried
from catalog.states import CallStatus
from plans import budgets, caps, carriers, claims, engine, limits, starting
from plans.answers import found_again
from plans.carriers import Desk
from plans.documents import removed_from
from plans.events import Recording, recording, recording_new
from plans.models import Plan, Step
from plans.previews import preview_in_time
from plans.selectors import may_control, plan_for
from plans.services import Requester, new_plan
from plans.spec import MAX_STEPS
from plans.starting import Start
from plans.states import PlanStatus
from plans.work import Asker, Hold, Order, PlanFacts, Run, facts_of


@dataclass(frozen=True, slots=True)
class CallOrder:
    """A direct call as asked for; `plan_ref` adds it to a plan that exists and may be changed."""

    tool: str
    arguments: Mapping[str, Any]
    query_type: str | None = None
    reason: str = ""
    plan_ref: str | None = None


def create_call(order: CallOrder, *, by: Requester) -> Call:
    """Store a direct call as a plan of one step, or as one more step of a plan, and let it start or wait.

    Raises UnknownTool, ToolDisabled, ParameterError, QueryTypeUnsupported and RateLimited before anything is stored,
    Conflict when the plan takes no more steps, Plan.DoesNotExist when the requester may not see it, and NotAllowed
    when it is not theirs to control.
    """
    asker = Asker(by.user.pk, by.token.pk if by.token else None, by.via, by.session)
    plan = _plan_of_one(order.tool, by) if order.plan_ref is None else _plan_to_join(order.plan_ref, by)
    wanted = starting.order_for(order.tool, _arguments_of(order), plan_ref=plan.public_id)
    admission = _admit(plan, replace(wanted, reason=order.reason, asker=asker))
    return _store_alone(plan, admission) if order.plan_ref is None else _join(plan, admission)


@found_again
@retried
def _store_alone(plan: Plan, admission: "_Admission") -> Call:
    with recording_new(plan) as batch:
        batch.add("plan.created")
        batch.add("plan.started")
        batch.leads_to = call = _add_call(plan, batch, admission, step_id=1)
    return call


@found_again
@retried
def _join(plan: Plan, admission: "_Admission") -> Call:
    with recording(plan.pk, plan.public_id) as batch:
        _check_open(plan)
        batch.leads_to = call = _add_call(plan, batch, admission, step_id=_next_step_id(plan))
    return call


def _plan_to_join(plan_ref: str, by: Requester) -> Plan:
    plan = plan_for(by.user, by.token, plan_ref)
    if not may_control(by.user, by.token, plan):
        raise NotAllowed("Only the plan's owner or an administrator may add calls to it.")
    # Looked at again when the step is stored: this look keeps a call that cannot be from counting against a limit.
    _check_open(plan)
    return plan


def _plan_of_one(tool: str, by: Requester) -> Plan:
    """Return the plan behind a direct call, under way from the moment it is stored."""
    plan = new_plan(f"Call {tool}", by, Plan.Kind.CALL, status=PlanStatus.IN_PROGRESS)
    plan.started_at = plan.created_at
    return plan


def _next_step_id(plan: Plan) -> int:
    last: int = plan.steps.aggregate(last=Max("step_id", default=0))["last"]
    return max({last} | removed_from(plan)) + 1


def _arguments_of(order: CallOrder) -> dict[str, Any]:
    if order.query_type is None:
        return dict(order.arguments)
    return {"query_type": order.query_type, "parameters": dict(order.arguments)}


def _check_open(plan: Plan) -> None:
    plan.refresh_from_db(fields=["status", "can_modify", "paused_at", "calls_used", "seconds_used"])
    if plan.paused_at is not None:
        raise Conflict("This plan is paused: resume it before you add calls to it.")
    if not plan.can_modify or plan.status != PlanStatus.IN_PROGRESS:
        raise Conflict("This plan takes no more steps: it may not be changed, has not started, or has ended.")
    if budgets.is_used_up(plan):
        raise Conflict("This plan takes no more calls: its budget is used up.")
    if plan.steps.count() >= MAX_STEPS:
        raise Conflict(f"This plan has {MAX_STEPS} steps, and takes no more.")


@dataclass(frozen=True, slots=True)
class _Admission:
    """What the gate said to a direct call, and what a held one would do; both found outside the transaction."""

    order: Order
    rule: Rule | None
    shown: Preview | None


def _admit(plan: Plan, order: Order) -> _Admission:
    verdict = gate(starting.facts_for(order, facts_of(plan)))
    if isinstance(verdict, dispatch.Deny):
        raise ToolError(verdict.message)
    if limits.is_limited(order):
        limits.count(order, facts_of(plan))
    if isinstance(verdict, dispatch.Hold):
        return _Admission(order, verdict.terms, preview_in_time(facts_of(plan), 1, order))
    return _Admission(order, None, None)


def _add_call(plan: Plan, batch: Recording, admission: _Admission, *, step_id: int) -> Call:
    """Add the step of a direct call: a held one waits for people at once, any other is left to the executor."""
    order, facts = admission.order, facts_of(plan)
    name = order.target.tool.name
    step = Step(plan=plan, step_id=step_id, description=f"Call {name}", tool=name, parameters=order.text)
    step.ready_at = batch.now
    if admission.rule is not None:
        step.save(force_insert=True)
        claimed = claims.claim_step(batch.cursor, step.pk, starting.lease("door", batch))
        if claimed is None:
            raise Conflict("The step was taken before its call could be held.")
        return engine.store_held(batch, Hold(claimed, facts, order, admission.rule), admission.shown)
    desk = carriers.desk() if caps.starts_at_once(batch.cursor, name, plan.pk, joins=step_id > 1) else None
    if desk is not None:
        return _start_here(batch, facts, order, step, desk)
    call = starting.new_call(facts, step_id, order, status=CallStatus.CREATED)
    call.created_at = batch.now
    claims.insert_call(batch.cursor, call)
    step.call = call
    step.save(force_insert=True)
    carriers.hint(plan.pk)
    return call


def _start_here(batch: Recording, plan: PlanFacts, order: Order, step: Step, desk: Desk) -> Call:
    """Start the call in this very transaction, in the name of this process's executor, which runs it after commit."""
    step.save(force_insert=True)
    claimed = claims.claim_step(batch.cursor, step.pk, starting.lease(desk.owner, batch))
    if claimed is None:
        raise Conflict("The step was taken before its call could start.")
    batch.add("step.started", claimed.step_id, attempt=claimed.attempt)
    run = starting.admit(Start(batch, plan, claimed), order, counted=True)
    if not isinstance(run, Run):
        raise Conflict("A policy changed while this call was on its way; call again.")
    batch.once_committed(lambda: desk.take(run))
    return run.call
