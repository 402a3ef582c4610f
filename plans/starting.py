"""From a ready step to work: claim it, check whether it is done, resolve, validate, gate, start.

Everything here happens inside one open recording of the plan, normally the transaction in which the step before it
was finished. What needs the outside (a preview, a handler) is returned as work, to be done after commit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from approvals.errors import ApprovalExpired, AuditUnavailable, Invalidated
from approvals.models import ApprovalRequest
from approvals.policies.gate import gate
from approvals.requests import consumption, resolution
from approvals.reviews.edits import edited_by_people
from catalog.calls import vault
from catalog.calls.vault import Place
from catalog.core.transactions import log_unexpected
from catalog.dispatch import pipeline
from catalog.errors import Conflict, ToolDisabled, ToolDrifted, ToolError
from catalog.inventory import snapshot
from catalog.models import Call
from catalog.secrets.placeholders import Sealed
from catalog.states import TERMINAL, CallStatus
from catalog.tools.registry import unknown_tool
from plans import (
    agent_steps,
    budgets,
    caps,
    carriers,
    conditions,
    drift,
    early,
    finishing,
    limits,
    questions,
    unwitnessed,
)
from plans.budgets import BudgetExceeded
from plans.denials import denial
from plans.documents import references
from plans.models import Step
from plans.new_calls import new_call
from plans.room import lacks_room
from plans.store import statements
from plans.store.requesters import Asker
from plans.store.statements import Claimed, Lease
from plans.store.transactions import Recording, tell
from plans.work import Hold, Limited, Memory, Order, PlanFacts, Resume, Run, Work

SETTLED_AT_ONCE = 50
"""Steps that may be skipped or failed in one transaction before others get their turn."""


@dataclass(frozen=True, slots=True)
class Start:
    """One attempt to begin a claimed step inside an open recording."""

    batch: Recording
    plan: PlanFacts
    step: Claimed
    just_claimed: bool = False
    """The step was claimed in this very transaction."""


def next_work(batch: Recording, plan: PlanFacts, *, owner: str) -> Work | None:
    """Claim the plan's ready steps until one is work; None when none is ready (any more)."""
    for _ in range(SETTLED_AT_ONCE):
        step = caps.claim_next(batch.cursor, plan.pk, lease(owner, batch))
        if step is None:
            return None
        work = _begin(Start(batch, plan.as_of(step), step, just_claimed=True))
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
        agent_steps.see_that_it_may(step)
        if step.agent and agent_steps.go_on(start.batch, start.plan, step):
            return None
        return _begin_anew(start) if step.call_pk is None else _continue(start)
    except ToolError as error:
        if not (isinstance(error, ToolDrifted) and drift.leave(start.batch, step)):
            finishing.refuse(start.batch, step, error)
            agent_steps.give_up(start.batch, step)
    except AuditUnavailable:
        unwitnessed.put_off(start.batch, step)
    except (Conflict, DatabaseError):
        raise
    except Exception as error:  # noqa: BLE001 - raised again it would undo the claim, to be tried for ever
        log_unexpected(error)
        finishing.refuse(start.batch, step, ToolError(f"The step could not begin: {type(error).__name__}."))
        agent_steps.give_up(start.batch, step)
    return None


def _begin_anew(start: Start) -> Work | None:
    """Take a step that has no call as far as it goes: skipped, done, asked, or with its call."""
    step = start.step
    is_question = step.tool == questions.TOOL
    answered = is_question and questions.is_answered(step.pk)
    note = _NOT_DONE if answered else _skip_reason(start)
    start.batch.add("step.started", step.step_id, attempt=step.attempt, **note.event)
    if note.done:
        finishing.skip(start.batch, step)
        return None
    if step.agent:
        agent_steps.begin(start.batch, start.plan, step)
        return None
    if not step.tool:
        finishing.complete_note(start.batch, step)
        return None
    order = order_of_step(start.plan, step)
    if is_question and not answered:
        _ask(start, order)
        return None
    return admit(start, order)


@dataclass(frozen=True, slots=True)
class _Check:
    done: bool
    event: dict[str, str]


_NOT_DONE = _Check(done=False, event={})


