"""The requesters of a step's call, who therefore may not approve it themselves.

Besides the author of a plan, these are the people who changed or retried the step, and the people who edited or
answered the calls from which the step takes values.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.contrib.auth.models import User

from approvals.models import Review, Round
from approvals.states import ReviewVerdict
from catalog.access.limits import Limits
from catalog.models import ApiToken, Call
from plans.documents.graphs import descendants
from plans.models import Plan, Step, StepAsker, StepDependency
from plans.store.privacy import load_value_flow
from plans.store.statements import ClaimedStep


@dataclass(frozen=True, slots=True)
class RequesterIds:
    """The requester of a call by keys: person, token, interface and session; `limits` are those of the token."""

    user_id: int
    token_id: int | None
    via: str
    session: str
    limits: Limits | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Requester:
    """A requester: person, token, interface (page, rest, mcp or shell) and named session."""

    user: User
    token: ApiToken | None = None
    via: str = "page"
    session: str = ""

    @property
    def ids(self) -> RequesterIds:
        token = self.token
        return RequesterIds(self.user.pk, token.pk if token else None, self.via, self.session, self.limits)

    @property
    def limits(self) -> Limits | None:
        """The limits of the token through which the requester acts; None without a token."""
        return self.token.limits if self.token is not None else None


def add_requesters(plan: Plan, numbers: Iterable[int], *, by: Requester) -> None:
    """Record a requester of these steps; the plan's author is a requester of all steps and not recorded."""
    if by.user.pk == plan.author_id:
        return
    steps = plan.steps.filter(step_id__in=list(numbers)).values_list("pk", flat=True)
    StepAsker.objects.bulk_create((StepAsker(step_id=step, person=by.user) for step in steps), ignore_conflicts=True)


def add_requester_of_descendants(plan: Plan, step: Step, *, by: Requester) -> None:
    """Record a person who answered a step as requester of its dependents, whose calls they then may not approve."""
    if by.user.pk == plan.author_id:
        return
    arrows = StepDependency.objects.filter(step__plan=plan).values_list("needs__step_id", "step__step_id")
    first = step.parent.step_id if step.parent is not None else step.step_id
    add_requesters(plan, {step.step_id, first} | descendants(first, arrows), by=by)


def extra_requesters(step_pk: int) -> set[int]:
    """Return the keys of a step's requesters other than the plan's author."""
    return set(StepAsker.objects.filter(step=step_pk).values_list("person_id", flat=True))


def input_authors_of(step: ClaimedStep) -> set[int]:
    """Return the keys of people who edited or answered the calls from which the step takes values."""
    if "${" not in step.parameters:
        return set()
    flow = load_value_flow(step.plan_pk)
    numbers: set[int] = set()  # the steps from which values come, including the calls of agents
    queue = [step.step_id]
    while queue:
        number = queue.pop()
        keys = set().union(*flow.wants.get(number, {}).values())
        writers = {writer for writer, written in flow.keys.items() if written & keys}
        new = (writers | flow.children.get(number, set())) - numbers
        numbers |= new
        queue += new
    calls = _with_replaced(Step.objects.filter(plan=step.plan_pk, step_id__in=numbers).values_list("call", flat=True))
    editors = Round.objects.filter(request__call__in=calls, editor__isnull=False).values_list("editor", flat=True)
    answers = Review.objects.filter(request__call__in=calls, verdict=ReviewVerdict.RESPOND, undone_at=None)
    return {*editors, *answers.values_list("person", flat=True)}


def _with_replaced(calls: Iterable[int | None]) -> set[int]:
    """Return these calls and all calls that they replaced: edits of a replaced call are part of the arguments."""
    found = {call for call in calls if call is not None}
    new = found
    while new:
        replaced = Call.objects.filter(pk__in=new, replaces__isnull=False).values_list("replaces", flat=True)
        new = {call for call in replaced if call is not None} - found
        found |= new
    return found
