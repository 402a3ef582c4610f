"""Workers are stopped and replaced under load, as in an upgrade."""

from collections import Counter
from functools import partial
from signal import SIGTERM
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.audit.verification import verify
from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from plans.executor import heartbeats
from plans.models import Event, Plan, Step
from tests import counts
from tests.builders import assert_gapless, make_plan, step
from tests.chaos.serving import Serving
from tests.cluster.conftest import WORKER, Start, is_up
from tests.waiting import eventually

pytestmark = [pytest.mark.service, pytest.mark.nightly, pytest.mark.timeout(counts.seconds(900))]
WORKERS, ROUNDS = 2, counts.count(5, 2)
PLANS = 6
CHAIN = ("safe_work", "cautious_work", "dangerous_work", "cautious_work") * counts.count(6, 2)


def chain() -> list[dict[str, Any]]:
    """Return the documents of steps of every kind, each after the one before."""
    work = {"parameters": {"seconds": 0.15}}
    return [step(each, tool, dependencies=[each - 1] if each > 1 else [], **work) for each, tool in enumerate(CHAIN, 1)]


def approve_what_waits(by: User) -> None:
    """Approve every open request."""
    for request in ApprovalRequest.objects.filter(status=RequestStatus.PENDING):
        decide(request, by=by, decision=Decision(ReviewVerdict.APPROVE, request.digest))


def has_come_to(share: float, by: User) -> bool:
    """Approve open requests; say whether this share of all steps is completed."""
    approve_what_waits(by)
    return Step.objects.filter(status="completed").count() >= share * PLANS * len(CHAIN)


def are_up(new: list[Serving], by: User) -> bool:
    """Approve open requests; say whether the new processes are up."""
    approve_what_waits(by)
    return all(is_up(each) for each in new)


def test_restarts_one_after_another(start: Start, ada: User, rosa: User, record_property: counts.Report) -> None:
    """Nothing runs twice, no outcome is unknown, and every plan completes."""
    plans = [make_plan(ada, *chain()) for _ in range(PLANS)]
    workers = [start(WORKER) for _ in range(WORKERS)]
    for number in range(ROUNDS):
        new = [start(WORKER) for _ in range(WORKERS)]
        eventually(partial(are_up, new, rosa), seconds=200, what="the next workers")
        eventually(partial(has_come_to, number / ROUNDS / 2, rosa), seconds=200, what="some progress")
        assert all(each.end(SIGTERM) for each in workers)
        workers = new
    eventually(partial(has_come_to, 1.0, rosa), seconds=200, what="the end of all steps")
    eventually(lambda: not Plan.objects.exclude(status="completed").exists(), what="the end of all plans")
    marks = workers[0].marks()
    assert set(marks.values()) == {1}
    assert Counter(word for _, word in marks) == {"began": PLANS * len(CHAIN), "ended": PLANS * len(CHAIN)}
    assert not Event.objects.filter(type="step.outcome_unknown").exists()
    eventually(lambda: len(heartbeats.live_executors()) == len(workers), what="the rows of the live workers")
    assert verify().intact
    for plan in plans:
        assert_gapless(plan)
    counts.report(record_property, "workers told to stop", rounds=ROUNDS, plans=PLANS, steps=PLANS * len(CHAIN))
