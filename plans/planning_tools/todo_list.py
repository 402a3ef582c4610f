"""The to-do list of a session: its documents and the rules of each command, in the vocabulary of agents.

The rules are pure functions. A refused command raises ToolValidationError, whose message is sent to the model. Lists
are stored as plans; only `plans.sessions.lists` translates between the two vocabularies.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from catalog.errors import ToolValidationError

StepStatus = Literal["pending", "in_progress", "done"]
PlanStatus = Literal["active", "completed"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One item of the list."""

    step_id: int
    title: str
    status: StepStatus

    def render(self) -> str:
        """Return the step as text for the model."""
        return f"{self.step_id} [{self.status}] {self.title}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The list of a session; completed when every step is done."""

    objective: str
    status: PlanStatus
    steps: tuple[PlanStep, ...] = ()

    def render(self) -> str:
        """Return the plan as text for the model."""
        lines = "\n".join(step.render() for step in self.steps) or "<no steps>"
        return f"Objective: {self.objective}\nStatus: {self.status}\n\n{lines}"


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """Create the plan, or put another in its place."""

    objective: Annotated[str, Field(description="What is to be reached, in at most 500 characters.")]
    initial_steps: Annotated[
        tuple[str, ...], Field(description="The titles of the first steps, each at most 500 characters.")
    ] = ()


@dataclass(frozen=True, slots=True)
class AddStep:
    """Append steps to the plan."""

    steps: Annotated[tuple[str, ...], Field(description="The titles of the new steps, each at most 500 characters.")]


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """Change a step of the plan; what is left out stays."""

    step_id: Annotated[int, Field(description="The number of the step.")]
    title: Annotated[str | None, Field(description="The new title, at most 500 characters.")] = None
    status: Annotated[StepStatus | None, Field(description="The new status.")] = None


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Read the plan."""


Command = SetupPlan | AddStep | UpdateStep
"""The commands that change a plan."""


MAX_TEXT = 500
MAX_STEPS = 500


def carry_out(plan: Plan | None, command: Command) -> tuple[Plan, str]:
    """Return the plan after a command, and the message for the model. Raises ToolValidationError."""
    if isinstance(command, SetupPlan):
        objective = _text(command.objective, "Objective")
        steps = _numbered(command.initial_steps, first=1)
        return Plan(objective, "active", steps), f"Plan initialised with {_counted(len(steps))}."
    found = initialised(plan)
    if found.status != "active":
        raise ToolValidationError(f"Plan must be active. Current status: {found.status}.")
    if isinstance(command, AddStep):
        added = _numbered(command.steps, first=max((step.step_id for step in found.steps), default=0) + 1)
        if not added:
            raise ToolValidationError("Provide at least one step to add.")
        steps = _few_enough((*found.steps, *added))
        return replace(found, steps=steps), f"Added {_counted(len(added))}."
    title = None if command.title is None else _text(command.title, "Title")
    if title is None and command.status is None:
        raise ToolValidationError("Provide a new title or status to update a step.")
    old = next((step for step in found.steps if step.step_id == command.step_id), None)
    if old is None:
        raise ToolValidationError(f"Step {command.step_id} does not exist.")
    changed = replace(old, title=title or old.title, status=command.status or old.status)
    steps = tuple(changed if step is old else step for step in found.steps)
    is_done = all(step.status == "done" for step in steps)
    return replace(found, steps=steps, status="completed" if is_done else "active"), f"Step {old.step_id} updated."


def after(plan: Plan | None, command: Command) -> Plan:
    """Return the plan after a command. Used as the reducer of sessions. Raises ToolValidationError."""
    return carry_out(plan, command)[0]


def read(plan: Plan | None) -> tuple[Plan, str]:
    """Return the current plan and the message for the model. Raises ToolValidationError if there is none."""
    found = initialised(plan)
    if not found.steps:
        return found, "Retrieved the current plan (no steps recorded)."
    return found, f"Retrieved the current plan with {_counted(len(found.steps))}."


def initialised(plan: Plan | None) -> Plan:
    """Return the plan. Raises ToolValidationError if none was set up."""
    if plan is None:
        raise ToolValidationError("No plan is currently initialised.")
    return plan


def _numbered(titles: Iterable[str], *, first: int) -> tuple[PlanStep, ...]:
    texts = [_text(title, "Title") for title in titles]
    return _few_enough(tuple(PlanStep(number, text, "pending") for number, text in enumerate(texts, first)))


def _text(text: str, name: str) -> str:
    stripped = text.strip()
    if not stripped:
        raise ToolValidationError(f"{name} must not be empty.")
    if len(stripped) > MAX_TEXT:
        raise ToolValidationError(f"{name} must be <= {MAX_TEXT} characters.")
    return stripped


def _few_enough(steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
    if len(steps) > MAX_STEPS:
        raise ToolValidationError(f"A plan has at most {MAX_STEPS} steps.")
    return steps


def _counted(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"