def _ask(start: Start, order: Order) -> None:
    """Let the step wait for the answer to its question. Raises ToolError where policies do not let it be asked."""
    verdict = gate(facts_for(order, start.plan))
    if isinstance(verdict, pipeline.Deny):
        raise denial(verdict, start.plan, order, start.step.step_id)
    if isinstance(verdict, pipeline.Hold):
        raise ToolError("A rule holds questions for approval, which they do not wait for. Let it allow or deny them.")
    questions.ask(start.batch, start.step, str(order.shown["question"]))


def _skip_reason(start: Start) -> _Check:
    step = start.step
    if not step.done_check:
        return _NOT_DONE
    memory = dict(Memory(step.plan_pk))
    verdict = conditions.evaluate(step.done_check, memory, expected_key=step.expected_key or None)
    return _Check(done=verdict.done, event={} if verdict.done else {"check": verdict.reason})


def order_of_step(plan: PlanFacts, step: Claimed) -> Order:
    """Resolve references and validate the arguments against the tool as it is now."""
    text, old = step.parameters, _call_before(step)
    given = _given_to(step, plan.ref) if step.attempt > 1 else None
    parameters = vault.restored(text, plan.ref) if given is None else given
    is_literal = plan.is_call or given is not None or (old is not None and old.arguments == text)
    wanted = vault.Refilled(parameters)
    if not is_literal and ("${" in text or step.parent_pk is not None):  # also what a model wrote of secrets is escaped
        memory = Memory(step.plan_pk, stored=True)
        wanted = vault.refill_kept(references.resolve(parameters, memory), plan.ref)
    order = order_for(step.tool, wanted.arguments, plan_ref=plan.ref)
    wanted.check_shown(Sealed(order.text, order.secrets))
    order = replace(order, reason=agent_steps.words_with(step))
    return order if old is None else replace(order, replaces=old, asker=asker_of(old))


def _call_before(step: Claimed) -> Call | None:
    """Return the call that a retried step had before, and that its next call is to replace."""
    if step.attempt == 1:
        return None
    return Call.objects.filter(pk__in=Step.objects.filter(pk=step.pk).values("retry_of"), replacements=None).first()


def _given_to(step: Claimed, plan_ref: str) -> dict[str, Any] | None:
    """Return the arguments that a person gave to a step in place of its parameters; None when nobody did."""
    text = Step.objects.values_list("given_arguments", flat=True).get(pk=step.pk)
    return vault.restored(text, plan_ref) if text else None


def order_for(
    tool_name: str, arguments: Mapping[str, Any], *, plan_ref: str = "", kept: int | None = None, to_leave: bool = False
) -> Order:
    """Look the tool up, choose what serves it and check the arguments; `kept` is the implementation of a stored call.

    With `to_leave` the tool may be other code here, or an earlier version: the call is stored, and run by a process
    with the right code.
    Raises UnknownTool, ToolDisabled, NoImplementation, ToolDrifted, ParameterError and the like.
    """
    target = snapshot.current(tool_name)
    if target is None:
        raise unknown_tool(tool_name)
    if not target.enabled:
        raise ToolDisabled(f"The tool {tool_name} is disabled. An administrator can enable it.")
    target = target.chosen_for(plan_ref, kept)
    if target.drifted:
        left = target.as_left() if to_leave else None
        if left is None:
            raise other_code(tool_name)
        target = left
    checked = pipeline.check(target.tool, arguments)
    sealed = vault.sealed(target.tool, checked)
    return Order(target=target, arguments=checked, text=sealed.text, secrets=sealed.secrets)


def other_code(tool_name: str) -> ToolDrifted:
    """Return the error of a call that cannot be begun here."""
    return ToolDrifted(
        f"The code of {tool_name} that is loaded here is not what the catalog has: restart this server, or run "
        "sync_tools if its code is the newer one; then try again."
    )


def keep_secrets(order: Order, plan_ref: str, step_id: int) -> None:
    """Keep the secrets that were cut out of a call's arguments until it ends, in the transaction that stores it."""
    if order.secrets:
        vault.keep(Place(plan_ref, str(step_id)), order.secrets)


