"""Everything that makes a step wait for capacity, or ends it for lack of it.

- The budget of a plan: calls that are started, and seconds that its tools run, counted exactly on the plan's row. Calls
  that run at the same time may together run longer than what is left.
- Concurrency: how many steps of one plan, and of one tool, run at once; both hold across processes, 0 means no limit. A
  step runs while it is under a lease. On SQLite the one writer counts a tool's steps, on PostgreSQL the holder of the
  tool's advisory lock. Nobody waits for that lock, because it is taken after the audit log's.
- Rate limits: counted once per call, before it is stored, in a transaction outside of every plan's, because callers of
  one group take turns at its count.
- Pending approval requests: a step that would open one too many waits in the database, for an hour or until the ticker
  finds that there is room.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from django.conf import settings
from django.db import transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from approvals.requests.limits import RequesterScope, TooManyWaiting, check_pending_limit, free_slots, reserve_slot
from catalog.context import Budget
from catalog.core import clock
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
from plans.store.database import bind_datetime, on_sqlite
from plans.store.requesters import RequesterIds
from plans.store.statements import ClaimedStep, Lease
from plans.store.transactions import PlanTransaction

SPEND_CALL = (
    "UPDATE plans_plan SET calls_used = calls_used + 1 WHERE id = %s "
    "RETURNING budget_calls - calls_used, budget_seconds - seconds_used"
)
SPEND_SECONDS = "UPDATE plans_plan SET seconds_used = seconds_used + %s WHERE id = %s"
BUDGET_LEFT = "SELECT budget_calls, calls_used, budget_seconds, seconds_used FROM plans_plan WHERE id = %s"


class BudgetExceeded(ToolError):
    """The plan has spent what it may: nothing in it starts any more."""

    kind = "budget_exceeded"


def check_budget(cursor: CursorWrapper, plan: PlanSnapshot) -> None:
    """See that one more call may start; the plan is locked. Raises BudgetExceeded."""
    if not plan.has_budget:
        return
    cursor.execute(BUDGET_LEFT, [plan.pk])
    calls, calls_used, seconds, seconds_used = cursor.fetchone()
    if calls is not None and calls_used >= calls:
        raise BudgetExceeded(f"The plan's budget of {calls} call{'s' if calls > 1 else ''} is used up.")
    if seconds is not None and seconds_used >= seconds:
        raise BudgetExceeded(f"The plan's budget of {seconds} s is used up: its tools ran {seconds_used:.1f} s.")


def spend_call(cursor: CursorWrapper, plan: PlanSnapshot) -> Budget | None:
    """Count a call that starts, in the transaction in which `check` let it; return what is left, None: no budget."""
    if not plan.has_budget:
        return None
    cursor.execute(SPEND_CALL, [plan.pk])
    calls, seconds = cursor.fetchone()
    return Budget(calls=calls, seconds=seconds)


def spend_seconds(cursor: CursorWrapper, plan: PlanSnapshot, *, since: datetime | None, until: datetime) -> None:
    """Count the time of a call that has ended, or whose worker was lost."""
    if plan.has_budget and since is not None:
        cursor.execute(SPEND_SECONDS, [max(0.0, (until - since).total_seconds()), plan.pk])


def is_budget_used_up(plan: Plan) -> bool:
    """Say whether a stored plan may start no more calls."""
    out_of_calls = plan.budget_calls is not None and plan.calls_used >= plan.budget_calls
    return out_of_calls or (plan.budget_seconds is not None and plan.seconds_used >= plan.budget_seconds)


def budget_text(plan: Plan) -> str:
    """Say what a plan has spent of its budget; empty for a plan without one."""
    parts = []
    if plan.budget_calls is not None:
        parts.append(f"{plan.calls_used} of {plan.budget_calls} calls")
    if plan.budget_seconds is not None:
        parts.append(f"{plan.seconds_used:.1f} of {plan.budget_seconds} s")
    return " and ".join(parts) + " used" if parts else ""


EVERY_TOOL = "*"
"""The name under which the settings keep the limit of tools that have none of their own."""
MAX_WOKEN_PLANS = 3
"""Plans that are told when a step of a tool with a limit has ended: the first of them may be at limits of its own."""
TOOL_LOCK_SPACE = 8_041
"""The first half of the keys of PostgreSQL's advisory locks; the second is the tool's name, hashed."""


def _tool_limits() -> Mapping[str, int]:
    limits: Mapping[str, int] = settings.TOOLGATE_MAX_RUNNING_PER_TOOL
    return limits


def tool_limit(name: str) -> int:
    """Return how many calls of the tool may run at once; 0: as many as there are threads."""
    limits = _tool_limits()
    return limits.get(name, limits.get(EVERY_TOOL, 0)) if limits and name else 0


def claim_within_limits(cursor: CursorWrapper, plan_pk: int, lease: Lease) -> ClaimedStep | None:
    """Claim the plan's next ready step that no limit keeps back; None when there is none."""
    if not _tool_limits():
        return statements.claim_next(cursor, plan_pk, lease)
    passed_over = _full_tools(cursor)
    while candidate := _candidate(cursor, plan_pk, lease.now, passed_over):
        step_pk, tool = candidate
        # Whoever has the lock claims now; if nothing else is ready, the ticker looks at this plan within a second.
        if tool_limit(tool) and (not _try_lock(cursor, tool) or tool in _full_tools(cursor)):
            passed_over |= {tool}
            continue
        return None if plan_is_full(cursor, plan_pk) else statements.claim_step(cursor, step_pk, lease)
    return None


