"""Concurrent ends of two calls of one session, on real threads: both count."""

import pytest
from django.contrib.auth.models import User

from catalog.access.tokens import create_token
from plans.actions.call import CallOrder, create_call
from plans.engine import loop
from plans.engine.loop import TimeSlice
from plans.engine.work import RunningCall
from plans.models import Plan
from plans.sessions.lists import current_lists
from tests.invariants import assert_invariants
from tests.plans.factories import SessionAgent, started_call
from tests.racing import at_once

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("catalog"), pytest.mark.django_db(transaction=True)]
ROUNDS = 3


@pytest.fixture
def agent(ada: User) -> SessionAgent:
    """Return ada's agent with its own token."""
    token, _ = create_token(user=ada, kind="agent", scopes=["calls:create"])
    return SessionAgent(ada, token=token)


def end_at_once(*runs: RunningCall) -> None:
    """Run the handlers one after another, then end all calls concurrently."""
    outcomes = [loop.run_handler(run) for run in runs]
    found = at_once(
        *(
            lambda run=run, outcome=outcome: loop.finish_and_claim_next(run, outcome, TimeSlice("tests"))
            for run, outcome in zip(runs, outcomes, strict=True)
        )
    )
    assert found == [None] * len(runs)


def test_steps_that_are_added_at_once_are_all_there_with_numbers_of_their_own(agent):
    agent.setup("a")
    for _ in range(ROUNDS):
        end_at_once(*(started_call(agent.ask("add_step", steps=["x", "y"])) for _ in range(4)))
    numbers = list(agent.row.steps.order_by("step_id").values_list("step_id", flat=True))
    assert numbers == list(range(1, 1 + 8 * ROUNDS + 1))
    assert_invariants()


def test_first_lists_that_are_set_up_at_once_leave_one(agent):
    for number in range(ROUNDS):
        agent.name = f"night {number}"
        end_at_once(*(started_call(agent.ask("setup_plan", objective=text)) for text in "abcd"))
        lists = Plan.objects.filter(kind=Plan.Kind.SESSION, session=agent.name)
        assert (lists.count(), current_lists(lists).count(), lists.filter(status="in_progress").count()) == (4, 1, 1)
    assert_invariants()


def test_the_last_two_steps_that_are_done_at_once_complete_the_plan_once(agent):
    for number in range(ROUNDS):
        agent.name = f"night {number}"
        agent.setup("a", "b")
        end_at_once(*(started_call(agent.ask("update_step", step_id=step_id, status="done")) for step_id in (1, 2)))
        assert (agent.row.status, agent.row.events.filter(type="plan.completed").count()) == ("completed", 1)
    assert_invariants()


def test_a_setup_and_an_addition_at_once_leave_a_whole_list(agent):
    for number in range(ROUNDS):
        agent.name = f"night {number}"
        agent.setup("a")
        replaced = started_call(agent.ask("setup_plan", objective="New", initial_steps=["n"]))
        added = started_call(agent.ask("add_step", steps=["b"]))
        end_at_once(replaced, added)
        titles = list(agent.row.steps.order_by("step_id").values_list("description", flat=True))
        assert titles in (["n"], ["n", "b"]) and agent.row.goal == "New"
    assert_invariants()


def test_a_call_of_another_session_waits_for_nobody(agent, ben):
    other = SessionAgent(ben)
    runs = [started_call(who.ask("setup_plan", objective="x")) for who in (agent, other)]
    end_at_once(*runs)
    assert (agent.row.author, other.row.author) == (agent.user, ben)
    assert create_call(CallOrder("planning_read_plan", {}), by=other.by).status in ("created", "running")
