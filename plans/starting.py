"""From a ready step to work: claim it, check whether it is done, resolve, validate, gate, start.

Everything here happens inside one open recording of the plan, normally the transaction in which the step before it
was finished. What needs the outside (a preview, a handler) is returned as work, to be done after commit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.db.models.base import ModelState

from approvals.gate import gate
from catalog import dispatch, snapshot
from catalog.canonical import canonical_text
from catalog.errors import Conflict, ToolDisabled, ToolDrifted, ToolError
from catalog.models import Call, new_call_id
from catalog.problems import log_unexpected
from catalog.registry import unknown_tool
from catalog.states import TERMINAL, CallStatus
from plans import budgets, caps, carriers, claims, conditions, drift, finishing, limits, references
from plans.budgets import BudgetExceeded
from plans.claims import Claimed, Lease
from plans.events import Recording, tell
from plans.models import Step
from plans.work import Asker, Hold, Limited, Memory, Order, PlanFacts, Resume, Run, Work

_BLANK_CALL = {field.attname: field.get_default() for field in Call._meta.concrete_fields}
SETTLED_AT_ONCE = 50
"""Steps that may be skipped or failed in one transaction before others get their turn."""


@dataclass(frozen=True, slots=True)
class Start:
    """One attempt to begin a claimed step inside an open recording."""

    batch: Recording
    plan: PlanFacts
    step: Claimed


def next_work(batch: Recording, plan: PlanFacts, *, owner: str) -> Work | None:
    """Claim the plan's ready steps until one is work; None when none is ready (any more)."""
    for _ in range(SETTLED_AT_ONCE):
        step = caps.claim_next(batch.cursor, plan.pk, lease(owner, batch))
        if step is None:
            return None
        work = _begin(Start(batch, plan.as_of(step), step))
        if work is not None:
            return work
    carriers.hint(plan.pk, Step.objects.filter(plan=plan.pk, ready_at__lte=batch.now).count())
    return None


def lease(owner: str, batch: Recording) -> Lease:
    """Return a lease of the usual length from the recording's moment on."""
    return Lease(owner, batch.now, batch.now + timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS))


def _begin(start: Start) -> Work | None:
    """Take one claimed step as far as it goes without leaving the transaction."""
    step = start.step
    try:
        if step.call_pk is not None:
            return _continue(start)
        note = _skip_reason(start)
        start.batch.add("step.started", step.step_id, attempt=step.attempt, **note.event)
        if note.done:
            finishing.skip(start.batch, step)
            return None
        if not step.tool:
            finishing.complete_note(start.batch, step)
            return None
        return admit(start, _order(start))
    except ToolError as error:
        if not (isinstance(error, ToolDrifted) and drift.leave(start.batch, step)):
            finishing.refuse(start.batch, step, error)
    except (Conflict, DatabaseError):
        raise
    except Exception as error:  # noqa: BLE001 - raised again it would undo the claim, to be tried for ever
        log_unexpected(error)
        finishing.refuse(start.batch, step, ToolError(f"The step could not begin: {type(error).__name__}."))
    return None


@dataclass(frozen=True, slots=True)
class _Check:
    done: bool
    event: dict[str, str]


def _skip_reason(start: Start) -> _Check:
    step = start.step
    if not step.done_check:
        return _Check(done=False, event={})
    memory = dict(Memory(step.plan_pk))
    verdict = conditions.evaluate(step.done_check, memory, expected_key=step.expected_key or None)
    return _Check(done=verdict.done, event={} if verdict.done else {"check": verdict.reason})


def _order(start: Start) -> Order:
    """Resolve references and validate the arguments against the tool as it is now."""
    text, old = start.step.parameters, _call_before(start.step)
    parameters = json.loads(text)
    is_literal = start.plan.is_call or (old is not None and old.arguments == text)
    if not is_literal and "${" in text:
        parameters = references.resolve(parameters, Memory(start.step.plan_pk))
    order = order_for(start.step.tool, parameters, plan_ref=start.plan.ref)
    return order if old is None else replace(order, replaces=old, asker=asker_of(old))


def _call_before(step: Claimed) -> Call | None:
    """Return the call that a retried step had before, and that its next call is to replace."""
    if step.attempt == 1:
        return None
    return Call.objects.filter(pk__in=Step.objects.filter(pk=step.pk).values("retry_of"), replaced_by=None).first()


def order_for(tool_name: str, arguments: Mapping[str, Any], *, plan_ref: str = "", kept: int | None = None) -> Order:
    """Look the tool up, choose what serves it and check the arguments; `kept` is the implementation of a stored call.

    Raises UnknownTool, ToolDisabled, NoImplementation, ToolDrifted, ParameterError and the like.
    """
    target = snapshot.current(tool_name)
    if target is None:
        raise unknown_tool(tool_name)
    if not target.enabled:
        raise ToolDisabled(f"The tool {tool_name} is disabled. An administrator can enable it.")
    target = target.chosen_for(plan_ref, kept)
    if target.drifted:
        raise ToolDrifted(
            f"The code of {tool_name} that is loaded here is not what the catalog has: restart this server, or run "
            "sync_tools if its code is the newer one; then try again."
        )
    checked = dispatch.check(target.tool, arguments)
    return Order(target=target, arguments=checked, text=canonical_text(checked))


