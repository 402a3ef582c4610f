"""Steps that wait because too many requests wait for people already: put off in the database, woken when there is room.

A step that is put off is ready again in an hour by itself. The ticker looks each second whether there is room for the
oldest before: nothing is lost with a process, and nobody asks again and again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from approvals.requests.limits import Asking, TooManyWaiting, look_for_room, room_for, take_room
from catalog.core import clock
from plans import carriers
from plans.models import Step
from plans.states import StepStatus, WaitingFor
from plans.store import statements
from plans.store.statements import Parking
from plans.store.transactions import Recording
from plans.work import Hold, Order, PlanFacts

PUT_OFF = timedelta(hours=1)
LONGER_THAN_OTHERS = timedelta(minutes=2)
"""No other step waits this long for a retry; one that did would only be tried early."""
MOST_WOKEN = 100


@dataclass(frozen=True, slots=True)
class _PutOff:
    """One step that waits for room."""

    pk: int
    plan_pk: int
    asking: Asking


def asking_of(plan: PlanFacts, order: Order) -> Asking:
    """Return whose request a call of the plan would open."""
    asker = order.asker or plan.asker
    return Asking(asker.user_id, asker.token_id, plan.ref)


def lacks_room(batch: Recording, hold: Hold, *, exactly: bool = False) -> bool:
    """Put a claimed step off when no more requests may wait; say whether that was done.

    `exactly`: its request is opened in this very transaction, so that no other may take its place. What a grant may
    still start is not put off before that is known.
    """
    if hold.order.target.grant_limits is not None and not exactly:
        return False
    try:
        (take_room if exactly else look_for_room)(asking_of(hold.plan, hold.order))
    except TooManyWaiting as full:
        parking = Parking(WaitingFor.RETRY, hold.step.call_pk, batch.now, batch.now + PUT_OFF)
        if statements.park_step(batch.cursor, hold.step, parking):
            batch.add("step.retrying", hold.step.step_id, error=full.code)
        return True
    return False


def wake_where_there_is_room(now: datetime) -> int:
    """Make the oldest steps ready that wait for room, as many as there is; return how many."""
    room: dict[Asking, int] = {}
    woken: Counter[Asking] = Counter()
    requesters: Counter[int | None] = Counter()
    for step in _put_off(now):
        asking = step.asking
        if asking not in room:
            room[asking] = room_for(asking, MOST_WOKEN)
        if room[asking] > max(woken[asking], requesters[asking.user_id]) and _wake(step, now):
            woken[asking] += 1
            requesters[asking.user_id] += 1
            carriers.hint(step.plan_pk)
    return sum(woken.values())


def _put_off(now: datetime) -> list[_PutOff]:
    """Return the oldest steps that wait, each with who asks: for the call that it has or is to replace, or the plan."""
    whose = ("call__requested_by", "call__token"), ("retry_of__requested_by", "retry_of__token")
    author = Coalesce("plan__token__user", "plan__author")
    rows = (
        _waiting(now).order_by("id").values_list("pk", "plan", "plan__public_id", *chain(*whose), author, "plan__token")
    )
    return [_PutOff(pk, plan, _asking(ref, askers)) for pk, plan, ref, *askers in rows[:MOST_WOKEN]]


def _asking(plan_ref: str, askers: Sequence[int | None]) -> Asking:
    """Return who asks: the first person of these pairs of people and their tokens. As `asking_of` judges it."""
    pairs = zip(askers[::2], askers[1::2], strict=True)
    return Asking(*next((pair for pair in pairs if pair[0] is not None), (None, None)), plan_ref)


def _wake(step: _PutOff, now: datetime) -> bool:
    return bool(_waiting(now).filter(pk=step.pk).update(ready_at=clock.now()))


def _waiting(now: datetime) -> QuerySet[Step]:
    wait = {"status": StepStatus.IN_PROGRESS, "waiting_for": WaitingFor.RETRY, "lease_until": None}
    return Step.objects.filter(ready_at__gt=now + LONGER_THAN_OTHERS, plan__paused_at=None, **wait)
