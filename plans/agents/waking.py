"""Waking agents: when the last of the steps that an agent waits for has ended, its own may be claimed again."""

from django.db.models import Exists, OuterRef

from plans.engine import hints
from plans.models import Step
from plans.states import StepStatus, WaitingFor
from plans.store.transactions import Recording, at_step_ends

UNSETTLED = (StepStatus.PENDING, StepStatus.IN_PROGRESS)


def wake(batch: Recording) -> None:
    """Let the agents' steps of a plan be claimed that wait for nothing any more, in the transaction that ended it."""
    waiting = Step.objects.filter(plan=batch.plan_pk, status=StepStatus.IN_PROGRESS, waiting_for=WaitingFor.CALLS)
    busy = Step.objects.filter(parent=OuterRef("pk"), status__in=UNSETTLED)
    woken = waiting.filter(~Exists(busy)).update(ready_at=batch.now, waiting_for="")
    hints.hint(batch.plan_pk, woken)


at_step_ends(wake)
