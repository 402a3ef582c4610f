"""Who, beside the plan's author, asked for what a step does: who changed it, or had it tried again.

Nobody decides about what they asked for: the calls of such a step have these people among their requesters.
"""

from collections.abc import Iterable

from plans.models import Plan, StepAsker
from plans.services import Requester


def ask_for(plan: Plan, numbers: Iterable[int], *, by: Requester) -> None:
    """Keep that someone asked for these steps as they are now; the author has asked for all of them."""
    if by.user.pk == plan.author_id:
        return
    steps = plan.steps.filter(step_id__in=list(numbers)).values_list("pk", flat=True)
    StepAsker.objects.bulk_create((StepAsker(step_id=step, person=by.user) for step in steps), ignore_conflicts=True)


def askers_of(step_pk: int) -> set[int]:
    """Return the people who asked for a step, beside the plan's author, by their keys."""
    return set(StepAsker.objects.filter(step=step_pk).values_list("person_id", flat=True))
