"""Limits that make a step wait, or fail, for lack of capacity.

- Budget of a plan: calls started and seconds that its tools run, counted exactly on the plan's row. Calls that run at
  the same time may together exceed the seconds left.
- Concurrency: steps of one plan, and of one tool, that run at once; enforced across processes, 0 means no limit. A
  step runs while it has a lease. A tool's steps are counted under the single writer on SQLite, under the tool's
  advisory lock on PostgreSQL. That lock is only tried, never waited for, because the audit log's lock is held by then.
- Rate limits: counted once per call, before it is stored, in a separate transaction, because requesters of one group
  are serialized by its counter.
- Pending approval requests: a step that would exceed the limit waits in the database, for an hour or until the ticker
  finds a free slot.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.backends.utils import CursorWrapper
from django.db.models.functions import Coalesce

from approvals.requests.limits import RequesterScope, TooManyWaiting, check_pending_limit, free_slots, reserve_slot
from catalog.context import Budget
from catalog.core import clock
from catalog.core.database import bind_datetime
from catalog.core.locks import LockSpace, try_lock_until_commit
from catalog.core.rate_limits import RateLimitKey, acquire_use, release_use
from catalog.errors import RateLimited, ToolError
from catalog.models import ApiToken
from catalog.tools.registry import effective_rate_limits
from plans.engine import hints
from plans.engine.retries import retry_later
from plans.engine.work import HeldCall, PlanSnapshot, PreparedCall
from plans.models import Plan, Step
from plans.states import StepStatus, WaitingFor
from plans.store import statements
from plans.store.statements import ClaimedStep, Lease
from plans.store.transactions import PlanTransaction

SPEND_CALL = (
    "UPDATE plans_plan SET calls_used = calls_used + 1 WHERE id = %s "
    "AND (budget_calls IS NULL OR calls_used < budget_calls) "
    "AND (budget_seconds IS NULL OR seconds_used < budget_seconds) "
    "RETURNING budget_calls - calls_used, budget_seconds - seconds_used"
)
SPEND_SECONDS = "UPDATE plans_plan SET seconds_used = seconds_used + %s WHERE id = %s"
BUDGET_LEFT = "SELECT budget_calls, calls_used, budget_seconds, seconds_used FROM plans_plan WHERE id = %s"


class BudgetExceeded(ToolError):
    """The plan's budget is used up: no more calls start."""

    kind = "budget_exceeded"


def check_budget(cursor: CursorWrapper, plan: PlanSnapshot) -> None:
    """Check that one more call may start; the plan must be locked. Raises BudgetExceeded."""
    if not plan.has_budget:
        return
    cursor.execute(BUDGET_LEFT, [plan.pk])
    calls, calls_used, seconds, seconds_used = cursor.fetchone()
    if calls is not None and calls_used >= calls:
        raise BudgetExceeded(f"The plan's budget of {calls} call{'s' if calls > 1 else ''} is used up.")
    if seconds is not None and seconds_used >= seconds:
        raise BudgetExceeded(f"The plan's budget of {seconds} s is used up: its tools ran {seconds_used:.1f} s.")


def spend_call(cursor: CursorWrapper, plan: PlanSnapshot) -> Budget | None:
    """Count a started call and return the remaining budget, None without a budget. Raises BudgetExceeded."""
    if not plan.has_budget:
        return None
    cursor.execute(SPEND_CALL, [plan.pk])
    left = cursor.fetchone()
    if left is None:
        check_budget(cursor, plan)
    calls, seconds = left
    return Budget(calls=calls, seconds=seconds)


def spend_seconds(cursor: CursorWrapper, plan: PlanSnapshot, *, since: datetime | None, until: datetime) -> None:
    """Count the run time of a call that ended or whose worker was lost."""
    if plan.has_budget and since is not None:
        cursor.execute(SPEND_SECONDS, [max(0.0, (until - since).total_seconds()), plan.pk])


def is_budget_used_up(plan: Plan) -> bool:
    out_of_calls = plan.budget_calls is not None and plan.calls_used >= plan.budget_calls
    return out_of_calls or (plan.budget_seconds is not None and plan.seconds_used >= plan.budget_seconds)


def budget_text(plan: Plan) -> str:
    """Return the used part of a plan's budget for people; empty for a plan without a budget."""
    parts = []
    if plan.budget_calls is not None:
        parts.append(f"{plan.calls_used} of {plan.budget_calls} calls")
    if plan.budget_seconds is not None:
        parts.append(f"{plan.seconds_used:.1f} of {plan.budget_seconds} s")
    return " and ".join(parts) + " used" if parts else ""


