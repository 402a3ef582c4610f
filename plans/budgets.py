"""What a plan may spend: calls that are started, and seconds that its tools run. Counted on the plan's row, exactly.

Every start counts, also one more try, unless the call is put back before its handler begins. A call is given no more
time than is left; calls that run at the same time may together run longer than that. A plan without a budget pays
nothing for this.
"""

from datetime import datetime

from django.db.backends.utils import CursorWrapper

from catalog.context import Budget
from catalog.errors import ToolError
from plans.models import Plan
from plans.work import PlanFacts

SPEND_CALL = (
    "UPDATE plans_plan SET calls_used = calls_used + 1 WHERE id = %s "
    "RETURNING budget_calls - calls_used, budget_seconds - seconds_used"
)
GIVE_BACK_CALL = "UPDATE plans_plan SET calls_used = calls_used - 1 WHERE id = %s AND calls_used > 0"
SPEND_SECONDS = "UPDATE plans_plan SET seconds_used = seconds_used + %s WHERE id = %s"
LEFT = "SELECT budget_calls, calls_used, budget_seconds, seconds_used FROM plans_plan WHERE id = %s"


class BudgetExceeded(ToolError):
    """The plan has spent what it may: nothing in it starts any more."""

    kind = "budget_exceeded"


def check(cursor: CursorWrapper, plan: PlanFacts) -> None:
    """See that one more call may start; the plan is locked. Raises BudgetExceeded."""
    if not plan.has_budget:
        return
    cursor.execute(LEFT, [plan.pk])
    calls, calls_used, seconds, seconds_used = cursor.fetchone()
    if calls is not None and calls_used >= calls:
        raise BudgetExceeded(f"The plan's budget of {calls} call{'s' if calls > 1 else ''} is used up.")
    if seconds is not None and seconds_used >= seconds:
        raise BudgetExceeded(f"The plan's budget of {seconds} s is used up: its tools ran {seconds_used:.1f} s.")


def spend_call(cursor: CursorWrapper, plan: PlanFacts) -> Budget | None:
    """Count a call that starts, in the recording in which `check` let it; return what is left, None: no budget."""
    if not plan.has_budget:
        return None
    cursor.execute(SPEND_CALL, [plan.pk])
    calls, seconds = cursor.fetchone()
    return Budget(calls=calls, seconds=seconds)


def give_back_call(cursor: CursorWrapper, plan: PlanFacts) -> None:
    """Take back the count of a start whose handler has not begun, in the recording that makes the call ready again."""
    if plan.has_budget:
        cursor.execute(GIVE_BACK_CALL, [plan.pk])


def spend_seconds(cursor: CursorWrapper, plan: PlanFacts, *, since: datetime | None, until: datetime) -> None:
    """Count the time of a call that has ended, or whose worker was lost."""
    if plan.has_budget and since is not None:
        cursor.execute(SPEND_SECONDS, [max(0.0, (until - since).total_seconds()), plan.pk])


def is_used_up(plan: Plan) -> bool:
    """Say whether a stored plan may start no more calls."""
    out_of_calls = plan.budget_calls is not None and plan.calls_used >= plan.budget_calls
    return out_of_calls or (plan.budget_seconds is not None and plan.seconds_used >= plan.budget_seconds)


def say_spent(plan: Plan) -> str:
    """Say what a plan has spent of its budget; empty for a plan without one."""
    parts = []
    if plan.budget_calls is not None:
        parts.append(f"{plan.calls_used} of {plan.budget_calls} calls")
    if plan.budget_seconds is not None:
        parts.append(f"{plan.seconds_used:.1f} of {plan.budget_seconds} s")
    return " and ".join(parts) + " used" if parts else ""
