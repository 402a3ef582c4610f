"""Agents' steps with what they ask and call: in which order they are shown, and what is said of an agent that waits."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from catalog.ui.labels import Word, status_word
from plans.models import AGENT_TURN, Step
from plans.states import StepStatus, WaitingFor

FOR_PEOPLE = (WaitingFor.OUTCOME, WaitingFor.INPUT, WaitingFor.APPROVAL)
UNSETTLED = (StepStatus.PENDING, StepStatus.IN_PROGRESS)


@dataclass(slots=True)
class Family:
    """The steps of a plan, in their order, as parents and children."""

    steps: Sequence[Step]
    _children: Mapping[int, list[Step]] = field(init=False)
    _numbers: Mapping[int, int] = field(init=False)
    _next: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        children: dict[int, list[Step]] = defaultdict(list)
        for step in self.steps:
            if step.parent_id is not None:
                children[step.parent_id].append(step)
        self._children, self._numbers = children, {step.pk: step.step_id for step in self.steps}
        written = [step for step in self.steps if step.parent_id is None]
        self._next = {step.pk: after.step_id for step, after in pairwise(written)}

    def in_order(self) -> Iterator[Step]:
        """Yield each step of the plan as it was written, and after an agent's what the agent called."""
        for step in self.steps:
            if step.parent_id is None:
                yield step
                yield from self.under(step)

    def under(self, step: Step) -> Sequence[Step]:
        """Return what the agent of a step asked and called."""
        return self._children.get(step.pk, ())

    def parent(self, step: Step) -> int | None:
        """Return the number of the step whose agent has this one."""
        return self._numbers.get(step.parent_id) if step.parent_id is not None else None

    def before(self, step: Step) -> int | None:
        """Return the number of the written step before which an agent's call is shown; None: at the end."""
        return self._next.get(step.parent_id) if step.parent_id is not None else None


def _waited_for(step: Step, under: Sequence[Step]) -> Sequence[Step]:
    waits = step.status == StepStatus.IN_PROGRESS and step.waiting_for == WaitingFor.CALLS
    return [each for each in under if each.status in UNSETTLED] if waits else []


def awaited_word(step: Step, under: Sequence[Step]) -> Word | None:
    """Return what is said of an agent's step of whose calls one waits for people; None where none does."""
    people = [each.waiting_for for each in _waited_for(step, under) if each.waiting_for and each.ready_at is None]
    return next((status_word(step.status, each.value) for each in FOR_PEOPLE if each in people), None)


def awaited_label(step: Step, under: Sequence[Step]) -> str:
    """Say what an agent's step waits for: its model, or so many calls; empty for any other step."""
    waited_for = _waited_for(step, under)
    if not waited_for:
        return ""
    if any(each.tool == AGENT_TURN for each in waited_for):
        return "Asks its model"
    count = len(waited_for)
    return "Waits for a call" if count == 1 else f"Waits for {count} calls"
