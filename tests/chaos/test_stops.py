"""Stops and cancellations from another process, and stops that outlive the processes that are killed."""

from datetime import datetime, timedelta

import httpx
import pytest

from approvals.models import ApprovalRequest, Stop
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from approvals.stops.services import Scope, lift_stop, set_stop
from catalog.access.tokens import create_token
from catalog.models import Call
from plans.actions.control import cancel_plan
from plans.actions.retry import retry_plan
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.builders import assert_gapless, call_of, make_plan, request_of, step, step_of
from tests.chaos.cluster import COMMANDS, ENVIRONMENT
from tests.chaos.loop import UP_SECONDS, is_up
from tests.chaos.serving import Serving
from tests.chaos.verdicts import assert_nothing_is_wrong
from tests.waiting import eventually

ROUNDS = counts.count(30)
ROUNDING = timedelta(milliseconds=10)


def approve(request: ApprovalRequest, by) -> None:
    decide(request, by=by, decision=Decision(ReviewVerdict.APPROVE, request.digest))


def waits_for_lift(plan, step_id=1) -> bool:
    return step_of(plan, step_id).waiting_for == "stop"


def set_over_rest(serving: Serving, by) -> Stop:
    """Set a stop of everything over REST; it is acknowledged when this returns."""
    _, token = create_token(user=by, kind="personal", scopes=["approvals:decide", "approvals:read"])
    answer = httpx.post(
        f"{serving.url()}/api/v1/stops/",
        json={"scope": {"everything": True}, "reason": "A bad day."},
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    )
    assert answer.status_code == 201, answer.text
    return Stop.objects.get(public_id=answer.json()["id"])


def deadlines_of(plan: Plan) -> list[datetime]:
    """Return the deadline of the plan and the expiry of the request of its third step."""
    plan.refresh_from_db()
    found = plan.deadline_at, request_of(plan, 3).expires_at
    return [each for each in found if each is not None]


@pytest.mark.slow
def test_stop_stands_after_the_process_that_set_it_is_killed(serving, evidence, ada, rosa, admin):
    """Neither the call that was lost under way nor an approved or a new one starts before the stop is lifted.

    The deadline of the plan and the expiry of its request are later by the time that the stop stood.
    """
    steps = step(1, "safe_work", parameters={"gate": "open"}), step(2, "dangerous_work"), step(3, "dangerous_work")
    plan = make_plan(ada, *steps, deadline_seconds=3600)
    serving.start()
    eventually(lambda: all(step_of(plan, each).waiting_for == "approval" for each in (2, 3)), what="the requests")
    eventually(lambda: serving.marks().total(), what="the call under way")
    lost = call_of(plan, 1)
    stop = set_over_rest(serving, rosa)
    serving.kill()
    (serving.effects / "open").touch()
    approve(request_of(plan, 2), rosa)
    plan.refresh_from_db()
    before = deadlines_of(plan)
    assert len(before) == 2
    for number in range(2):
        new = make_plan(ada, step(1, "cautious_work"), goal=f"New {number}")
        serving.start()
        eventually(lambda: waits_for_lift(new), UP_SECONDS, what="the wait of a new step")  # noqa: B023
        eventually(lambda: waits_for_lift(plan, 1) and waits_for_lift(plan, 2), what="the wait of what was under way")
        serving.kill()
    assert Stop.objects.get(lifted_at=None) == stop
    assert serving.marks() == {(lost.public_id, "began"): 1}
    serving.start()
    lift_stop(stop, "Over.", by=admin)
    eventually(lambda: step_of(new).completed_at and step_of(plan, 1).completed_at, UP_SECONDS, what="the safe calls")
    eventually(lambda: step_of(plan, 2).completed_at, what="the approved call")
    eventually(lambda: Stop.objects.filter(pk=stop.pk, counted_at__isnull=False).exists(), what="the count of its time")
    stop.refresh_from_db()
    assert stop.lifted_at
    stood = stop.lifted_at - stop.since
    assert all(abs(late - early - stood) < ROUNDING for early, late in zip(before, deadlines_of(plan), strict=True))
    approve(request_of(plan, 3), rosa)
    eventually(lambda: Plan.objects.get(pk=plan.pk).status == "completed", what="the end of the plan")
    assert_nothing_is_wrong(evidence)


