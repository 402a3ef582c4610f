"""The states of plans and steps and the moves between them; ARCHITECTURE.md has the diagrams.

Waiting and paused are not states. A retried plan's failed and cancelled steps become pending; a cancelled plan never
moves.
"""

from django.db import models


class PlanStatus(models.TextChoices):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(models.TextChoices):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WaitingFor(models.TextChoices):
    APPROVAL = "approval"
    INPUT = "input"
    CALLS = "calls"
    RETRY = "retry"
    OUTCOME = "outcome"
    CLIENT = "client"
    """The client may run the call, or runs it, and has not reported its end."""
    STOP = "stop"
    """A stop covers the step; it is ready again when the stop is lifted."""


PLAN_MOVES: dict[str, frozenset[str]] = {
    PlanStatus.PENDING: frozenset({PlanStatus.IN_PROGRESS, PlanStatus.CANCELLED}),
    PlanStatus.IN_PROGRESS: frozenset({PlanStatus.COMPLETED, PlanStatus.FAILED, PlanStatus.CANCELLED}),
    PlanStatus.COMPLETED: frozenset(),
    PlanStatus.FAILED: frozenset({PlanStatus.IN_PROGRESS}),
    PlanStatus.CANCELLED: frozenset(),
}
STEP_MOVES: dict[str, frozenset[str]] = {
    StepStatus.PENDING: frozenset({StepStatus.IN_PROGRESS, StepStatus.COMPLETED, StepStatus.CANCELLED}),
    StepStatus.IN_PROGRESS: frozenset(
        {StepStatus.IN_PROGRESS, StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.CANCELLED}
    ),
    StepStatus.FAILED: frozenset({StepStatus.PENDING}),
    StepStatus.COMPLETED: frozenset(),
    StepStatus.CANCELLED: frozenset({StepStatus.PENDING}),
}
PLAN_TERMINAL = frozenset({PlanStatus.COMPLETED, PlanStatus.FAILED, PlanStatus.CANCELLED})


SETTLED = "settled"
"""Error kind of a call whose unknown outcome a person settled as: did not happen, or request it again."""


DRAFT_TOOL = "draft_plan"