def _candidate(cursor: CursorWrapper, plan_pk: int, now: datetime, without: Set[str]) -> tuple[int, str] | None:
    names = sorted(without)
    skipped = f" AND tool NOT IN ({', '.join(['%s'] * len(names))})" if names else ""
    cursor.execute(
        f"SELECT id, tool FROM plans_step WHERE plan_id = %s AND ready_at <= %s{skipped} ORDER BY id LIMIT 1",
        [plan_pk, bind_datetime(now), *names],
    )
    row: tuple[int, str] | None = cursor.fetchone()
    return row


def _full_tools(cursor: CursorWrapper) -> set[str]:
    """Return the tools of which as many calls run as may."""
    cursor.execute("SELECT tool, COUNT(*) FROM plans_step WHERE lease_until IS NOT NULL GROUP BY tool")
    return {tool for tool, count in cursor.fetchall() if 0 < tool_limit(tool) <= count}


def _try_lock(cursor: CursorWrapper, tool: str) -> bool:
    """Take the tool's lock until the transaction ends; False when someone else is claiming one of its steps."""
    if on_sqlite():
        return True
    cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [TOOL_LOCK_SPACE, tool])
    [taken] = cursor.fetchone()
    return bool(taken)


def plan_is_full(cursor: CursorWrapper, plan_pk: int) -> bool:
    """Say whether as many steps of the plan run as may; the plan is locked."""
    most = settings.TOOLGATE_MAX_RUNNING_PER_PLAN
    if not most:
        return False
    cursor.execute("SELECT COUNT(*) FROM plans_step WHERE plan_id = %s AND lease_until IS NOT NULL", [plan_pk])
    return bool(cursor.fetchone()[0] >= most)


def can_start_now(cursor: CursorWrapper, tool: str, plan_pk: int, *, joins: bool) -> bool:
    """Say whether a direct call may start where it is stored: no limit of its tool is to be counted, its plan has room.

    Any other is claimed as every step is. `joins` says that the plan has other steps.
    """
    return not tool_limit(tool) and not (joins and plan_is_full(cursor, plan_pk))


def wake_others(cursor: CursorWrapper, tool: str, plan_pk: int, *, now: datetime) -> None:
    """Tell other plans that wait for a tool with a limit that one of its calls has ended: the oldest steps first."""
    if not tool_limit(tool):
        return
    cursor.execute(
        "SELECT plan_id FROM plans_step WHERE tool = %s AND ready_at <= %s AND plan_id <> %s "
        f"AND {statements.NOT_PAUSED} GROUP BY plan_id ORDER BY MIN(ready_at), plan_id LIMIT %s",
        [tool, bind_datetime(now), plan_pk, MAX_WOKEN_PLANS],
    )
    others = [other for (other,) in cursor.fetchall()]
    if others:
        transaction.on_commit(lambda: _hint_plans(others), robust=True)


def _hint_plans(plan_pks: list[int]) -> None:
    """Hint at plans of others once their call's end is committed: a hint's row in it would come after the audit log."""
    for plan_pk in plan_pks:
        hints.hint(plan_pk)


MAX_RATE_WAIT_SECONDS = 60
"""Seconds a step waits for its turn by itself; it is to fail when that is longer away."""


def is_rate_limited(order: PreparedCall) -> bool:
    """Say whether the call must be counted before it is admitted."""
    tool = order.target.tool
    return bool(tool.rates) or (tool.rate_limit_key is not None and bool(effective_rate_limits(tool)))


def count_call(order: PreparedCall, plan: PlanSnapshot) -> datetime:
    """Count the call for who asks for it, and return when. Raises RateLimited."""
    now = clock.now()
    acquire_use(_rate_limit_of(order, plan), now=now)
    return now


def give_back_count(order: PreparedCall, plan: PlanSnapshot, counted_at: datetime) -> None:
    """Take back the count of a call that is neither started nor held after all, and is counted again when it is."""
    release_use(_rate_limit_of(order, plan), counted_at=counted_at)


