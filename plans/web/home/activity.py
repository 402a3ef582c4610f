"""Plans on the home page: those that run now, and those that failed lately."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from catalog.access.roles import ADMINISTRATOR, OPERATOR, has_role
from catalog.core import clock
from plans.models import Plan, Step
from plans.states import PlanStatus, StepStatus
from plans.store.selectors import may_control, plans_for
from plans.web.plan_list import PlanRow, listed_plans, plan_rows

MOST_SHOWN = 5
RECENT = timedelta(days=7)
"""Age of the plans that are shown, by the time of their creation: as many and as old as the sidebar shows."""


@dataclass(frozen=True, slots=True)
class FailedPlan:
    """A failed plan and its first failed step (None if a deadline passed); `may_retry` for the viewer."""

    plan: Plan
    step: Step | None
    may_retry: bool


def running_rows(viewer: User) -> Sequence[PlanRow]:
    """Return the newest running plans that the viewer may see."""
    recent = listed_plans(viewer).filter(status=PlanStatus.IN_PROGRESS, created_at__gt=clock.now() - RECENT)
    return plan_rows(viewer, list(_narrow(recent, "paused_at")[:MOST_SHOWN]))


def _narrow(plans: QuerySet[Plan], *columns: str) -> QuerySet[Plan]:
    """Load these columns and those by which a plan is named and its owner is known."""
    named = ("public_id", "goal", "status", "author", "token__user")
    return plans.select_related(None).select_related("token").only(*named, *columns)


def as_running_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan of `running_rows` in the form of `plans.store.selectors.running_plans`."""
    status = "paused" if plan.paused_at else plan.status
    awaited: str | None = plan.awaited  # type: ignore[attr-defined] # annotated by listed_plans
    return {"id": plan.public_id, "goal": plan.goal, "status": status, "waiting_for": awaited or ""}


def failed_plans(viewer: User) -> Sequence[FailedPlan]:
    """Return the newest failed plans that the viewer may see."""
    failed = plans_for(viewer).filter(kind=Plan.Kind.PLAN, status=PlanStatus.FAILED)
    plans = list(_narrow(failed.filter(created_at__gt=clock.now() - RECENT), "completed_at")[:MOST_SHOWN])
    steps = Step.objects.filter(plan__in=plans, status=StepStatus.FAILED, parent=None).order_by("-step_id")
    first = {step.plan_id: step for step in steps.defer("parameters", "given_arguments")}
    may_write = has_role(viewer, OPERATOR, ADMINISTRATOR)
    return [FailedPlan(plan, first.get(plan.pk), may_write and may_control(viewer, None, plan)) for plan in plans]