def renewal_of(call: Call, given: Mapping[str, Any] | None = None) -> Order:
    """Return the order for a call that is to take the place of `call`, with its arguments or with those given.

    Raises what `order_for` raises.
    """
    arguments = vault.arguments_of(call) if given is None else given
    order = order_for(call.tool_name, arguments, plan_ref=call.plan_ref)
    return replace(order, replaces=call, asker=asker_of(call))


def order_of(call: Call) -> Order:
    """Return the order for a stored call, by the implementation it was stored with, for who asked for it.

    Raises what `order_for` raises.
    """
    arguments = vault.arguments_of(call)
    order = order_for(call.tool_name, arguments, plan_ref=call.plan_ref, kept=call.implementation_id)
    return replace(order, asker=asker_of(call))


def asker_of(call: Call) -> Asker | None:
    """Return who asked for a call: whoever replaces it asks for the same person."""
    user_id = call.requested_by_id
    return Asker(user_id, call.token_id, call.via, call.session) if user_id else None


def facts_for(order: Order, plan: PlanFacts) -> pipeline.CallFacts:
    """Return what the gate judges."""
    target = order.target
    return pipeline.CallFacts(
        tool_name=target.tool.name,
        safety_level=target.tool.safety_level,
        categories=target.tool.categories,
        arguments=order.arguments,
        requested_by=(order.asker or plan.asker).user_id,
        plan_ref=plan.ref,
        source=target.source,
    )


def admit(start: Start, order: Order, *, counted: bool = False) -> Run | Limited | Hold | None:
    """Ask the gate: start the call, hand it to people, or refuse it with its step; one not `counted` yet comes back."""
    verdict = gate(facts_for(order, start.plan))
    if isinstance(verdict, pipeline.Deny):
        finishing.refuse(start.batch, start.step, denial(verdict, start.plan, order, start.step.step_id))
        return None
    hold = Hold(start.step, start.plan, order, verdict.terms) if isinstance(verdict, pipeline.Hold) else None
    if hold is not None and (_was_refused(start, order) or (not counted and lacks_room(start.batch, hold))):
        return None
    try:
        budgets.check(start.batch.cursor, start.plan)
    except BudgetExceeded as refusal:
        finishing.refuse(start.batch, start.step, refusal)
        return None
    if not counted and limits.is_limited(order):
        return Limited(start.step, start.plan, order)
    if hold is not None:
        return hold
    call = new_call(start.plan, start.step.step_id, order, status=CallStatus.RUNNING)
    call.fence, call.attempt = start.step.attempt, 1
    call.created_at = call.started_at = start.batch.now
    if not statements.give_new_call(start.batch.cursor, start.step, call, just_claimed=start.just_claimed):
        raise Conflict("The step was taken over before its call could start.")
    keep_secrets(order, start.plan.ref, start.step.step_id)
    return _started(start, call, order)


def _was_refused(start: Start, order: Order) -> bool:
    """Refuse again what people refused in this plan before; say whether that was so."""
    first = refused_before(start.plan.ref, order)
    if first is not None:
        refuse_again(start, order, first)
    return first is not None


def refused_before(plan_ref: str, order: Order) -> ApprovalRequest | None:
    """Return the first request about the same tool and arguments that people rejected in the plan; None for none."""
    tool = order.target.tool
    return resolution.refused_before(plan_ref, tool.name, tool.input_schema, order.text, order.secrets)


def refuse_again(start: Start, order: Order, first: ApprovalRequest) -> Call:
    """Store the call of a claimed step, and refuse it as people refused the same in this plan before."""
    call = new_call(start.plan, start.step.step_id, order, status=CallStatus.CREATED)
    call.created_at = start.batch.now
    if not statements.give_new_call(start.batch.cursor, start.step, call):
        raise Conflict("The step was taken over before its call could be refused.")
    resolution.refuse_again(call, first)
    return call


def _started(start: Start, call: Call, order: Order) -> Run:
    tell(start.batch, "call.started", call, level=order.level, attempt=call.attempt)
    return Run(start.step, start.plan, call, order, budget=budgets.spend_call(start.batch.cursor, start.plan))