def _rate_limit_of(order: PreparedCall, plan: PlanSnapshot) -> RateLimitKey:
    tool = order.target.tool
    return RateLimitKey(tool.rate_group, effective_rate_limits(tool), _rate_limit_key(order.asker or plan.asker))


def _rate_limit_key(asker: RequesterIds) -> str:
    """Name who is counted: an agent by its token, a person as one, whatever tokens of their own they make."""
    agents = ApiToken.objects.filter(kind=ApiToken.Kind.AGENT)
    is_agent = asker.token_id is not None and agents.filter(pk=asker.token_id).exists()
    return f"token:{asker.token_id}" if is_agent else f"user:{asker.user_id}"


def wait_for_rate_limit(tx: PlanTransaction, step: ClaimedStep, refusal: RateLimited) -> bool:
    """Let a step wait until its limit allows one more call; False, with nothing changed, when that is too long."""
    if refusal.retry_after > MAX_RATE_WAIT_SECONDS:
        return False
    until = tx.now + timedelta(seconds=refusal.retry_after)
    retry_later(tx, step, until, seconds=refusal.retry_after, error=refusal.code)
    return True


DEFER_DELAY = timedelta(hours=1)
LONGER_THAN_ANY_RETRY = timedelta(minutes=2)
"""No other step waits this long for a retry; one that did would only be tried early."""
MAX_WOKEN_STEPS = 100


@dataclass(frozen=True, slots=True)
class _DeferredStep:
    """One step that waits for room."""

    pk: int
    plan_pk: int
    asking: RequesterScope


def request_owner(plan: PlanSnapshot, order: PreparedCall) -> RequesterScope:
    """Return whose request a call of the plan would open."""
    asker = order.asker or plan.asker
    return RequesterScope(asker.user_id, asker.token_id, plan.ref)


def defer_if_queue_full(tx: PlanTransaction, hold: HeldCall, *, exactly: bool = False) -> bool:
    """Put a claimed step off when no more requests may wait; say whether that was done.

    `exactly`: its request is opened in this very transaction, so that no other may take its place. What a grant may
    still start is not put off before that is known.
    """
    if hold.order.target.grant_limits is not None and not exactly:
        return False
    try:
        (reserve_slot if exactly else check_pending_limit)(request_owner(hold.plan, hold.order))
    except TooManyWaiting as full:
        retry_later(tx, hold.step, tx.now + DEFER_DELAY, error=full.code)
        return True
    return False


def wake_deferred_steps(now: datetime) -> int:
    """Make the oldest steps ready that wait for room, as many as there is; return how many."""
    room: dict[RequesterScope, int] = {}
    woken: Counter[RequesterScope] = Counter()
    requesters: Counter[int | None] = Counter()
    for step in _deferred_steps(now):
        asking = step.asking
        if asking not in room:
            room[asking] = free_slots(asking, MAX_WOKEN_STEPS)
        if room[asking] > max(woken[asking], requesters[asking.user_id]) and _wake_step(step, now):
            woken[asking] += 1
            requesters[asking.user_id] += 1
            hints.hint(step.plan_pk)
    return sum(woken.values())


def _deferred_steps(now: datetime) -> list[_DeferredStep]:
    """Return the oldest steps that wait, each with who asks: for the call that it has or is to replace, or the plan."""
    whose = ("call__requested_by", "call__token"), ("retry_of__requested_by", "retry_of__token")
    author = Coalesce("plan__token__user", "plan__author")
    rows = (
        _steps_waiting_for_queue(now)
        .order_by("id")
        .values_list("pk", "plan", "plan__public_id", *chain(*whose), author, "plan__token")
    )
    return [
        _DeferredStep(pk, plan, _owner_of_deferred(ref, askers)) for pk, plan, ref, *askers in rows[:MAX_WOKEN_STEPS]
    ]


def _owner_of_deferred(plan_ref: str, askers: Sequence[int | None]) -> RequesterScope:
    """Return who asks: the first person of these pairs of people and their tokens. As `request_owner` judges it."""
    pairs = zip(askers[::2], askers[1::2], strict=True)
    return RequesterScope(*next((pair for pair in pairs if pair[0] is not None), (None, None)), plan_ref)


def _wake_step(step: _DeferredStep, now: datetime) -> bool:
    return bool(_steps_waiting_for_queue(now).filter(pk=step.pk).update(ready_at=clock.now()))


def _steps_waiting_for_queue(now: datetime) -> QuerySet[Step]:
    wait = {"status": StepStatus.IN_PROGRESS, "waiting_for": WaitingFor.RETRY, "lease_until": None}
    return Step.objects.filter(ready_at__gt=now + LONGER_THAN_ANY_RETRY, plan__paused_at=None, **wait)
