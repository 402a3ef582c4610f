"""Tests of the planner's limits."""

import pytest

from catalog.core import clock
from catalog.models import Call
from plans import states
from plans.planner.steps import MOST_QUERIES, StepPlacement, steps_of_queries
from tests.pages import Pages
from tests.plans.factories import send_request

pytestmark = pytest.mark.django_db(transaction=True)


def test_rate_limit_names_retry_time(ada, ben, configured, monkeypatch):
    at_once = clock.now()
    monkeypatch.setattr(clock, "now", lambda: at_once)
    pages = Pages(ada)
    for number in range(10):
        pages.open("/ask/")
        send_request(pages, request=f"Greet {number}")
    pages.open("/ask/")
    text = send_request(pages, 422, request="Greet one more")
    assert "draft_plan" in text and "60 s" in text
    assert "Greet one more</textarea>" in pages.html
    assert Call.objects.filter(tool_name=states.DRAFT_TOOL).count() == 10
    send_request(Pages(ben), request="Greet me")


def test_only_first_queries_run():
    steps = steps_of_queries(
        [" ", *(f"q{number}" for number in range(100))], [("search_files", "query")], StepPlacement()
    )
    assert [step["parameters"]["query"] for step in steps[:MOST_QUERIES]] == ["q0", "q1", "q2", "q3", "q4"]
    assert sum(step["tool"] == "search_files" for step in steps) == MOST_QUERIES