def kill_under_a_stop(victim: Serving, number: int, ada, rosa, admin) -> None:
    """Kill a process while a stop of everything stands, and start it again; nothing starts until it is lifted."""
    steps = step(1, "safe_work", parameters={"seconds": 0.2}), step(2, "cautious_work")
    plans = [make_plan(ada, *steps, goal=f"Plan {number}.{each}") for each in range(4)]
    refs = [plan.public_id for plan in plans]
    eventually(lambda: Call.objects.filter(plan_ref__in=refs, started_at__isnull=False).exists(), UP_SECONDS)
    stop = set_stop(Scope(Stop.Kind.EVERYTHING), "A bad day.", by=rosa)
    started = started_calls()
    victim.kill()
    late = make_plan(ada, step(1, "cautious_work"), goal=f"Late {number}")
    victim.start()
    eventually(lambda: is_up(victim), UP_SECONDS, what="the process")
    eventually(lambda: waits_for_lift(late), UP_SECONDS, what="the wait of a new step")
    assert started_calls() == started
    lift_stop(stop, "Over.", by=admin)
    eventually(lambda: step_of(late).completed_at, UP_SECONDS, what="the late step")
    eventually(lambda: all(has_come_to_rest(plan) for plan in plans), UP_SECONDS, what="the end of the plans")


def started_calls() -> set[tuple[int, int]]:
    return set(Call.objects.filter(started_at__isnull=False).values_list("pk", "attempt"))


def has_come_to_rest(plan) -> bool:
    return all(each.completed_at or each.waiting_for == "outcome" for each in (step_of(plan, 1), step_of(plan, 2)))


@pytest.mark.service
@pytest.mark.nightly
@pytest.mark.timeout(counts.seconds(5400))
def test_nothing_starts_under_a_stop_whichever_process_is_killed(fleet, evidence, ada, rosa, admin):
    """Calls start before the stop is set and after it is lifted, whatever is killed and started again meanwhile."""
    processes, chance = fleet(*COMMANDS, **ENVIRONMENT), counts.dice(counts.seed())
    for process in processes:
        process.start()
    for number in range(ROUNDS):
        kill_under_a_stop(chance.choice(processes), number, ada, rosa, admin)
    assert_nothing_is_wrong(evidence)


@pytest.mark.nightly
def test_a_cancellation_reaches_the_process_that_runs_the_handler(serving, evidence, ada, tmp_path):
    """The step ends, the handler that cannot be stopped is recorded, and so is its late result."""
    plan = make_plan(ada, step(1, "safe_work", parameters={"gate": "open"}), step(2, "safe_work", dependencies=[1]))
    serving.environment["TOOLGATE_LEASE_SECONDS"] = "30"  # longer than the test, so that no lease is lost
    serving.start()
    eventually(
        lambda: serving.marks()[(call_of(plan).public_id, "began")] if step_of(plan).call else 0, what="the start"
    )
    cancel_plan(plan, by=Requester(ada))
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    assert (call_of(plan).status, call_of(plan).left_running_at is None) == ("cancelled", False)
    (tmp_path / "open").touch()
    eventually(lambda: call_of(plan).came_back_at, what="the handler's return")
    assert call_of(plan).late_evidence and Plan.objects.get(pk=plan.pk).status == "cancelled"
    assert step_of(plan, 2).status == "cancelled"
    assert_gapless(plan)


@pytest.mark.nightly
def test_a_stop_that_cancels_reaches_the_process_that_runs_the_handler(serving, ada, admin, tmp_path):
    """The step fails at once and can be retried once the stop is lifted; the late result is recorded."""
    plan = make_plan(ada, step(1, "safe_work", parameters={"gate": "open"}))
    serving.environment["TOOLGATE_LEASE_SECONDS"] = "30"  # longer than the test, so that no lease is lost
    serving.start()
    eventually(lambda: serving.marks().total(), what="the start")
    stop = set_stop(Scope(Stop.Kind.EVERYTHING), "A bad day.", by=admin, cancel_running=True)
    eventually(lambda: step_of(plan).status == "failed", what="the step's end")
    first = call_of(plan)
    assert first.status == "cancelled"
    (tmp_path / "open").touch()
    eventually(lambda: Call.objects.get(pk=first.pk).came_back_at, what="the handler's return")
    retry_plan(plan, by=Requester(ada))
    eventually(lambda: waits_for_lift(plan), what="the wait of the retry")
    lift_stop(stop, "Over.", by=admin)
    eventually(lambda: step_of(plan).completed_at, what="the end of the retry")
    assert serving.marks()[first.public_id, "began"] == 1
