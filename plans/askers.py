"""Who, beside the plan's author, asked for what a step does: who changed it, or had it tried again.

Nobody decides about what they asked for: the calls of such a step have these people among their requesters.
"""

from collections.abc import Iterable

from plans.documents.graphs import descendants
from plans.models import Plan, Step, StepAsker, StepDependency
from plans.services import Requester


def ask_for(plan: Plan, numbers: Iterable[int], *, by: Requester) -> None:
    """Keep that someone asked for these steps as they are now; the author has asked for all of them."""
    if by.user.pk == plan.author_id:
        return
    steps = plan.steps.filter(step_id__in=list(numbers)).values_list("pk", flat=True)
    StepAsker.objects.bulk_create((StepAsker(step_id=step, person=by.user) for step in steps), ignore_conflicts=True)


def ask_for_what_follows(plan: Plan, step: Step, *, by: Requester) -> None:
    """Who answers for someone else asked for what is made of it, and does not decide about that.

    What is made of an answer to an agent is what the agent does from then on, and what needs that.
    """
    if by.user.pk == plan.author_id:
        return
    arrows = StepDependency.objects.filter(step__plan=plan).values_list("needs__step_id", "step__step_id")
    first = step.parent.step_id if step.parent is not None else step.step_id
    ask_for(plan, {step.step_id, first} | descendants(first, arrows), by=by)


def askers_of(step_pk: int) -> set[int]:
    """Return the people who asked for a step, beside the plan's author, by their keys."""
    return set(StepAsker.objects.filter(step=step_pk).values_list("person_id", flat=True))
