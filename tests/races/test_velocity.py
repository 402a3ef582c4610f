"""Races of calls against the count of a rule that looks back: exactly as many pass as it lets through."""

from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, RecentCall
from catalog.core.transactions import retry_on_lock
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.store.requesters import Requester
from tests import counts
from tests.approvals.factories import add_policy
from tests.builders import act, make_plan, work_off
from tests.racing import rounds_at_once

pytestmark = [
    pytest.mark.db,
    pytest.mark.slow,
    pytest.mark.usefixtures("transactional_db", "trusted_for_long", "stage"),
    pytest.mark.timeout(counts.seconds(1800)),
]
ROUNDS = counts.count(500, 250)
CALLS, PASSING = 20, 10


@pytest.mark.parametrize("way", ["direct", "steps"])
def test_exactly_ten_of_twenty_calls_pass(way: str, ada: User, settings: Any, report_race: Any):
    """Each round has an argument of its own, by which its calls are counted; half of the rounds come as plans."""
    settings.TOOLGATE_MAX_PENDING_PER_PLAN = settings.TOOLGATE_MAX_PENDING_PER_TOKEN = 0
    add_policy(
        1,
        tool="cautious",
        recent={"count": PASSING + 1, "seconds": 3600, "by": "argument:value"},
        effect="hold",
        stages=[{"group": "reviewer", "count": 1}],
    )
    rounds: list[list[partial[Any]]]
    if way == "direct":
        order = partial(retry_on_lock(create_call), by=Requester(ada))  # a loaded database gives up waiting
        acts: list[partial[Any]] = [partial(order, CallOrder("cautious", {"value": n})) for n in range(ROUNDS)]
        rounds = [[each] * CALLS for each in acts]
    else:
        plans = [[make_plan(ada, act(1, n, "cautious")) for _ in range(CALLS)] for n in range(ROUNDS)]
        rounds = [[partial(work_off, plan) for plan in row] for row in plans]
    results = rounds_at_once(rounds)
    assert not [each for row in results for each in row if isinstance(each, Exception)]
    for number in range(ROUNDS):
        calls = Call.objects.filter(tool_name="cautious", arguments=f'{{"value":{number}}}')
        assert (calls.count(), calls.filter(status="held").count()) == (CALLS, CALLS - PASSING)
    assert ApprovalRequest.objects.count() == ROUNDS * (CALLS - PASSING)
    assert RecentCall.objects.count() == ROUNDS * CALLS
    report_race(f"velocity of {way}", rounds=ROUNDS, calls=CALLS)
