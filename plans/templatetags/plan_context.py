"""Tags with which pages of lower layers show plans: a step in its plan, outcomes to settle, questions to answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django import template
from django.contrib.auth.models import User
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from catalog.access.roles import can_see_all
from catalog.models import Call
from catalog.states import CallStatus
from plans.documents.graphs import descendants
from plans.models import Plan, Question, Step, StepDependency
from plans.states import StepStatus, WaitingFor
from plans.store.selectors import plans_for

register = template.Library()
MOST_SHOWN = 8
MOST_UNKNOWN = 50
SHOWN_OF_STEP = (
    *("plan_id", "parent_id", "step_id", "description", "tool", "agent", "after_answer"),
    *("status", "skipped", "waiting_for"),
)
AUTHOR = ("plan__author__username", "plan__author__first_name", "plan__author__last_name")
SHOWN_OF_UNKNOWN = (*SHOWN_OF_STEP, "waiting_since", "plan__public_id", *AUTHOR)


@register.simple_tag
def unknown_outcomes(viewer: User) -> list[Step]:
    """Return the steps whose outcome a person must settle, including direct calls, oldest first.

    One narrow query, and one more if there are any.
    """
    steps = Step.objects.filter(call__status=CallStatus.OUTCOME_UNKNOWN, waiting_for=WaitingFor.OUTCOME)
    seen = steps if can_see_all(viewer) else steps.filter(plan__in=plans_for(viewer).order_by())
    keys = list(seen.order_by("waiting_since", "id").values_list("pk", flat=True)[:MOST_UNKNOWN])
    if not keys:
        return []
    shown = Step.objects.filter(pk__in=keys).select_related("plan__author").only(*SHOWN_OF_UNKNOWN)
    return list(shown.order_by("waiting_since", "id"))


@register.simple_tag
def open_questions(viewer: User) -> list[Step]:
    """Return the steps that wait for an answer of this person, whose plans they are, oldest first.

    One narrow query, and one more if there are any.
    """
    open_ones = Question.objects.filter(answered_at=None).values("step")
    steps = Step.objects.filter(pk__in=open_ones, waiting_for=WaitingFor.INPUT, plan__author=viewer)
    keys = list(steps.order_by("waiting_since", "id").values_list("pk", flat=True)[:MOST_SHOWN])
    if not keys:
        return []
    asked = Step.objects.filter(pk__in=keys).select_related("plan")
    shown = asked.only(*SHOWN_OF_STEP, "waiting_since", "plan__public_id", "plan__goal")
    return list(shown.order_by("waiting_since", "id"))


@dataclass(frozen=True, slots=True)
class PlanSurroundings:
    """A step in its plan, with all steps connected to it before and after, and the number of steps that have run.

    A call of an agent (`here`) follows the agent's step (`asks`) and precedes its dependents. `here` is None if the
    plan no longer has the step.
    """

    plan: Plan
    here: Step | None
    asks: Step | None
    before: Sequence[Step]
    after: Sequence[Step]
    ran: int

    @property
    def purpose(self) -> str:
        """Description of the step for which the call is made; for a call of an agent, of the agent's step."""
        step = self.asks or self.here
        return step.description if step is not None else ""

    @property
    def way(self) -> list[Step]:
        """The nearest steps before this step."""
        return [*self.before, *([self.asks] if self.asks else [])][-MOST_SHOWN:]

    @property
    def next(self) -> list[Step]:
        """The nearest steps after this step."""
        return list(self.after[:MOST_SHOWN])

    @property
    def stake(self) -> str:
        """Effect of rejecting the call on the plan, as a sentence; empty without a step."""
        if self.here is None:
            return ""
        if self.asks is not None:
            return _("If you reject this call, the agent in step %(number)s is told and continues without it.") % {
                "number": self.asks.step_id
            }
        lost = [step.step_id for step in self.after if step.status == StepStatus.PENDING]
        parts = [_("Rejecting fails step %(number)s.") % {"number": self.here.step_id}]
        waiting = _("%(steps)s will not run.") % {"steps": _name_steps(lost)} if lost else _("No step waits for it.")
        parts.append(waiting)
        if self.ran:
            parts.append(
                ngettext("%(count)s step has already run.", "%(count)s steps have already run.", self.ran)
                % {"count": self.ran}
            )
        return " ".join(parts)


@register.filter
def standing(step: Step) -> str:
    """Return the status to show for a step: "skipped" instead of "completed" for a skipped one."""
    return "skipped" if step.skipped else step.status


@register.simple_tag
def plan_around(plan_ref: str, step_ref: str, viewer: User) -> PlanSurroundings | None:
    """Return a step in its plan, or None if the viewer sees no such plan; three queries."""
    seen = plans_for(viewer).select_related(None).only("public_id", "status", "goal")
    plan = seen.filter(public_id=plan_ref, kind=Plan.Kind.PLAN).first() if plan_ref else None
    if plan is None:
        return None
    steps = {step.pk: step for step in Step.objects.filter(plan=plan).only(*SHOWN_OF_STEP)}
    here = next((step for step in steps.values() if str(step.step_id) == step_ref), None)
    arrows = StepDependency.objects.filter(step__plan=plan).values_list("needs_id", "step_id")
    ran = sum(step.status == StepStatus.COMPLETED and not step.skipped for step in steps.values())
    asks = steps[here.parent_id] if here is not None and here.parent_id else None
    start = asks or here
    before = _connected(start, [(step, needed) for needed, step in arrows], steps)
    return PlanSurroundings(plan, here, asks, before, _connected(start, arrows, steps), ran)


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Address of a call's step for one viewer, empty if they cannot see its plan; `is_direct` for a direct call."""

    address: str
    is_direct: bool


@register.simple_tag
def call_place(call: Call, viewer: User, surroundings: PlanSurroundings | str | None = None) -> CallPlace:
    """Return the place of a call: no query if `surroundings` is given, else one or two."""
    address = f"/plans/{call.plan_ref}/?step={call.step_ref}"
    if surroundings:
        return CallPlace(address, is_direct=False)
    kind = (
        Plan.objects.filter(public_id=call.plan_ref).values_list("kind", flat=True).first() if call.plan_ref else None
    )
    is_seen = kind is not None and plans_for(viewer).filter(public_id=call.plan_ref).exists()
    return CallPlace(address if is_seen else "", is_direct=kind in (None, Plan.Kind.CALL))


def _name_steps(numbers: Sequence[int]) -> str:
    named, more = [str(number) for number in numbers[:MOST_SHOWN]], len(numbers) - MOST_SHOWN
    parts = [*named, _("%(count)s more") % {"count": more}] if more > 0 else named
    if len(parts) == 1:
        return _("Step %(number)s") % {"number": parts[0]}
    return _("Steps %(numbers)s and %(last)s") % {"numbers": ", ".join(parts[:-1]), "last": parts[-1]}


def _connected(start_step: Step | None, arrows: Iterable[tuple[int, int]], steps: Mapping[int, Step]) -> list[Step]:
    found = descendants(start_step.pk, arrows) if start_step else ()
    return sorted((steps[pk] for pk in found), key=lambda step: step.step_id)