EVERY_TOOL = "*"
"""Name of the default limit in the setting."""
MAX_WOKEN_PLANS = 3
"""Waiting plans hinted when a step of a limited tool ends; more than one, as a plan may be at its own limit."""


def _tool_limits() -> Mapping[str, int]:
    limits: Mapping[str, int] = settings.TOOLGATE_MAX_RUNNING_PER_TOOL
    return limits


def tool_limit(name: str) -> int:
    """Return how many calls of the tool may run at once; 0 means no limit."""
    limits = _tool_limits()
    return limits.get(name, limits.get(EVERY_TOOL, 0)) if limits and name else 0


def claim_within_limits(cursor: CursorWrapper, plan_pk: int, lease: Lease) -> ClaimedStep | None:
    """Claim the plan's next ready step that is within the limits, or return None."""
    if not _tool_limits():
        return statements.claim_next(cursor, plan_pk, lease)
    passed_over = _full_tools(cursor)
    while True:
        names = sorted(passed_over)
        skipped = f" AND tool NOT IN ({', '.join(['%s'] * len(names))})" if names else ""
        cursor.execute(
            f"SELECT id, tool FROM plans_step WHERE plan_id = %s AND ready_at <= %s{skipped} ORDER BY id LIMIT 1",
            [plan_pk, bind_datetime(lease.now), *names],
        )
        candidate = cursor.fetchone()
        if candidate is None:
            return None
        step_pk, tool = candidate
        # The lock's holder is claiming now; if nothing else is ready, the ticker checks this plan within a second.
        if tool_limit(tool) and (not try_lock_until_commit(LockSpace.TOOL, tool) or tool in _full_tools(cursor)):
            passed_over |= {tool}
        else:
            return None if plan_is_full(cursor, plan_pk) else statements.claim_step(cursor, step_pk, lease)


def _full_tools(cursor: CursorWrapper) -> set[str]:
    cursor.execute("SELECT tool, COUNT(*) FROM plans_step WHERE lease_until IS NOT NULL GROUP BY tool")
    return {tool for tool, count in cursor.fetchall() if 0 < tool_limit(tool) <= count}


def plan_is_full(cursor: CursorWrapper, plan_pk: int) -> bool:
    """Return whether the plan has reached its limit of running steps; the plan must be locked."""
    most = settings.TOOLGATE_MAX_RUNNING_PER_PLAN
    if not most:
        return False
    cursor.execute("SELECT COUNT(*) FROM plans_step WHERE plan_id = %s AND lease_until IS NOT NULL", [plan_pk])
    return bool(cursor.fetchone()[0] >= most)


def can_start_now(cursor: CursorWrapper, tool: str, plan_pk: int, *, joins: bool) -> bool:
    """Return whether a direct call may start when it is stored: its tool has no limit and its plan has room.

    Otherwise the call is claimed later like any step. `joins` says that the plan has other steps.
    """
    return not tool_limit(tool) and not (joins and plan_is_full(cursor, plan_pk))


def wake_others(cursor: CursorWrapper, tool: str, plan_pk: int, *, now: datetime) -> None:
    """After a call of a limited tool has ended, hint at other plans that wait for the tool, oldest steps first."""
    if not tool_limit(tool):
        return
    cursor.execute(
        "SELECT plan_id FROM plans_step WHERE tool = %s AND ready_at <= %s AND plan_id <> %s "
        f"AND {statements.NOT_PAUSED} GROUP BY plan_id ORDER BY MIN(ready_at), plan_id LIMIT %s",
        [tool, bind_datetime(now), plan_pk, MAX_WOKEN_PLANS],
    )
    others = [other for (other,) in cursor.fetchall()]

    def hint_plans() -> None:
        for other in others:
            hints.hint(other)

    if others:  # after commit: a hint's row inside the transaction would break the lock order with the audit log
        transaction.on_commit(hint_plans, robust=True)


MAX_RATE_WAIT_SECONDS = 60
"""Longest time in seconds that a step waits for a rate limit; it fails if the wait would be longer."""


def is_rate_limited(prepared: PreparedCall) -> bool:
    """Return whether the call must be counted before it is admitted."""
    tool = prepared.target.tool
    return bool(tool.rates) or (tool.rate_limit_key is not None and bool(effective_rate_limits(tool)))