def _continue(start: Start) -> Work | None:
    """Go on with a step that already has a call: start it, ask about it again, or compare it with its approval."""
    call = Call.objects.select_related("approval").get(pk=start.step.call_pk or 0)
    if early.is_ahead(call):
        return _meet(start, call)
    start.batch.add("step.started", start.step.step_id, attempt=start.step.attempt)
    if call.status in TERMINAL:
        return admit(start, renewal_of(call, _given_to(start.step, start.plan.ref)))
    if hasattr(call, "approval") and call.approval.consumed_at is None:
        return Resume(start.step, start.plan, call)
    return _start_stored(start, call, order_of(call))


def _meet(start: Start, call: Call) -> Work | None:
    """Go on with a step that people were asked about before it was ready, as if they were asked now."""
    batch, step, check = start.batch, start.step, _skip_reason(start)
    batch.add("step.started", step.step_id, attempt=step.attempt, **check.event)
    if check.done:
        early.take_back([call], "The step needs not be done: its check says that it is.")
        finishing.skip(batch, step)
        return None
    if call.status in TERMINAL and not early.asks_again(call):
        early.carry_out_answer(batch, step, call)
        return None
    order = order_of_step(start.plan, start.step)
    if call.status not in TERMINAL and not early.is_outdated(batch, call, order) and not early.was_refused(call):
        return Resume(start.step, start.plan, call) if early.adopt(batch, step, call) else None
    return admit(start, replace(order, replaces=call, asker=asker_of(call)), counted=True)


def _start_stored(start: Start, call: Call, order: Order) -> Work | None:
    """Start a stored call that needs nobody: a direct call, one whose worker was lost, or one that is tried again."""
    if order.target.version_pk != call.version_id:
        raise ToolDrifted(f"The definition of {call.tool_name} has changed since this was asked for; ask for it again.")
    is_unbegun = not call.attempt
    if is_unbegun and (hold := _judge_again(start, call, order)) is not None:
        return hold
    budgets.check(start.batch.cursor, start.plan)
    if not statements.start_call(start.batch.cursor, call.pk, fence=start.step.attempt, now=start.batch.now):
        raise ToolError("The call was settled before it could start.")
    if order.target.implementation_pk != call.implementation_id:  # what it was stored with has been switched off
        Call.objects.filter(pk=call.pk).update(implementation=order.target.implementation_pk)
    call.fence, call.attempt, call.started_at = start.step.attempt, call.attempt + 1, start.batch.now
    run = _started(start, call, order)
    return _as_approved(run, call.approval, is_unbegun=is_unbegun) if hasattr(call, "approval") else run


def _as_approved(run: Run, request: ApprovalRequest, *, is_unbegun: bool) -> Run:
    """Tell a call what people changed of it; and what its target was like, which a run of its own may have changed."""
    approved = request.rounds.get(number=request.round_number)
    state = approved.state_token if is_unbegun else ""
    return replace(run, edited=edited_by_people(request) if approved.number > 1 else None, target_state=state or None)


def _judge_again(start: Start, call: Call, order: Order) -> Hold | None:
    """Ask the gate about a stored call that has not run: what is for people is held once its preview is computed.

    That is what a grant let in, what a process with other code left to this one, and what a policy holds since.

    A call whose worker stopped before its handler began starts on the same approval or grant, where that still holds.
    Raises ToolError for what policies refuse, and for what an approval lets start no more.
    """
    was_approved = hasattr(call, "approval")
    if was_approved:
        _compare_again(call, order)
    verdict = gate(facts_for(order, start.plan))
    if isinstance(verdict, pipeline.Deny):
        raise denial(verdict, start.plan, order, start.step.step_id)
    if isinstance(verdict, pipeline.Allow) or was_approved:
        return None
    return Hold(start.step, start.plan, order, verdict.terms, call)


def _compare_again(call: Call, order: Order) -> None:
    """Compare a call that was handed back unbegun with its approval. Raises ToolError where it may not start now."""
    try:
        consumption.compare_used(call, order.target.fingerprint, order.target.implementation_digest)
    except (ApprovalExpired, Invalidated) as change:
        raise ToolError(f"{change} It was approved, and has not run; ask for it again.") from None
