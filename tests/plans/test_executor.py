"""The threads that work on plans: one that dies is replaced, and nothing secret is logged."""

import logging
from datetime import timedelta

import pytest
from django.utils import timezone

from plans import claims, endings, engine, recovery
from plans.executor import Executor
from plans.models import Plan
from plans.ticker import Ticker
from tests.builders import act, make_plan
from tests.waiting import eventually

SECRET = "hunter2"


def has_ended(plan: Plan) -> bool:
    """Say whether the plan is completed."""
    return Plan.objects.get(pk=plan.pk).status == "completed"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("end", [SystemExit("hunter2"), RuntimeError("hunter2")])
def test_a_thread_that_dies_is_replaced(executor, stage, ada, monkeypatch, end):
    """As many as there are: plans go on."""
    deaths, claim = [end] * 3, engine.claim

    def die_first(plan_pk, *, owner):
        if deaths:
            raise deaths.pop()
        return claim(plan_pk, owner=owner)

    monkeypatch.setattr(engine, "claim", die_first)
    plan = make_plan(ada, act(1))
    eventually(lambda: has_ended(plan), what="the plan's end")
    eventually(lambda: len(executor._seats) == 2, what="two threads")


@pytest.mark.django_db(transaction=True)
def test_what_goes_wrong_is_logged_without_its_message(stage, ada, monkeypatch, caplog):
    """It may hold arguments."""

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(engine, "claim", fail)
    monkeypatch.setattr("plans.ticker.decisions.apply_due", fail)
    monkeypatch.setattr("plans.ticker.expiry.next_due", fail)
    pool = Executor(threads=1)
    with caplog.at_level(logging.INFO, "toolgate"):
        pool._add_thread()
        pool._hints.put(make_plan(ada, act(1)).pk)
        Ticker(None).tick()
        assert Ticker(None)._pause() == 1.0
        eventually(lambda: "was dropped" in caplog.text, what="the thread's words")
        pool.stop(seconds=5)
    assert "cut short: apply" in caplog.text
    assert (SECRET in caplog.text, caplog.text.count("Unexpected RuntimeError")) == (False, 3)


def test_one_thing_that_cannot_be_done_does_not_stop_the_others(stage, ada, monkeypatch):
    """Lost steps, plans past their deadline, requests: whatever comes first in the row."""
    plans = [make_plan(ada, act(1), deadline_seconds=60) for _ in range(2)]
    for plan in plans:
        engine.claim(plan.pk, owner="lost")
    later, fails = timezone.now() + timedelta(seconds=61), iter([True, False, True, False])
    for module, name in ((recovery, "_give_on"), (endings, "end_plan")):
        monkeypatch.setattr(module, name, lambda *arguments, **options: 1 / 0 if next(fails) else None)
    monkeypatch.setattr(claims, "is_lost", lambda *arguments, **options: True)
    assert (recovery.take_back_lost_steps(later), endings.end_overdue_plans(later)) == (1, 1)
