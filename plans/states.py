"""The states of plans and steps. Waiting and paused are overlays, never states; skipped is completed with a flag.

plan:  pending ──► in_progress ──► completed | failed | cancelled
          │             ▲                        │
          │             └────────────────────────┘  (retried)
          └──► cancelled
step:  pending ──► in_progress ──► completed | failed | cancelled
          │ ▲        │     ▲                     │        │
          │ │        └─────┘  (claimed again)    │        │
          │ └────────────────────────────────────┴────────┘  (retried)
          └──► cancelled | completed (skipped by a person)

What has ended may be retried: nothing of it goes on by itself. A cancelled plan, and its steps, stay as they are.
"""

from django.db import models


class PlanStatus(models.TextChoices):
    """Where a plan stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(models.TextChoices):
    """Where a step stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WaitingFor(models.TextChoices):
    """What a step that is in progress waits for."""

    APPROVAL = "approval"
    INPUT = "input"
    CALLS = "calls"
    RETRY = "retry"
    OUTCOME = "outcome"


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
"""The kind of error of a call of which a person said that it did not happen, or that it is asked for again."""


DRAFT_TOOL = "draft_plan"
