"""Who changed or answered the steps that a step takes values from: they are not the only ones to approve its call.

A step takes a value where its parameters refer to the key that another step has written, at any remove.
"""

from collections.abc import Iterable

from approvals.models import Review, Round
from approvals.states import Verdict
from catalog.models import Call
from plans.claims import Claimed
from plans.models import Step
from plans.private import Flow, flow_of


def input_authors_of(step: Claimed) -> set[int]:
    """Return the people, by their keys, who edited or answered what the step takes values from; without a query for a
    step that refers to nothing.
    """
    if "${" not in step.parameters:
        return set()
    numbers = _sources(step.step_id, flow_of(step.plan_pk))
    calls = _with_replaced(Step.objects.filter(plan=step.plan_pk, step_id__in=numbers).values_list("call", flat=True))
    editors = Round.objects.filter(request__call__in=calls, editor__isnull=False).values_list("editor", flat=True)
    answers = Review.objects.filter(request__call__in=calls, verdict=Verdict.RESPOND, undone_at=None)
    return {*editors, *answers.values_list("person", flat=True)}


def _sources(step_id: int, flow: Flow) -> set[int]:
    """Return the numbers of the steps that values come from; what an agent gives comes from what it called, too."""
    found: set[int] = set()
    wanted = [step_id]
    while wanted:
        number = wanted.pop()
        keys = set().union(*flow.wants.get(number, {}).values())
        writers = {writer for writer, written in flow.keys.items() if written & keys}
        new = (writers | flow.children.get(number, set())) - found
        found |= new
        wanted += new
    return found


def _with_replaced(calls: Iterable[int | None]) -> set[int]:
    """Return these calls with those that they replaced: what was edited before is in their arguments."""
    found = {call for call in calls if call is not None}
    new = found
    while new:
        replaced = Call.objects.filter(pk__in=new, replaces__isnull=False).values_list("replaces", flat=True)
        new = {call for call in replaced if call is not None} - found
        found |= new
    return found
