"""Commits without an answer: their work continues, and nothing is done or reported twice."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from catalog.models import Call
from plans.actions.call import CallOrder, create_call
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import ApprovedCall, RunningCall, WorkItem
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import act, approve, assert_gapless, call_of, events_of, make_plan, step_of, work_off
from tests.invariants import assert_invariants
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]
Lose = Callable[[bool], None]


@pytest.fixture
def lose_the_answer() -> Iterator[Lose]:
    """Return a function that cuts the connection at the next commit, right before or after it."""
    patch, wrapper = pytest.MonkeyPatch(), connections["default"]

    def cut(committed: bool) -> None:
        patch.undo()
        if committed:
            wrapper.commit()
        if connection.vendor == "postgresql":
            mine = connection.connection.info
            with psycopg.connect(mine.dsn, password="toolgate", autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 60000)", [mine.backend_pid])
            with suppress(psycopg.OperationalError):
                connection.connection.execute("SELECT 1")  # so that it knows that it is cut off
        raise OperationalError("server closed the connection unexpectedly")

    yield lambda committed: patch.setattr(wrapper, "commit", lambda: cut(committed))
    patch.undo()


def work_on(work: WorkItem | None) -> None:
    """Continue with a thread's work, as an executor does."""
    while work is not None:
        work = loop.advance(work, TimeSlice("tests", until=float("inf"), steps_left=1000))


def assert_ran_once(plan: Plan, *calls: str) -> None:
    """Check that the plan completed, with one attempt for each call and no late results."""
    plan.refresh_from_db()
    told = [(call_of(plan, number + 1).status, call_of(plan, number + 1).attempt) for number in range(len(calls))]
    assert (plan.status, told) == ("completed", [("completed", 1)] * len(calls))
    assert [call_of(plan, number + 1).late_evidence for number in range(len(calls))] == [""] * len(calls)
    assert events_of(plan).count("1 step.completed") == 1
    assert_gapless(plan)
    assert_invariants()


@pytest.mark.parametrize("committed", [True, False])
def test_unanswered_finish_continues_with_the_claimed_step(stage, ada, lose_the_answer, committed):
    """If nothing was committed, the finish is repeated."""
    plan = make_plan(ada, act(1, "x", "cautious"), act(2, "y", "cautious", dependencies=[1]))
    run = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(run, RunningCall)
    lose_the_answer(committed)
    work_on(run)
    assert stage.values("cautious") == ["x", "y"]
    assert_ran_once(plan, "x", "y")


def test_unanswered_claim_is_found_again(stage, ada, lose_the_answer):
    """The started call begins."""
    plan = make_plan(ada, act(1, "x", "cautious"))
    lose_the_answer(True)
    work_on(loop.claim_work(plan.pk, owner="tests"))
    assert stage.values("cautious") == ["x"]
    assert_ran_once(plan, "x")


def test_uncommitted_claim_changes_nothing(stage, ada, lose_the_answer):
    """The caller gets the error, and the step stays ready."""
    plan = make_plan(ada, act(1, "x", "cautious"))
    lose_the_answer(False)
    with pytest.raises(OperationalError):
        loop.claim_work(plan.pk, owner="tests")
    assert (step_of(plan).claimed_by, work_off(plan).status) == ("", "completed")


def test_unanswered_start_of_an_approved_call_continues(stage, ada, rosa, lose_the_answer):
    """No new approval is requested and no outcome is unknown."""
    plan = work_off(make_plan(ada, act(1, "x", "dangerous")))
    approve(plan, rosa)
    resume = loop.claim_work(plan.pk, owner="tests")
    assert isinstance(resume, ApprovedCall)
    lose_the_answer(True)
    work_on(resume)
    assert stage.values("dangerous") == ["x"]
    assert_ran_once(plan, "x")


@pytest.mark.parametrize("joins", [False, True])
def test_unanswered_direct_call_runs_and_is_answered(executor, stage, ada, lose_the_answer, joins):
    """The executor takes it once."""
    plan = make_plan(ada, act(1, tool="dangerous")) if joins else None
    lose_the_answer(True)
    order = CallOrder("cautious", {"value": "x"}, plan_ref=plan.public_id if plan else None)
    call = create_call(order, by=Requester(ada))
    eventually(lambda: Call.objects.get(pk=call.pk).status == "completed", what="the call's end")
    assert (stage.values("cautious"), Call.objects.get(pk=call.pk).attempt) == (["x"], 1)
    assert_invariants()
