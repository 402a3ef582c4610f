"""Steps whose tool is other code here than in the catalog: left to processes that have loaded what the catalog says.

Nobody knows whether there are any, so a step is left a few times, and then ended by whoever has it.
"""

from datetime import timedelta
from itertools import takewhile
from time import monotonic

from plans.models import Event
from plans.states import WaitingFor
from plans.store import statements
from plans.store.statements import Claimed, Parking
from plans.store.transactions import Recording

LEFT_AT_MOST = 5
DELAY_SECONDS = 1.0
HANDS_OFF_SECONDS = 3.0
"""How long this process wakes no plan that it has left; other processes look each second."""
DRIFTED = "drifted"

_left: dict[int, float] = {}


def leave(batch: Recording, step: Claimed) -> bool:
    """Let go of a claimed step, so that another process may take it; False when it was left often enough."""
    times = _times_left(batch.plan_pk, step.step_id)
    ready_at = batch.now + timedelta(seconds=DELAY_SECONDS)
    parking = Parking(WaitingFor.RETRY, step.call_pk, batch.now, ready_at)
    if times >= LEFT_AT_MOST or not statements.park_step(batch.cursor, step, parking):
        return False
    batch.add("step.retrying", step.step_id, attempt=times + 1, of=LEFT_AT_MOST, seconds=DELAY_SECONDS, error=DRIFTED)
    _forget_what_is_over()
    _left[batch.plan_pk] = monotonic() + HANDS_OFF_SECONDS
    return True


def _times_left(plan_pk: int, step_id: int) -> int:
    """Return how often a step was left since anything else came of it; that it began, and no more, is nothing else."""
    told = Event.objects.filter(plan_id=plan_pk, step_id=step_id).exclude(type="step.started").order_by("-seq")
    lately = told.values_list("type", "data")[:LEFT_AT_MOST]
    return sum(1 for _ in takewhile(lambda each: each[0] == "step.retrying" and f'"{DRIFTED}"' in each[1], lately))


def _forget_what_is_over() -> None:
    now = monotonic()
    for plan_pk, until in list(_left.items()):
        if until < now:
            _left.pop(plan_pk, None)


def is_left(plan_pk: int) -> bool:
    """Say whether this process has just left a step of the plan to others."""
    return monotonic() < _left.get(plan_pk, 0.0)
