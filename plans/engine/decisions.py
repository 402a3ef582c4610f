"""What decisions about a call mean for its plan, carried out in the decision's own transaction."""

from collections.abc import Mapping
from datetime import timedelta

from approvals.audit.log import NOBODY
from catalog.access.roles import name_of
from catalog.inventory import snapshot
from catalog.models import ApiToken, Call
from catalog.signals import Fact
from plans.engine import finishing, hints
from plans.engine.cancellation import end_plan
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor
from plans.store import statements
from plans.store.requesters import Requester, ask_for_what_follows
from plans.store.transactions import FactHandler, Recording


def release(batch: Recording, fact: Fact) -> None:
    """An approved call may run: its step is claimable from now on."""
    Step.objects.filter(call=fact.call, status=StepStatus.IN_PROGRESS).update(ready_at=batch.now)
    hints.hint(batch.plan_pk)


def refuse(batch: Recording, fact: Fact) -> None:
    """A refused or expired call fails its step, skips it, or ends the plan; else that ends when nothing can go on."""
    if fact.call is None:
        return
    effect, message = fact.data.get("effect"), str(fact.data["message"])
    if effect == "skip":
        finishing.skip_held_step(batch, fact.call, message, by=name_of(fact.by) if fact.by else NOBODY)
    else:
        finishing.fail_held_step(batch, fact.call, message)
    if effect == "cancel_plan":
        _cancel_rest(batch, fact, message)
    finishing.settle_plan(batch)


def _cancel_rest(batch: Recording, fact: Fact, message: str) -> None:
    """Cancel the plan whose call was refused with all that was to come; one that has ended stays what it is."""
    open_ones = (PlanStatus.PENDING, PlanStatus.IN_PROGRESS)  # one that was asked early may be refused before the start
    going = Plan.objects.filter(pk=batch.plan_pk, status__in=open_ones).first()
    if going is not None:
        end_plan(going, batch, to=PlanStatus.CANCELLED, reason=message, by=fact.by)


def respond(batch: Recording, fact: Fact) -> None:
    """A call that a person answered completes its step with that answer, as if its tool had given it."""
    call = fact.call
    step = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS).select_related("parent", "plan").first()
    if call is None or step is None:
        return
    if step.parent is not None and fact.by is not None:  # its model is told, and asks for more with what it was told
        ask_for_what_follows(step.plan, step, by=Requester(fact.by))
    batch.add("call.succeeded", int(call.step_ref), call=call.public_id, responded=True)
    ready = finishing.complete(batch, statements.look_at(batch.cursor, step.pk), call.response_json, call=call)
    hints.hint(batch.plan_pk, ready)
    finishing.settle_plan(batch)


def send_back(batch: Recording, fact: Fact) -> None:
    """A call that is to be changed waits for the person whose plan it is; an agent's fails, and it asks anew."""
    if fact.call is None:
        return
    message = str(fact.data["message"])
    if not wait_for_changes(batch, fact.call):
        finishing.fail_held_step(batch, fact.call, message)
    finishing.settle_plan(batch)


def withdraw(batch: Recording, fact: Fact) -> None:
    """A withdrawn request fails its step too; a plan that is being ended ends its steps itself."""
    if fact.data.get("asks_again"):
        return
    if Plan.objects.filter(pk=batch.plan_pk, status=PlanStatus.IN_PROGRESS).exists():
        refuse(batch, fact)


def ask_again(batch: Recording, fact: Fact) -> None:
    """A call that may not run as it was asked for is asked for anew, once every process has looked what changed."""
    call, ready_at = fact.call, batch.now + timedelta(seconds=snapshot.SECONDS_TRUSTED)
    freed = {"ready_at": ready_at, "claimed_by": "", "lease_until": None, "waiting_since": batch.now}
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    if call is not None and steps.update(waiting_for=WaitingFor.RETRY, **freed):
        batch.add("step.retrying", int(call.step_ref), call=call.public_id, error="definition_changed")


def wait_for_changes(batch: Recording, call: Call) -> bool:
    """Let the step of a call that was sent back wait for its person; False where an agent asked, or for one call alone.

    A call that is a plan of its own has been answered: whoever made it makes another, which replaces it.
    """
    is_agents = Step.objects.filter(call=call).exclude(parent=None).exists()  # whose model is told, and asks anew
    by_agent = is_agents or (call.token is not None and call.token.kind == ApiToken.Kind.AGENT)
    if by_agent or not Plan.objects.filter(pk=batch.plan_pk, kind=Plan.Kind.PLAN).exists():
        return False
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    if not steps.update(waiting_for=WaitingFor.INPUT, waiting_since=batch.now, ready_at=None, lease_until=None):
        return False
    batch.add("step.waiting", int(call.step_ref), waiting_for="input", call=call.public_id)
    batch.add("input.requested", int(call.step_ref), call=call.public_id)
    return True


HANDLERS: Mapping[str, FactHandler] = {
    "call.released": release,
    "call.refused": refuse,
    "call.responded": respond,
    "call.sent_back": send_back,
    "call.voided": ask_again,
    "approval.withdrawn": withdraw,
}
"""The consequences of each fact of approvals for the step that waits for it."""