def count_call(prepared: PreparedCall, plan: PlanSnapshot) -> datetime:
    """Count the call for its requester and return the time. Raises RateLimited."""
    now = clock.now()
    acquire_use(_rate_limit_of(prepared, plan), now=now)
    return now


def give_back_count(prepared: PreparedCall, plan: PlanSnapshot, counted_at: datetime) -> None:
    """Take back the count of a call that was neither started nor held; it is counted again later."""
    release_use(_rate_limit_of(prepared, plan), counted_at=counted_at)


def _rate_limit_of(prepared: PreparedCall, plan: PlanSnapshot) -> RateLimitKey:
    """Return the key to count by: an agent's token, or the person, whichever of their tokens they use."""
    tool, asker = prepared.target.tool, prepared.asker or plan.asker
    agents = ApiToken.objects.filter(kind=ApiToken.Kind.AGENT)
    is_agent = asker.token_id is not None and agents.filter(pk=asker.token_id).exists()
    requester = f"token:{asker.token_id}" if is_agent else f"user:{asker.user_id}"
    return RateLimitKey(tool.rate_group, effective_rate_limits(tool), requester)


def wait_for_rate_limit(tx: PlanTransaction, step: ClaimedStep, rate_limited: RateLimited) -> bool:
    """Let a step wait until its limit allows one more call; return False without a change if that takes too long."""
    if rate_limited.retry_after > MAX_RATE_WAIT_SECONDS:
        return False
    until = tx.now + timedelta(seconds=rate_limited.retry_after)
    retry_later(tx, step, until, seconds=rate_limited.retry_after, error=rate_limited.code)
    return True


DEFER_DELAY = timedelta(hours=1)
LONGER_THAN_ANY_RETRY = timedelta(minutes=2)
"""Longer than any other wait for a retry, so that deferred steps can be told apart from retried ones."""
MAX_WOKEN_STEPS = 100


def request_owner(plan: PlanSnapshot, prepared: PreparedCall) -> RequesterScope:
    """Return the requester whose pending requests are counted for a call of the plan."""
    asker = prepared.asker or plan.asker
    return RequesterScope(asker.user_id, asker.token_id, plan.ref)


def defer_if_queue_full(tx: PlanTransaction, held_call: HeldCall, *, exactly: bool = False) -> bool:
    """Defer a claimed step if the limit of pending requests is reached; return whether it was deferred.

    `exactly` says that the request is opened in this transaction; its slot is then reserved. Without it, the caller has
    found that neither a grant nor an envelope might start the call.
    """
    try:
        (reserve_slot if exactly else check_pending_limit)(request_owner(held_call.plan, held_call.prepared))
    except TooManyWaiting as full:
        retry_later(tx, held_call.step, tx.now + DEFER_DELAY, error=full.code)
        return True
    return False


def wake_deferred_steps(now: datetime) -> int:
    """Make the oldest deferred steps ready, as many as there are free slots; return their number."""
    waits = {"status": StepStatus.IN_PROGRESS, "waiting_for": WaitingFor.RETRY, "lease_until": None}
    deferred = Step.objects.filter(ready_at__gt=now + LONGER_THAN_ANY_RETRY, plan__paused_at=None, **waits)
    # Counted like in `request_owner`: the requester of the step's call, of the call it replaces, or of the plan.
    askers = ("call__requested_by", "call__token", "retry_of__requested_by", "retry_of__token")
    author = Coalesce("plan__token__user", "plan__author")
    rows = deferred.order_by("id").values_list("pk", "plan", "plan__public_id", *askers, author, "plan__token")
    room: dict[RequesterScope, int] = {}
    woken: Counter[RequesterScope] = Counter()
    requesters: Counter[int | None] = Counter()
    for pk, plan_pk, plan_ref, *ids in list(rows[:MAX_WOKEN_STEPS]):
        pairs = zip(ids[::2], ids[1::2], strict=True)
        user_id, token_id = next((pair for pair in pairs if pair[0] is not None), (None, None))
        scope = RequesterScope(user_id, token_id, plan_ref)
        if scope not in room:
            room[scope] = free_slots(scope, MAX_WOKEN_STEPS)
        is_free = room[scope] > max(woken[scope], requesters[scope.user_id])
        if is_free and deferred.filter(pk=pk).update(ready_at=clock.now()):
            woken[scope] += 1
            requesters[scope.user_id] += 1
            hints.hint(plan_pk)
    return sum(woken.values())
