"""Secrets that outlived what they were given for: a process may have died, or a step ended on a rare way.

Everything here repeats what the ends of calls and plans do by themselves. Asked each second; the table is all but
empty, as it holds only what waits or runs.
"""

from django.db.models import CharField, Exists, OuterRef
from django.db.models.functions import Cast

from catalog.models import CallSecret
from plans.models import Plan, Step
from plans.states import PLAN_TERMINAL, StepStatus

MOST = 500
OVER = (StepStatus.COMPLETED, StepStatus.CANCELLED)


def forget_secrets() -> int:
    """Delete the secrets of plans that have ended and of steps that are completed or cancelled; return how many."""
    if not CallSecret.objects.exists():
        return 0
    ended = CallSecret.objects.filter(
        Exists(Plan.objects.filter(public_id=OuterRef("plan_ref"), status__in=PLAN_TERMINAL))
    )
    steps = Step.objects.annotate(ref=Cast("step_id", CharField())).filter(status__in=OVER)
    over = CallSecret.objects.filter(
        Exists(steps.filter(plan__public_id=OuterRef("plan_ref"), ref=OuterRef("step_ref")))
    )
    found = [*ended.values_list("pk", flat=True)[:MOST], *over.values_list("pk", flat=True)[:MOST]]
    deleted, _ = CallSecret.objects.filter(pk__in=found).delete() if found else (0, {})
    return deleted
