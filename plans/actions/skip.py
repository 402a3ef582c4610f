"""Skipping: a person completes a step that no worker runs, or that failed, with a reason. Its tool is not called.

A skip is no approval: the step's approval request is withdrawn and its call cancelled. Skipping an agent's step also
ends everything that the agent waits for.
"""

from django.db.models import Q

from approvals.requests import lifecycle
from approvals.states import OPEN
from catalog import signals
from catalog.access.roles import user_display_name
from catalog.core.transactions import retry_on_deadlock, try_move
from catalog.errors import Conflict, field_error
from catalog.models import Call
from catalog.secrets.placeholders import redact_text
from catalog.states import CallStatus
from plans.actions.retry import STOPPED, reset_stopped_steps
from plans.agents.tool_calls import TURN_TOOL
from plans.engine import finishing, hints
from plans.engine.cancellation import cancel_step
from plans.engine.extensions import end_agent_runs
from plans.engine.refusals import require_plan_within_limits
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store import statements
from plans.store.plan_documents import describe_agent_call
from plans.store.requesters import Requester
from plans.store.transactions import PlanTransaction, plan_transaction

MAX_REASON = 2000
SKIPPABLE_WAITS = (WaitingFor.APPROVAL, WaitingFor.RETRY, WaitingFor.INPUT, WaitingFor.CALLS, WaitingFor.STOP)
RELEASED = Q(waiting_for="", ready_at__isnull=False)
"""Steps that were started and released again, by a pause or by a process that stopped or was lost."""
BEGUN_UNCLAIMED = Q(status=StepStatus.IN_PROGRESS, claimed_by="")
IDLE = Q(status=StepStatus.PENDING) | (BEGUN_UNCLAIMED & (Q(waiting_for__in=SKIPPABLE_WAITS) | RELEASED))
"""Steps that no worker runs and whose outcome is not in question."""


def is_idle(step: Step) -> bool:
    """Return whether a loaded step matches the filter IDLE, and so can be skipped.

    An agent's turn is never idle, because the agent cannot continue without it.
    """
    if step.parent_id is not None and step.tool == TURN_TOOL:
        return False
    if step.status != StepStatus.IN_PROGRESS or step.claimed_by:
        return step.status == StepStatus.PENDING
    return step.waiting_for in SKIPPABLE_WAITS or (not step.waiting_for and step.ready_at is not None)


def skip_step(plan: Plan, step_id: int, reason: str, *, by: Requester) -> None:
    """Complete a step as skipped.

    Raises Step.DoesNotExist, ParameterError without a reason, OutsideLimits, and Conflict if it is too late.
    """
    require_plan_within_limits(plan, by.ids)
    text = reason.replace("\r\n", "\n").strip()
    if not text or len(text) > MAX_REASON or "\0" in text:
        message = f"Give a reason of at most {MAX_REASON:,} characters. It is kept in the plan's history."
        raise field_error("reason", "required" if not text else "invalid", message)
    _store_skip(plan, step_id, redact_text(text), by)


@retry_on_deadlock
def _store_skip(plan: Plan, step_id: int, reason: str, by: Requester) -> None:
    with plan_transaction(plan.pk, plan.public_id) as tx:
        step = plan.steps.select_related("call__version").get(step_id=step_id)
        if step.status in STOPPED and step.parent_id is None:
            reset_stopped_steps(plan, step_id, tx, by=by, event_data={"to_skip": True})
            if step.call is not None:
                signals.record_fact("call.skipped", call=step.call, by=by.user, reason=reason)
        status = Plan.objects.values_list("status", flat=True).get(pk=plan.pk)
        step = plan.steps.select_related("call__version", "call__approval", "parent").get(step_id=step_id)
        _complete(step, status, tx)
        name = user_display_name(by.user)
        finishing.note_skip(tx, statements.load_step(tx.cursor, step.pk), reason, by=name)
        hints.hint(tx.plan_pk, statements.ready_dependents(tx.cursor, step.pk, now=tx.now))
        tx.record("step.skipped", step.step_id, by=name, reason=reason)
        if step.agent:
            _end_work(step, tx, by)
        if status == PlanStatus.PENDING:  # starting the plan sets this
            plan.steps.exclude(ready_at=None).update(ready_at=None)
        if step.call is not None:
            message = f"The step was skipped: {reason}"
            if hasattr(step.call, "approval") and step.call.approval.status in OPEN:
                lifecycle.withdraw_for_plan(step.call.approval, by=by.user, reason=message)
            elif try_move(
                Call.objects.filter(pk=step.call.pk), to=CallStatus.CANCELLED, message=message, finished_at=tx.now
            ):
                signals.record_fact("call.skipped", call=step.call, by=by.user, reason=reason)
        finishing.settle_plan(tx)


def _complete(step: Step, status: str, tx: PlanTransaction) -> None:
    if status not in (PlanStatus.PENDING, PlanStatus.IN_PROGRESS):
        way = "Retry it first" if status == PlanStatus.FAILED else "Clone it to run it again"
        raise Conflict(f"The plan has ended ({status}), so its steps cannot be skipped. {way}.")
    if step.parent is not None and step.tool == TURN_TOOL:
        turn, agents = f"Step {step.step_id} is a model turn of the agent in step", step.parent.step_id
        raise Conflict(f"{turn} {agents}, which cannot continue without it. Skip step {agents} instead.")
    idle = Step.objects.filter(IDLE, pk=step.pk)
    cleared = {"ready_at": None, "waiting_for": "", "waiting_since": None}
    if not try_move(idle, to=StepStatus.COMPLETED, skipped=True, completed_at=tx.now, **cleared):
        raise Conflict(_skip_refusal(step))


def _end_work(step: Step, tx: PlanTransaction, by: Requester) -> None:
    """End everything that the agent of a skipped step waits for: its turn, its calls and their approval requests.

    Raises Conflict for a call that is running or whose outcome is unknown, since neither can be taken back.
    """
    going = Step.objects.filter(parent=step, status__in=(StepStatus.PENDING, StepStatus.IN_PROGRESS))
    children = list(going.select_related("call__approval"))
    for child in children:
        which = describe_agent_call(child.step_id, step.step_id)
        if child.waiting_for == WaitingFor.OUTCOME:
            raise Conflict(f"{which}, and its outcome is unknown. Say what happened first.")
        if child.tool != TURN_TOOL and child.call is not None and child.call.status == CallStatus.RUNNING:
            raise Conflict(f"{which}, and is running. Skip step {step.step_id} once it has ended.")
    for child in children:
        cancel_step(child, tx, f"Step {step.step_id}, whose agent requested this call, was skipped.", by.user)
    end_agent_runs([step.pk], tx)


def _skip_refusal(step: Step) -> str:
    if step.waiting_for == WaitingFor.OUTCOME:
        return f"The outcome of the call in step {step.step_id} is unknown. Say what happened instead."
    if step.status == StepStatus.IN_PROGRESS:
        return f"Step {step.step_id} has started and can no longer be skipped."
    if step.status == StepStatus.FAILED:
        return f"Step {step.step_id} has failed, and its agent already knows."
    return f"Step {step.step_id} has ended; it is {step.get_status_display().lower()}."
