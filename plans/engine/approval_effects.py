"""Effects of approval decisions on the plan, applied in the decision's transaction."""

from collections.abc import Mapping
from datetime import timedelta

from approvals.audit.log import SYSTEM_ACTOR
from catalog.access.roles import user_display_name
from catalog.inventory import snapshot
from catalog.models import ApiToken, Call, ClientRun
from catalog.signals import Fact
from plans.engine import finishing, hints
from plans.engine.cancellation import terminate_plan
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store import statements
from plans.store.requesters import Requester, add_requester_of_descendants
from plans.store.transactions import FactHandler, PlanTransaction


def apply_approval(tx: PlanTransaction, fact: Fact) -> None:
    """Make the step of an approved call claimable; a call that its client runs waits for the client's next question."""
    steps = Step.objects.filter(call=fact.call, status=StepStatus.IN_PROGRESS)
    if fact.call is not None and is_client_run(fact.call):
        if steps.update(waiting_for=WaitingFor.CLIENT, waiting_since=tx.now):
            tx.record("step.waiting", int(fact.call.step_ref), waiting_for="client", call=fact.call.public_id)
        return
    steps.update(ready_at=tx.now)
    hints.hint(tx.plan_pk)


def apply_rejection(tx: PlanTransaction, fact: Fact) -> None:
    """Fail or skip the step of a rejected or expired call, cancel the plan if so decided, and settle the plan."""
    if fact.call is None:
        return
    effect, message = fact.data.get("effect"), str(fact.data["message"])
    if effect == "skip":
        finishing.skip_held_step(tx, fact.call, message, by=user_display_name(fact.by) if fact.by else SYSTEM_ACTOR)
    else:
        finishing.fail_held_step(tx, fact.call, message)
    if effect == "cancel_plan":
        open_ones = (PlanStatus.PENDING, PlanStatus.IN_PROGRESS)  # a pre-approval may be rejected before the start
        plan = Plan.objects.filter(pk=tx.plan_pk, status__in=open_ones).first()
        if plan is not None:
            terminate_plan(plan, tx, to=PlanStatus.CANCELLED, reason=message, by=fact.by)
    finishing.settle_plan(tx)


def apply_response(tx: PlanTransaction, fact: Fact) -> None:
    """Complete the step of a call with a person's response, as if its tool had returned it."""
    call = fact.call
    step = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS).select_related("parent", "plan").first()
    if call is None or step is None:
        return
    if step.parent is not None and fact.by is not None:  # the agent's later calls build on the response
        add_requester_of_descendants(step.plan, step, by=Requester(fact.by))
    tx.record("call.succeeded", int(call.step_ref), call=call.public_id, responded=True)
    ready = finishing.complete(tx, statements.load_step(tx.cursor, step.pk), call.response_json, call=call)
    hints.hint(tx.plan_pk, ready)
    finishing.settle_plan(tx)


def apply_change_request(tx: PlanTransaction, fact: Fact) -> None:
    """Let the step of a call that was sent back wait for the plan's author; an agent's call fails instead."""
    if fact.call is None:
        return
    message = str(fact.data["message"])
    if not wait_for_revision(tx, fact.call):
        finishing.fail_held_step(tx, fact.call, message)
    finishing.settle_plan(tx)


def apply_withdrawal(tx: PlanTransaction, fact: Fact) -> None:
    """Fail the step of a withdrawn request; a plan that is being ended cancels its steps itself."""
    if fact.data.get("asks_again"):
        return
    if Plan.objects.filter(pk=tx.plan_pk, status=PlanStatus.IN_PROGRESS).exists():
        apply_rejection(tx, fact)


def apply_invalidation(tx: PlanTransaction, fact: Fact) -> None:
    """Make the step of an invalidated call ready once every process has refreshed its snapshot: in some seconds.

    The step of a call that its client runs fails instead: the client's next question makes a new call.
    """
    if fact.call is not None and is_client_run(fact.call):
        reason = Call.objects.values_list("message", flat=True).get(pk=fact.call.pk)
        finishing.fail_held_step(tx, fact.call, reason)
        finishing.settle_plan(tx)
        return
    call, ready_at = fact.call, tx.now + timedelta(seconds=snapshot.SNAPSHOT_SECONDS)
    freed = {"ready_at": ready_at, "claimed_by": "", "lease_until": None, "waiting_since": tx.now}
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    if call is not None and steps.update(waiting_for=WaitingFor.RETRY, **freed):
        tx.record("step.retrying", int(call.step_ref), call=call.public_id, error="definition_changed")


def is_client_run(call: Call) -> bool:
    """Return whether the call's client runs it."""
    return ClientRun.objects.filter(call=call.pk).exists()


def wait_for_revision(tx: PlanTransaction, call: Call) -> bool:
    """Let the step of a call that was sent back wait for the plan's author; return whether the step waits.

    It does not for calls of agents and direct calls: their requester makes a new call, which replaces this one.
    """
    is_agents = Step.objects.filter(call=call).exclude(parent=None).exists()  # the agent is told and may call again
    by_agent = is_agents or (call.token is not None and call.token.kind == ApiToken.Kind.AGENT)
    if by_agent or not Plan.objects.filter(pk=tx.plan_pk, kind=Plan.Kind.PLAN).exists():
        return False
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    if not steps.update(waiting_for=WaitingFor.INPUT, waiting_since=tx.now, ready_at=None, lease_until=None):
        return False
    tx.record("step.waiting", int(call.step_ref), waiting_for="input", call=call.public_id)
    tx.record("input.requested", int(call.step_ref), call=call.public_id)
    return True


HANDLERS: Mapping[str, FactHandler] = {
    "call.released": apply_approval,
    "call.refused": apply_rejection,
    "call.responded": apply_response,
    "call.sent_back": apply_change_request,
    "call.voided": apply_invalidation,
    "approval.withdrawn": apply_withdrawal,
}
"""Fact kind of approvals → handler that applies it to the waiting step."""
