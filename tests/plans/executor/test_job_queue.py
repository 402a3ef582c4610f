"""The executor's queue and the ticker's search for lost hints: plans are served round-robin in both."""

from queue import Empty

import pytest
from django.db import connection

from catalog.core import clock
from plans.engine import hints as engine_hints
from plans.executor import ticker
from plans.executor.job_queue import JobQueue
from plans.store import statements
from tests.builders import act, make_plan

pytestmark = pytest.mark.db


def test_plan_with_many_hints_is_queued_once():
    """It moves to the end when a hint is taken; hints beyond the number of threads are dropped."""
    hints = JobQueue(threads=3)
    for plan in (1, 1, 1, 1, 1, 2, 1, 3, 2):
        hints.put(plan)
    assert (hints.qsize(), hints.waiting()) == (3, 6)
    assert [hints.get() for _ in range(6)] == [1, 2, 3, 1, 2, 1]
    with pytest.raises(Empty):
        hints.get_nowait()
    hints.put(1)
    hints.put(None)
    assert (hints.get_nowait(), hints.get()) == (1, None)


def test_lost_hints_are_found_round_robin(stage, ada, monkeypatch):
    """However many plans always have ready steps."""
    plans = [make_plan(ada, act(1)).pk for _ in range(5)]
    told: list[int] = []
    monkeypatch.setattr(ticker, "PLANS_WOKEN", 2)
    monkeypatch.setattr(engine_hints, "deliver_now", lambda plan_pk, count=1: told.append(plan_pk))
    looker = ticker.Ticker(None)
    for _ in range(4):
        looker._wake()
    assert told == [*plans, *plans[:2]]
    with connection.cursor() as cursor:
        assert statements.due_plans(cursor, now=clock.now(), limit=9, after=plans[2]) == plans[3:]