def renewal_of(call: Call) -> Order:
    """Return the order for a call that is to take the place of `call`; raise what `order_for` raises."""
    order = order_for(call.tool_name, call.arguments_json, plan_ref=call.plan_ref)
    return replace(order, replaces=call, asker=asker_of(call))


def order_of(call: Call) -> Order:
    """Return the order for a stored call, by the implementation it was stored with; raise what `order_for` raises."""
    return order_for(call.tool_name, call.arguments_json, plan_ref=call.plan_ref, kept=call.implementation_id)


def asker_of(call: Call) -> Asker | None:
    """Return who asked for a call: whoever replaces it asks for the same person."""
    user_id = call.requested_by_id
    return Asker(user_id, call.token_id, call.via, call.session) if user_id else None


def facts_for(order: Order, plan: PlanFacts) -> dispatch.CallFacts:
    """Return what the gate judges."""
    target = order.target
    return dispatch.CallFacts(
        tool_name=target.tool.name,
        safety_level=target.tool.safety_level,
        categories=target.tool.categories,
        arguments=order.arguments,
        requested_by=(order.asker or plan.asker).user_id,
        plan_ref=plan.ref,
        source="",
    )


def admit(start: Start, order: Order, *, counted: bool = False) -> Run | Limited | Hold | None:
    """Ask the gate: start the call, hand it to people, or refuse it with its step; one not `counted` yet comes back."""
    verdict = gate(facts_for(order, start.plan))
    if isinstance(verdict, dispatch.Deny):
        finishing.refuse(start.batch, start.step, ToolError(verdict.message))
        return None
    try:
        budgets.check(start.batch.cursor, start.plan)
    except BudgetExceeded as refusal:
        finishing.refuse(start.batch, start.step, refusal)
        return None
    if not counted and limits.is_limited(order):
        return Limited(start.step, start.plan, order)
    if isinstance(verdict, dispatch.Hold):
        return Hold(start.step, start.plan, order, verdict.terms)
    call = new_call(start.plan, start.step.step_id, order, status=CallStatus.RUNNING)
    call.fence, call.attempt = start.step.attempt, 1
    call.created_at = call.started_at = start.batch.now
    if not claims.give_new_call(start.batch.cursor, start.step, call):
        raise Conflict("The step was taken over before its call could start.")
    return _started(start, call, order)


def _started(start: Start, call: Call, order: Order) -> Run:
    tell(start.batch, "call.started", call, level=order.level, attempt=call.attempt)
    return Run(start.step, start.plan, call, order, budget=budgets.spend_call(start.batch.cursor, start.plan))


def new_call(plan: PlanFacts, step_id: int, order: Order, *, status: CallStatus) -> Call:
    """Return a call of the plan's step, neither stored nor started."""
    target, asker = order.target, order.asker or plan.asker
    values = _BLANK_CALL | {
        "public_id": new_call_id(),
        "tool_name": target.tool.name,
        "version_id": target.version_pk,
        "implementation_id": target.implementation_pk,
        "query_type": str(order.arguments.get("query_type", "")) if target.tool.query_types else "",
        "arguments": order.text,
        "status": status,
        "requested_by_id": asker.user_id,
        "token_id": asker.token_id,
        "via": asker.via,
        "session": asker.session,
        "reason": order.replaces.reason if order.replaces else order.reason,
        "plan_ref": plan.ref,
        "step_ref": str(step_id),
    }
    # A model's constructor looks every field up and sets one by one: several times the cost, in every step.
    call = Call.__new__(Call)
    call.__dict__.update(values, _state=ModelState())
    if order.replaces:
        call.replaces = order.replaces
    return call


def _continue(start: Start) -> Work | None:
    """Go on with a step that already has a call: start it, ask about it again, or compare it with its approval."""
    call = Call.objects.select_related("approval").get(pk=start.step.call_pk or 0)
    start.batch.add("step.started", start.step.step_id, attempt=start.step.attempt)
    if call.status in TERMINAL:
        return admit(start, renewal_of(call))
    if hasattr(call, "approval") and call.approval.consumed_at is None:
        return Resume(start.step, start.plan, call)
    return _start_stored(start, call, order_of(call))


def _start_stored(start: Start, call: Call, order: Order) -> Work | None:
    """Start a stored call that needs nobody: a direct call, one whose worker was lost, or one that is tried again."""
    if order.target.version_pk != call.version_id:
        raise ToolDrifted(f"The definition of {call.tool_name} has changed since this was asked for; ask for it again.")
    if not call.attempt and not isinstance(gate(facts_for(order, start.plan)), dispatch.Allow):
        raise ToolError("The policies have changed since this was asked for; ask for it again.")
    budgets.check(start.batch.cursor, start.plan)
    if not claims.start_call(start.batch.cursor, call.pk, fence=start.step.attempt, now=start.batch.now):
        raise ToolError("The call was settled before it could start.")
    if order.target.implementation_pk != call.implementation_id:  # what it was stored with has been switched off
        Call.objects.filter(pk=call.pk).update(implementation=order.target.implementation_pk)
    call.fence, call.attempt, call.started_at = start.step.attempt, call.attempt + 1, start.batch.now
    return _started(start, call, order)
