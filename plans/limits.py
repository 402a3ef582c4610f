"""Rate limits where calls are admitted: counted once per call, before it is stored, whether it starts or asks people.

Counting is a transaction of its own, outside of every plan's: callers of one group take turns at its count, and must
not hold a plan or the audit log meanwhile. Calls that are tried again, or asked about again, do not count again.
"""

from datetime import datetime, timedelta

from catalog.core import clock
from catalog.core.rate_limits import Ration, count_use, give_back_use
from catalog.errors import RateLimited
from catalog.models import ApiToken
from catalog.tools.registry import rates_for
from plans.states import WaitingFor
from plans.store import statements
from plans.store.requesters import Asker
from plans.store.statements import Claimed, Parking
from plans.store.transactions import Recording
from plans.work import Order, PlanFacts

WAITS_AT_MOST = 60
"""Seconds a step waits for its turn by itself; it is to fail when that is longer away."""


def is_limited(order: Order) -> bool:
    """Say whether the call must be counted before it is admitted."""
    tool = order.target.tool
    return bool(tool.rates) or (tool.rate_limit_key is not None and bool(rates_for(tool)))


def count(order: Order, plan: PlanFacts) -> datetime:
    """Count the call for who asks for it, and return when. Raises RateLimited."""
    now = clock.now()
    count_use(_ration(order, plan), now=now)
    return now


def give_back(order: Order, plan: PlanFacts, counted_at: datetime) -> None:
    """Take back the count of a call that is neither started nor held after all, and is counted again when it is."""
    give_back_use(_ration(order, plan), counted_at=counted_at)


def _ration(order: Order, plan: PlanFacts) -> Ration:
    tool = order.target.tool
    return Ration(tool.rate_group, rates_for(tool), _owner(order.asker or plan.asker))


def _owner(asker: Asker) -> str:
    """Name who is counted: an agent by its token, a person as one, whatever tokens of their own they make."""
    agents = ApiToken.objects.filter(kind=ApiToken.Kind.AGENT)
    is_agent = asker.token_id is not None and agents.filter(pk=asker.token_id).exists()
    return f"token:{asker.token_id}" if is_agent else f"user:{asker.user_id}"


def put_off(batch: Recording, step: Claimed, refusal: RateLimited) -> bool:
    """Let a step wait until its limit allows one more call; False, with nothing changed, when that is too long."""
    if refusal.retry_after > WAITS_AT_MOST:
        return False
    ready_at = batch.now + timedelta(seconds=refusal.retry_after)
    if statements.park_step(batch.cursor, step, Parking(WaitingFor.RETRY, step.call_pk, batch.now, ready_at)):
        batch.add("step.retrying", step.step_id, seconds=refusal.retry_after, error=refusal.code)
    return True
