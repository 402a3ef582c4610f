"""How far plans have come: their steps by status, for many plans in one query. An agent's calls are not counted."""

from collections.abc import Iterable

from django.db.models import Count, Q

from plans.models import Plan, Step
from plans.states import StepStatus

COUNTS = {
    "steps": Q(),
    **{str(status): Q(status=status) for status in StepStatus.values},
    "waiting": Q(status=StepStatus.IN_PROGRESS) & ~Q(waiting_for=""),
    "skipped": Q(skipped=True),
}
NOTHING = dict.fromkeys(COUNTS, 0)


def counts_of(plans: Iterable[Plan]) -> dict[int, dict[str, int]]:
    """Return plan key → how many steps stand where; `waiting` is part of in_progress, `skipped` of completed."""
    keys = [plan.pk for plan in plans]
    counted = {name: Count("pk", filter=condition) for name, condition in COUNTS.items()}
    steps = Step.objects.filter(plan__in=keys, parent=None).order_by()
    rows = steps.values("plan_id").annotate(**counted).values("plan_id", *COUNTS)
    found = {row["plan_id"]: {name: row[name] for name in COUNTS} for row in rows}
    return dict.fromkeys(keys, NOTHING) | found
