"""What decisions about a call mean for its plan, carried out in the decision's own transaction."""

from datetime import timedelta

from catalog import snapshot
from catalog.facts import Fact
from plans import carriers, finishing
from plans.events import Recording, on_consequence
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus, WaitingFor


def release(batch: Recording, fact: Fact) -> None:
    """An approved call may run: its step is claimable from now on."""
    Step.objects.filter(call=fact.call, status=StepStatus.IN_PROGRESS).update(ready_at=batch.now)
    carriers.hint(batch.plan_pk)


def refuse(batch: Recording, fact: Fact) -> None:
    """A refused or expired call fails its step; the plan ends when nothing else can go on."""
    if fact.call is None:
        return
    finishing.fail_held_step(batch, fact.call, str(fact.data["message"]))
    finishing.settle_plan(batch)


def withdraw(batch: Recording, fact: Fact) -> None:
    """A withdrawn request fails its step too; a plan that is being ended ends its steps itself."""
    if Plan.objects.filter(pk=batch.plan_pk, status=PlanStatus.IN_PROGRESS).exists():
        refuse(batch, fact)


def ask_again(batch: Recording, fact: Fact) -> None:
    """A call that may not run as it was asked for is asked for anew, once every process has looked what changed."""
    call, ready_at = fact.call, batch.now + timedelta(seconds=snapshot.SECONDS_TRUSTED)
    freed = {"ready_at": ready_at, "claimed_by": "", "lease_until": None, "waiting_since": batch.now}
    steps = Step.objects.filter(call=call, status=StepStatus.IN_PROGRESS)
    if call is not None and steps.update(waiting_for=WaitingFor.RETRY, **freed):
        batch.add("step.retrying", int(call.step_ref), call=call.public_id, error="definition_changed")


on_consequence("call.released", release)
on_consequence("call.refused", refuse)
on_consequence("call.voided", ask_again)
on_consequence("approval.withdrawn", withdraw)
