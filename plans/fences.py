"""Whether an attempt is still the one that counts, asked outside of any transaction."""

from catalog.states import CallStatus
from plans.finishing import SETTLED
from plans.models import Step
from plans.work import Run


def may_undo(run: Run) -> bool:
    """Say whether what this attempt changed may be undone: nobody has begun another, or said what became of the call.

    Another attempt may have written the very same, and whoever settles a call may count on what is there. A call that
    ended while its handler could not be stopped is undone when that comes back.
    """
    mine = Step.objects.filter(pk=run.step.pk, attempt=run.step.attempt, call=run.call.pk, call__fence=run.call.fence)
    return mine.exclude(call__status=CallStatus.COMPLETED).exclude(call__error_kind=SETTLED).exists()
