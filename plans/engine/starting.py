"""From a ready step to work: claim it, check whether it is done, resolve, validate, gate, start.

Everything here happens inside one open recording of the plan, normally the transaction in which the step before it was
finished. What needs the outside (a preview, a handler) is returned as work, to be done after commit. A step whose tool
is other code here than in the catalog is left to processes that have loaded the right code, a few times.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import takewhile
from time import monotonic

from django.db import DatabaseError

from approvals.errors import ApprovalExpired, AuditUnavailable, Invalidated
from approvals.models import ApprovalRequest
from approvals.policies.gate import gate
from approvals.requests import consumption, resolution
from approvals.reviews.edits import edited_by_people
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
    postponed_starts,
    questions,
)
from plans.engine.calls import (
    asker_of,
    facts_for,
    given_arguments,
    keep_secrets,
    new_call,
    new_lease,
    order_of,
    order_of_step,
    renewal_of,
)
from plans.engine.denials import denial
from plans.engine.limits import BudgetExceeded, lacks_room
from plans.engine.situations import CallSituation, classify
from plans.engine.work import Hold, Limited, Memory, Order, PlanFacts, Resume, Run, Work
from plans.models import Event, Step
from plans.states import WaitingFor
from plans.store import statements
from plans.store.statements import Claimed, Parking
from plans.store.transactions import Recording, tell

LEFT_AT_MOST = 5
DELAY_SECONDS = 1.0
HANDS_OFF_SECONDS = 3.0
"""How long this process wakes no plan that it has left; other processes look each second."""
DRIFTED = "drifted"

_left: dict[int, float] = {}


def leave_to_other_worker(batch: Recording, step: Claimed) -> bool:
    """Let go of a claimed step, so that another process may take it; False when it was left often enough."""
    times = _times_left(batch.plan_pk, step.step_id)
    ready_at = batch.now + timedelta(seconds=DELAY_SECONDS)
    parking = Parking(WaitingFor.RETRY, step.call_pk, batch.now, ready_at)
    if times >= LEFT_AT_MOST or not statements.park_step(batch.cursor, step, parking):
        return False
    batch.add("step.retrying", step.step_id, attempt=times + 1, of=LEFT_AT_MOST, seconds=DELAY_SECONDS, error=DRIFTED)
    _forget_what_is_over()
    _left[batch.plan_pk] = monotonic() + HANDS_OFF_SECONDS
    return True


def _times_left(plan_pk: int, step_id: int) -> int:
    """Return how often a step was left since anything else came of it; that it began, and no more, is nothing else."""
    told = Event.objects.filter(plan_id=plan_pk, step_id=step_id).exclude(type="step.started").order_by("-seq")
    lately = told.values_list("type", "data")[:LEFT_AT_MOST]
    return sum(1 for _ in takewhile(lambda each: each[0] == "step.retrying" and f'"{DRIFTED}"' in each[1], lately))


def _forget_what_is_over() -> None:
    now = monotonic()
    for plan_pk, until in list(_left.items()):
        if until < now:
            _left.pop(plan_pk, None)


def is_left(plan_pk: int) -> bool:
    """Say whether this process has just left a step of the plan to others."""
    return monotonic() < _left.get(plan_pk, 0.0)


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
        step = limits.claim_within_limits(batch.cursor, plan.pk, new_lease(owner, batch))
        if step is None:
            return None
        work = _begin(Start(batch, plan.as_of(step), step, just_claimed=True))
        if work is not None:
            return work
    hints.hint(plan.pk, Step.objects.filter(plan=plan.pk, ready_at__lte=batch.now).count())
    return None


def _begin(start: Start) -> Work | None:
    """Take one claimed step as far as it goes without leaving the transaction."""
    step = start.step
    try:
        extensions.see_that_agent_may(step)
        if step.agent and extensions.go_on_with_agent_step(start.batch, start.plan, step):
            return None
        return _begin_anew(start) if step.call_pk is None else _continue(start)
    except ToolError as error:
        if not (isinstance(error, ToolDrifted) and leave_to_other_worker(start.batch, step)):
            finishing.refuse(start.batch, step, error)
            extensions.give_up_agent_step(start.batch, step)
    except AuditUnavailable:
        postponed_starts.put_off(start.batch, step)
    except (Conflict, DatabaseError):
        raise
    except Exception as error:  # noqa: BLE001 - raised again it would undo the claim, to be tried for ever
        log_unexpected(error)
        finishing.refuse(start.batch, step, ToolError(f"The step could not begin: {type(error).__name__}."))
        extensions.give_up_agent_step(start.batch, step)
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
        extensions.begin_agent_step(start.batch, start.plan, step)
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
    reason = finishing.for_the_history(step, verdict.reason)
    return _Check(done=verdict.done, event={"check": reason} if reason and not verdict.done else {})


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
        limits.check_budget(start.batch.cursor, start.plan)
    except BudgetExceeded as refusal:
        finishing.refuse(start.batch, start.step, refusal)
        return None
    if not counted and limits.is_rate_limited(order):
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
    return Run(start.step, start.plan, call, order, budget=limits.spend_call(start.batch.cursor, start.plan))


def _continue(start: Start) -> Work | None:
    """Go on with a step that already has a call."""
    batch, step = start.batch, start.step
    call = Call.objects.select_related("approval", "grant_use").get(pk=step.call_pk or 0)
    situation = classify(call)
    check = _skip_reason(start) if situation.is_early else _NOT_DONE
    batch.add("step.started", step.step_id, attempt=step.attempt, **check.event)
    if check.done:
        early_requests.take_back([call], "The step needs not be done: its check says that it is.")
        finishing.skip(batch, step)
        return None
    work: Work | None = None
    match situation:
        case CallSituation.EARLY:
            work = _continue_early(start, call)
        case CallSituation.EARLY_ANSWERED:
            early_requests.carry_out_answer(batch, step, call)
        case CallSituation.EARLY_UNANSWERED:
            work = _request_anew(start, call, order_of_step(start.plan, step))
        case CallSituation.ENDED:
            work = admit(start, renewal_of(call, given_arguments(step, start.plan.ref)))
        case CallSituation.APPROVED:
            work = Resume(step, start.plan, call)
        case CallSituation.HANDED_BACK:
            work = _start_handed_back(start, call)
        case CallSituation.GRANTED | CallSituation.UNBEGUN:
            work = _start_unbegun(start, call)
        case CallSituation.ATTEMPTED:
            work = _start_stored(start, call, _stored_order(call))
    return work


def _continue_early(start: Start, call: Call) -> Work | None:
    """Go on with the request that was opened early, unless the call differs now or was rejected since."""
    order = order_of_step(start.plan, start.step)
    if early_requests.invalidate_if_outdated(start.batch, call, order):
        return _request_anew(start, call, order)
    if early_requests.withdraw_if_rejected_before(call):
        return _request_anew(start, call, order)
    return Resume(start.step, start.plan, call) if early_requests.attach(start.batch, start.step, call) else None


def _request_anew(start: Start, call: Call, order: Order) -> Work | None:
    """Admit the step's call as it is now, in place of the one about which people were asked early."""
    return admit(start, replace(order, replaces=call, asker=asker_of(call)), counted=True)


