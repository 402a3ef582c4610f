"""Limits of pending approval requests: direct calls get 429, steps wait for a free slot."""

from datetime import timedelta
from functools import partial

import pytest

from approvals.models import ApprovalRequest
from approvals.requests.limits import RequesterScope, TooManyWaiting, check_pending_limit
from catalog.core import clock
from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.engine.limits import DEFER_DELAY, wake_deferred_steps
from plans.executor.ticker import Ticker
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests import counts
from tests.builders import act, approve, call_of, events_of, make_plan, reject, step_of, work_off
from tests.invariants import assert_invariants
from tests.racing import at_once
from tests.rest import Rest, agent

pytestmark = pytest.mark.db

HELD = {"tool": "dangerous", "arguments": {"value": 1}}


@pytest.fixture
def few(settings):
    """Allow two pending requests per requester."""
    settings.TOOLGATE_MAX_PENDING_PER_REQUESTER = 2
    settings.TOOLGATE_MAX_PENDING_PER_PLAN = settings.TOOLGATE_MAX_PENDING_PER_TOKEN = 0
    return settings


def waiting(plan: Plan) -> list[str]:
    """Return the reason for which each step of a plan waits."""
    return list(plan.steps.order_by("step_id").values_list("waiting_for", flat=True))


def test_direct_call_over_the_limit_is_429_and_not_stored(few, stage, ada, ben):
    """With Retry-After; calls of other people are not affected."""
    rest = agent(ada)
    answers = [rest.post("calls/", HELD, key=f"k{number}") for number in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    problem = answers[2].json()
    assert (problem["type"], answers[2]["Retry-After"]) == ("urn:toolgate:too_many_waiting", "60")
    assert (Call.objects.count(), Plan.objects.count()) == (2, 2)
    assert agent(ben).post("calls/", HELD).status_code == 201


def test_refused_call_may_be_sent_again(few, stage, ada, rosa):
    """With the same key; safe calls are never refused."""
    rest = agent(ada)
    first, _ = (rest.post("calls/", HELD).json() for _ in range(2))
    assert rest.post("calls/", HELD, key="k").status_code == 429
    assert rest.post("calls/", {"tool": "safe", "arguments": {"value": 1}}).status_code == 201
    reject(Plan.objects.get(public_id=first["plan"]), rosa)
    assert rest.post("calls/", HELD, key="k").status_code == 201


def test_limit_of_a_person_covers_their_tokens_and_tokens_may_have_lower_ones(few, stage, ada):
    few.TOOLGATE_MAX_PENDING_PER_TOKEN = 1
    first, second = agent(ada), agent(ada)
    assert [client.post("calls/", HELD).status_code for client in (first, first, second)] == [201, 429, 201]
    assert Rest(ada).post("calls/", HELD).status_code == 429


def test_a_call_that_joins_a_full_plan_is_429(few, stage, ada):
    """The plan's limit counts its steps and added calls."""
    few.TOOLGATE_MAX_PENDING_PER_REQUESTER, few.TOOLGATE_MAX_PENDING_PER_PLAN = 0, 1
    plan = work_off(make_plan(ada, act(1, 1, "dangerous"), can_modify=True))
    answer = Rest(ada).post("calls/", HELD | {"plan": plan.public_id})
    assert (answer.status_code, answer.json()["type"]) == (429, "urn:toolgate:too_many_waiting")


def test_step_waits_for_a_free_slot(few, stage, ada, rosa):
    """No call is stored and no preview computed; it starts as soon as a request is decided."""
    plan = work_off(make_plan(ada, *[act(number, number, "dangerous") for number in (1, 2, 3, 4)]))
    assert waiting(plan) == ["approval", "approval", "retry", "retry"]
    assert (Call.objects.count(), step_of(plan, 3).call) == (2, None)
    assert events_of(plan).count("3 step.retrying") == 1
    assert wake_deferred_steps(clock.now()) == 0
    approve(plan, rosa, 1)
    assert wake_deferred_steps(clock.now()) == 1
    assert [each is not None for each in plan.steps.values_list("ready_at", flat=True)] == [True, False, True, True]
    work_off(plan)
    assert waiting(plan) == ["", "approval", "approval", "retry"]
    assert_invariants()


def test_deferred_step_becomes_ready_without_a_ticker(few, stage, ada, rosa):
    """It is deferred again if there is still no slot."""
    plan = work_off(make_plan(ada, *[act(number, number, "dangerous") for number in (1, 2, 3)]))
    put_off = step_of(plan, 3)
    assert put_off.ready_at is not None
    assert put_off.ready_at - clock.now() > DEFER_DELAY - timedelta(minutes=1)
    Step.objects.filter(pk=put_off.pk).update(ready_at=clock.now())
    work_off(plan)
    assert waiting(plan) == ["approval", "approval", "retry"]
    reject(plan, rosa, 1)
    Step.objects.filter(pk=put_off.pk).update(ready_at=clock.now())
    work_off(plan)
    assert waiting(plan)[1:] == ["approval", "approval"]


def test_slots_are_counted_per_requester(few, stage, ada, ben, rosa):
    """One of two requesters has a slot; a paused plan is not woken."""
    steps = [act(number, number, "dangerous") for number in (1, 2, 3, 4)]
    plans = [work_off(make_plan(somebody, *steps)) for somebody in (ada, ben)]
    approve(plans[1], rosa, 1)
    Plan.objects.filter(pk=plans[1].pk).update(paused_at=clock.now())
    assert wake_deferred_steps(clock.now()) == 0
    Plan.objects.filter(pk=plans[1].pk).update(paused_at=None)
    Ticker(None).tick()
    assert [plan.steps.filter(ready_at__lte=clock.now(), step_id=3).exists() for plan in plans] == [False, True]


def test_zero_means_no_limit(few, stage, ada):
    few.TOOLGATE_MAX_PENDING_PER_REQUESTER = 0
    plan = work_off(make_plan(ada, *[act(number, number, "dangerous") for number in range(1, 6)]))
    assert waiting(plan) == ["approval"] * 5


def test_early_and_answered_requests_do_not_count(few, stage, ada, rosa):
    plan = work_off(make_plan(ada, *[act(number, number, "dangerous") for number in (1, 2)]))
    asking = RequesterScope(ada.pk, None, plan.public_id)
    with pytest.raises(TooManyWaiting):
        check_pending_limit(asking)
    ApprovalRequest.objects.filter(call__step__step_id=1).update(is_early=True)
    check_pending_limit(asking)


OPENERS = 16


def test_concurrent_requests_never_exceed_the_limit(few, executor, stage, ada):
    """Sixteen, as direct calls and in plans."""
    few.TOOLGATE_MAX_PENDING_PER_REQUESTER = 5
    for _ in range(counts.count(20)):
        ApprovalRequest.objects.filter(status="pending").update(status="withdrawn")
        order = CallOrder("dangerous", {"value": 1})
        results = at_once(*[partial(create_call, order, by=Requester(ada))] * OPENERS)
        assert ApprovalRequest.objects.filter(status="pending").count() == 5
        assert sum(isinstance(each, TooManyWaiting) for each in results) == OPENERS - 5


@pytest.mark.usefixtures("stage")
def test_step_waits_for_a_slot_of_its_calls_requester(few, ada, ben, rosa, django_assert_num_queries):
    """With the plan's author it would be woken and deferred every second."""
    his = work_off(make_plan(ben, *[act(number, number, "dangerous") for number in (1, 2)]))
    plan = work_off(make_plan(ada, *[act(number, number, "dangerous") for number in (1, 2, 3, 4)]))
    plan.steps.filter(step_id__in=(3, 4)).update(retry_of=call_of(his))
    approve(plan, rosa, 1)
    approve(plan, rosa, 2)
    with django_assert_num_queries(2):  # the steps, and once the room of the one who asks for both
        assert wake_deferred_steps(clock.now()) == 0
    approve(his, rosa, 1)
    assert wake_deferred_steps(clock.now()) == 1
