"""Statistics of implementations: calls, success rates, durations."""

from datetime import timedelta

import pytest

from catalog.calls import statistics
from catalog.calls.statistics import DAYS, calls_by_level, implementation_stats, percentile
from catalog.core import clock
from catalog.models import Call, Implementation
from tests.approvals.factories import make_tool
from tests.rest import Rest


@pytest.fixture
def greet(db):
    """A tool with two implementations, the second with a third of the first's weight."""
    tool = make_tool("greet", "safe")
    tool.implementations.update(weight=300)
    Implementation.objects.create(tool=tool, reference="other", digest="d" * 64, weight=100)
    return tool


def calls(tool, reference, *milliseconds, status="completed"):
    """Store ended calls that took so long."""
    now = clock.now()
    Call.objects.bulk_create(
        Call(
            tool_name=tool.name,
            version=tool.current_version,
            implementation=tool.implementations.get(reference=reference),
            arguments="{}",
            status=status,
            created_at=now,
            started_at=now,
            finished_at=now + timedelta(milliseconds=spent),
        )
        for spent in milliseconds
    )


def test_each_is_counted_and_timed_by_itself(greet, django_assert_num_queries):
    calls(greet, "tests:greet", *range(1, 101))
    calls(greet, "tests:greet", 5000, status="failed")
    calls(greet, "other", 7)

    with django_assert_num_queries(2):
        first, second = implementation_stats(greet)

    assert (first.calls, first.completed, first.failed, first.share) == (101, 100, 1, 0.75)
    assert first.success_rate == pytest.approx(100 / 101)
    assert [first.p50_ms, first.p95_ms, second.p50_ms] == pytest.approx([50, 95, 7])
    assert (second.calls, second.success_rate, second.share) == (1, 1.0, 0.25)


def test_what_was_never_called_has_no_rate_and_no_times(greet):
    found = implementation_stats(greet)[1]

    assert (found.calls, found.success_rate, found.p50_ms, found.p95_ms, found.last_call_at) == (
        0,
        None,
        None,
        None,
        None,
    )


def test_only_the_newest_calls_are_looked_at(greet, monkeypatch):
    monkeypatch.setattr(statistics, "COMPARED_CALLS", 5)
    calls(greet, "tests:greet", *[1000] * 5)
    calls(greet, "other", *[1] * 5)

    assert [each.calls for each in implementation_stats(greet)] == [0, 5]


def test_what_is_switched_off_or_gone_has_no_share(greet):
    greet.implementations.filter(reference="other").update(registered=False)
    assert [each.share for each in implementation_stats(greet)] == [1.0, 0.0]

    greet.implementations.update(enabled=False)
    assert [each.share for each in implementation_stats(greet)] == [0.0, 0.0]


@pytest.mark.parametrize(("part", "value"), [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (0.95, 4.0), (1.0, 4.0)])
def test_a_percentile_is_one_of_the_values(part, value):
    assert percentile([1.0, 2.0, 3.0, 4.0], part) == value


def test_the_api_compares_them(greet, vera):
    calls(greet, "other", 10, 20)

    answer = Rest(vera).get("tools/greet/outcomes/")

    first, second = answer.json()
    assert (first["reference"], first["calls"], first["success_rate"]) == ("tests:greet", 0, None)
    assert (second["reference"], second["calls"], second["success_rate"], second["weight"]) == ("other", 2, 1.0, 100)
    assert Rest(vera).get("tools/greet/").json()["implementations"] == answer.json()
    assert Rest(vera).get("tools/nothing/outcomes/").status_code == 404
    assert Rest(None).get("tools/greet/outcomes/").status_code == 401


def test_calls_are_counted_by_day_and_level(greet, django_assert_num_queries):
    calls(greet, "tests:greet", 1, 2)
    calls(make_tool("write_note"), "tests:write_note", 3)
    Call.objects.filter(tool_name="greet").update(created_at=clock.now() - timedelta(days=DAYS - 1))
    calls(greet, "tests:greet", 4)
    old = Call.objects.latest("pk")
    Call.objects.filter(pk=old.pk).update(created_at=clock.now() - timedelta(days=DAYS + 1))
    with django_assert_num_queries(2):
        days = calls_by_level()
    assert len(days) == DAYS
    assert [(day.safe, day.cautious, day.dangerous) for day in days if day.calls] == [(2, 0, 0), (0, 0, 1)]
    assert days[-1].day == clock.now().date()
