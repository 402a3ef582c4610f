"""`kill -9` of processes: no effect twice, no acknowledged write lost, nothing stuck or half done."""

from typing import NamedTuple

import pytest
from django.conf import settings
from django.db.models import Q

from approvals.models import ApprovalRequest
from approvals.reviews.decisions import Decision, decide
from approvals.states import RequestStatus, ReviewVerdict
from plans.states import WaitingFor
from tests import counts
from tests.builders import call_of, make_plan, step, step_of
from tests.chaos.cluster import COMMANDS, ENVIRONMENT
from tests.chaos.loop import QUIET_SECONDS, Killer, work_while
from tests.chaos.serving import SERVE, Serving
from tests.chaos.verdicts import assert_nothing_is_wrong
from tests.waiting import eventually

KILLS, PLANS = counts.count(200, 25), counts.count(500, 25)
CLUSTER_KILLS, CLUSTER_PLANS = counts.count(200, 33), counts.count(500, 33)
SECONDS = counts.seconds(5400)


def approve_what_waits(by):
    """Approve every open request."""
    for request in ApprovalRequest.objects.filter(status=RequestStatus.PENDING):
        decide(request, by=by, decision=Decision(ReviewVerdict.APPROVE, request.digest))


@pytest.mark.slow
def test_killed_in_the_middle_of_both_kinds_of_call(serving, evidence, ada, rosa):
    """The dangerous call has an unknown outcome and does not run again; the safe one runs again and completes."""
    gate = {"parameters": {"gate": "open"}}
    steps = step(1, "dangerous_work", **gate), step(2, "safe_work", **gate), step(3, "safe_work", dependencies=[2])
    plan = make_plan(ada, *steps)
    serving.start()
    eventually(lambda: step_of(plan).waiting_for == WaitingFor.APPROVAL, what="the request")
    eventually(lambda: step_of(plan, 2).call, what="the other call")
    approve_what_waits(rosa)
    began = [(call_of(plan, step_id).public_id, "began") for step_id in (1, 2)]
    eventually(lambda: all(serving.marks()[each] for each in began), what="the middle of both calls")
    serving.kill()
    (serving.effects / "open").touch()
    serving.start()
    unknown = plan.steps.filter(Q(waiting_for=WaitingFor.OUTCOME))
    eventually(lambda: step_of(plan, 3).completed_at and unknown.exists(), what="recovery")
    assert [step_of(plan, step_id).status for step_id in (1, 2, 3)] == ["in_progress", "completed", "completed"]
    assert (call_of(plan, 1).status, call_of(plan, 2).attempt > 1) == ("outcome_unknown", True)
    dangerous_marks = {word: serving.marks()[call_of(plan, 1).public_id, word] for word in ("began", "ended")}
    assert dangerous_marks == {"began": 1, "ended": 0}
    assert_nothing_is_wrong(evidence)


@pytest.mark.nightly
@pytest.mark.skipif(not settings.ON_SQLITE, reason="on PostgreSQL the cluster is killed")
@pytest.mark.timeout(SECONDS)
def test_one_process_is_killed_again_and_again(fleet, client_of, evidence, record_property):
    """Pages, API and executor in one process: everything acknowledged holds, whenever the process is killed."""
    killed = KillLoop("kill loop, embedded", fleet(SERVE), KILLS, PLANS)
    go_through(killed, client_of, evidence, record_property)


@pytest.mark.service
@pytest.mark.nightly
@pytest.mark.timeout(SECONDS)
def test_a_cluster_is_killed_again_and_again(fleet, client_of, evidence, record_property):
    """The same with several processes, any of which is killed at any time."""
    killed = KillLoop("kill loop, cluster", fleet(*COMMANDS, **ENVIRONMENT), CLUSTER_KILLS, CLUSTER_PLANS)
    go_through(killed, client_of, evidence, record_property)


class KillLoop(NamedTuple):
    """The processes, the number of kills, and the number of plans created meanwhile."""

    scenario: str
    processes: list[Serving]
    kills: int
    plans: int


def go_through(loop, client_of, evidence, record_property):
    """Run the loop, report its counts, judge the result."""
    seed = counts.seed()
    client, killer = client_of(loop.processes, seed), Killer(loop.processes, counts.dice(seed + 1), loop.kills)
    with evidence.kept(loop.scenario, seed):
        for process in loop.processes:
            process.start()
        quiet = round(work_while(client, killer, plans=loop.plans), 1)
        summary = {**killer.done, **evidence.summary(), "sent_again": client.retried}
        counts.report(record_property, loop.scenario, seed=seed, **summary, seconds_to_quiet=quiet)
        assert quiet < QUIET_SECONDS or not counts.FULL, "the promise is a minute, on a machine that does nothing else"
        assert_nothing_is_wrong(evidence)