def _start_handed_back(start: Start, call: Call) -> Run:
    """Start a call whose approval is consumed and whose handler has not begun, if it still is what was approved.

    Raises ToolError for a call that policies deny now, or whose approval does not hold any more.
    """
    order = _stored_order(call)
    try:
        consumption.compare_used(call, order.target.fingerprint, order.target.implementation_digest)
    except (ApprovalExpired, Invalidated) as change:
        raise ToolError(f"{change} It was approved, and has not run; ask for it again.") from None
    _judge(start, order)
    return _start_stored(start, call, order)


def _start_unbegun(start: Start, call: Call) -> Run | Hold:
    """Start a call that has not run and needed no approval, or hold it where policies want one now.

    A call that a grant let start is held here too: its grant is asked once more when the preview is computed.
    Raises ToolError for a call that policies deny now.
    """
    order = _stored_order(call)
    verdict = _judge(start, order)
    if isinstance(verdict, pipeline.Hold):
        return Hold(start.step, start.plan, order, verdict.terms, call)
    return _start_stored(start, call, order)


def _judge(start: Start, order: Order) -> pipeline.Allow | pipeline.Hold:
    """Ask the gate. Raises PolicyRefusal for a call that policies deny."""
    verdict = gate(facts_for(order, start.plan))
    if isinstance(verdict, pipeline.Deny):
        raise denial(verdict, start.plan, order, start.step.step_id)
    return verdict


def _stored_order(call: Call) -> Order:
    """Return the order for a stored call. Raises ToolDrifted if its tool has another definition now."""
    order = order_of(call)
    if order.target.version_pk != call.version_id:
        raise ToolDrifted(f"The definition of {call.tool_name} has changed since this was asked for; ask for it again.")
    return order


def _start_stored(start: Start, call: Call, order: Order) -> Run:
    """Start a stored call. Raises BudgetExceeded, and ToolError for one that was settled meanwhile."""
    limits.check_budget(start.batch.cursor, start.plan)
    if not statements.start_call(start.batch.cursor, call.pk, fence=start.step.attempt, now=start.batch.now):
        raise ToolError("The call was settled before it could start.")
    if order.target.implementation_pk != call.implementation_id:  # what it was stored with has been switched off
        Call.objects.filter(pk=call.pk).update(implementation=order.target.implementation_pk)
    call.fence, call.attempt, call.started_at = start.step.attempt, call.attempt + 1, start.batch.now
    run = _started(start, call, order)
    return _as_approved(run, call.approval) if hasattr(call, "approval") else run


def _as_approved(run: Run, request: ApprovalRequest) -> Run:
    """Add what people changed of the call, and the state of its target that they saw; a retry may have changed that."""
    approved = request.rounds.get(number=request.round_number)
    state = approved.state_token if run.call.attempt == 1 else ""
    return replace(run, edited=edited_by_people(request) if approved.number > 1 else None, target_state=state or None)
