"""Rate limits: direct calls get 429 with Retry-After, steps wait or fail."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.core import clock
from catalog.models import Call, RateBucket
from plans.actions.control import pause_plan, resume_plan
from plans.engine import loop
from plans.engine.work import RateLimitedCall
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import act, approve, events_of, make_plan, reject, step_of, work_off
from tests.racing import at_once
from tests.rest import Rest, agent

pytestmark = pytest.mark.db

LIMITED = {"tool": "limited", "arguments": {"value": 1}, "wait_seconds": 0}
HELD = {"tool": "limited_dangerous", "arguments": {"value": 1}}


def use_up(owner, group="stage:min", ago=0):
    """Record that a requester used up a group's limit this many seconds ago."""
    began = clock.now() - timedelta(seconds=ago)
    RateBucket.objects.create(group=group, owner=owner, window_started_at=began, used=2)


def test_a_direct_call_over_the_limit_is_429_and_not_stored(stage, ada):
    """With Retry-After."""
    rest = agent(ada)
    answers = [rest.post("calls/", LIMITED) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    problem = answers[2].json()
    assert (problem["type"], 30 <= int(answers[2]["Retry-After"]) <= 60) == ("urn:toolgate:rate_limited", True)
    assert "2/min" in problem["detail"]
    assert (Call.objects.count(), Plan.objects.count()) == (2, 2)


def test_each_agent_has_its_own_limit(stage, ada):
    """Separate from other agents of the person and from the person."""
    clients = [agent(ada), agent(ada), Rest(ada)]
    assert [client.post("calls/", LIMITED).status_code for client in clients for _ in range(2)] == [201] * 6
    owners = {f"token:{client.token.pk}" for client in clients[:2]} | {f"user:{ada.pk}"}
    assert {row.owner for row in RateBucket.objects.all()} == owners


def test_all_tokens_of_a_person_share_one_limit(stage, ada):
    """And the steps of their plans."""
    work_off(make_plan(ada, act(1, 1, "limited")))
    assert [Rest(ada).post("calls/", LIMITED).status_code for _ in range(2)] == [201, 429]
    assert [row.owner for row in RateBucket.objects.all()] == [f"user:{ada.pk}"]


def test_a_refused_keyed_call_may_be_sent_again(stage, ada):
    """A 429 is not stored as the key's answer."""
    rest = agent(ada)
    use_up(f"token:{rest.token.pk}")
    assert rest.post("calls/", LIMITED, key="once").status_code == 429
    RateBucket.objects.all().delete()
    assert rest.post("calls/", LIMITED, key="once").status_code == 201


def test_call_refused_by_its_plan_does_not_count(stage, ada):
    """The plan has ended."""
    ended = work_off(make_plan(ada, act(1, "x"), can_modify=True))
    response = Rest(ada).post("calls/", {**LIMITED, "plan": ended.public_id})
    assert (response.status_code, ended.status) == (409, "completed")
    assert not RateBucket.objects.exists()


def test_step_waits_for_its_rate_limit(stage, ada):
    """It holds no resources and runs when the window is over."""
    plan = work_off(make_plan(ada, *[act(number, number, "limited") for number in (1, 2, 3)]))
    waiting = step_of(plan, 3)
    assert (waiting.status, waiting.waiting_for, waiting.claimed_by) == ("in_progress", "retry", "")
    assert waiting.ready_at is not None
    assert 55 < (waiting.ready_at - clock.now()).total_seconds() < 65
    assert "3 step.retrying" in events_of(plan)

    Step.objects.filter(pk=waiting.pk).update(ready_at=clock.now())
    RateBucket.objects.update(window_started_at=clock.now() - timedelta(seconds=61))
    assert work_off(plan).status == "completed"
    assert stage.values("limited") == [1, 2, 3]


def test_a_step_that_would_wait_too_long_fails(stage, ada):
    """With the message of a direct call; no call is stored."""
    use_up(f"user:{ada.pk}", "stage-dangerous:h")
    plan = work_off(make_plan(ada, act(1, 1, "limited_dangerous")))
    assert (plan.status, step_of(plan).call_id) == ("failed", None)
    assert "1/h" in step_of(plan).error


def test_a_held_call_counts_once(stage, ada, rosa):
    """At its request, not at its approval or start."""
    plan = work_off(make_plan(ada, act(1, 1, "limited_dangerous")))
    approve(plan, rosa)
    assert work_off(plan).status == "completed"
    assert RateBucket.objects.get().used == 1


def test_rejected_call_counts(stage, ada, rosa):
    """Otherwise people could be asked without limit."""
    rest = agent(ada)
    call = rest.post("calls/", HELD).json()
    reject(Plan.objects.get(public_id=call["plan"]), rosa)
    assert rest.post("calls/", HELD).status_code == 429


def test_new_request_for_a_changed_call_does_not_count_again(stage, ada, rosa):
    plan = work_off(make_plan(ada, act(1, 1, "limited_dangerous")))
    approve(plan, rosa)
    stage.previews["limited_dangerous"] = lambda value, context: "changed"
    work_off(plan)
    assert step_of(plan).waiting_for == "approval"
    assert (RateBucket.objects.get().used, Call.objects.count()) == (1, 2)


def test_tools_without_a_limit_cause_no_queries(stage, ada):
    with CaptureQueriesContext(connection) as captured:
        work_off(make_plan(ada, act(1, "x")))
    assert not [query for query in captured if "ratebucket" in query["sql"]]


@pytest.mark.django_db(transaction=True)
def test_concurrent_calls_never_exceed_the_limit(stage, ada):
    """One token on many connections."""
    rest = agent(ada)
    statuses = at_once(*[lambda: rest.post("calls/", LIMITED).status_code] * 16)
    assert sorted(set(statuses)) == [201, 429]
    assert statuses.count(201) == 2 == Call.objects.count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["paused", "stopped"])
def test_released_call_is_counted_once(stage, ada, how):
    """Its plan was paused, or its process stopped, between count and start."""
    plan, told = make_plan(ada, act(1, "a", "limited"), act(2, "b", "limited")), threading.Event()
    work = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(work, RateLimitedCall)
    if how == "paused":
        pause_plan(plan, by=Requester(ada))
    else:
        told.set()
    assert loop.advance(work, loop.TimeSlice("tests", stopping=told)) is None
    assert set(RateBucket.objects.values_list("used", flat=True)) == {0}
    if how == "paused":
        resume_plan(plan, by=Requester(ada))
    assert (work_off(plan).status, stage.values("limited")) == ("completed", ["a", "b"])
