"""What the planning tools take and give: the list of a session, in the words of agents.

A session's list is stored as a plan; only `plans.sessions` knows both vocabularies.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

StepStatus = Literal["pending", "in_progress", "done"]
PlanStatus = Literal["active", "completed"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One thing to do."""

    step_id: int
    title: str
    status: StepStatus

    def render(self) -> str:
        """Return the step as a model reads it."""
        return f"{self.step_id} [{self.status}] {self.title}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The list of a session: completed once every step is done."""

    objective: str
    status: PlanStatus
    steps: tuple[PlanStep, ...] = ()

    def render(self) -> str:
        """Return the plan as a model reads it."""
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
"""What changes a plan."""
