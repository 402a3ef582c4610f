"""Rate limits: parsing, and exact counts with concurrent callers."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog.core.rate_limits import (
    RateLimit,
    RateLimitKey,
    acquire_use,
    clear_rate_buckets,
    parse_rate_limits,
    release_use,
)
from catalog.errors import RateLimited, ToolDefinitionError
from catalog.models import RateBucket
from catalog.testing import clean_registry
from catalog.tools import tool
from catalog.tools.registry import effective_rate_limits
from tests.corpus import faults
from tests.racing import at_once

pytestmark = pytest.mark.db

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
THREADS = 64


def ration(text="2/min", owner="user:1", group="mail"):
    """Return what one caller may do with one group."""
    return RateLimitKey(group, parse_rate_limits(text, "send"), owner)


def refusal_of(requested, seconds=0):
    """Use a group some seconds after noon; return why not, None when it was counted."""
    try:
        acquire_use(requested, now=NOON + timedelta(seconds=seconds))
    except RateLimited as refusal:
        return refusal
    return None


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("5/min", (RateLimit(5, "min"),)),
        ("20/h,5/min", (RateLimit(5, "min"), RateLimit(20, "h"))),
        ("1/s, 9/day", (RateLimit(1, "s"), RateLimit(9, "day"))),
        ("2/min,1/30s", (RateLimit(1, "s", 30), RateLimit(2, "min"))),
        ("9/12h", (RateLimit(9, "h", 12),)),
    ],
)
def test_a_limit_is_a_number_and_a_window(text, rates):
    assert parse_rate_limits(text, "send") == rates
    assert parse_rate_limits(",".join(map(str, rates)), "send") == rates


def test_a_limit_that_cannot_be_read_is_refused():
    cases = [
        *("", "5", "0/min", "-1/min", "5/week", "5/min,", "5/min,6/min", "1.5/s", "9" * 10 + "/s"),
        *("1/0s", "1/100s", "1/25h", "1/2day", "1/60s,2/min", "1/-5s"),
    ]

    def check(text):
        with pytest.raises(ToolDefinitionError, match="rate_limit of send") as refusal:
            parse_rate_limits(text, "send")
        assert repr(text) in str(refusal.value)

    assert faults(check, cases) == {}


@pytest.mark.parametrize("options", [{"rate_limit": 5}, {"rate_limit": "5/min", "rate_limit_key": "a b"}])
def test_a_tool_with_a_bad_limit_cannot_be_defined(options):
    with clean_registry(), pytest.raises(ToolDefinitionError, match=r"rate_limit.* of send"):
        tool(name="send", description="Try it.", **options)(lambda: None)


def test_the_tools_of_a_group_share_its_limit():
    """A tool without a limit has its group's; one without a group has its own."""
    with clean_registry():
        first = tool(name="send", description="Try it.", rate_limit_key="mail", rate_limit="2/min")(lambda: None)
        second = tool(name="resend", description="Try it.", rate_limit_key="mail")(lambda: None)
        alone = tool(name="look", description="Try it.", rate_limit="1/s")(lambda: None)
        free = tool(name="free", description="Try it.")(lambda: None)
        assert effective_rate_limits(second) == effective_rate_limits(first) == (RateLimit(2, "min"),)
        assert (first.rate_group, second.rate_group, alone.rate_group) == ("mail", "mail", "look")
        assert effective_rate_limits(free) == ()


def test_a_full_window_refuses_until_it_ends(db):
    assert [refusal_of(ration(), second) for second in (0, 20)] == [None, None]
    refusal = refusal_of(ration(), 25.5)
    assert (refusal.retry_after, refusal.code) == (35, "rate_limited")
    assert "2/min" in refusal.user_message()
    assert "35 s" in refusal.user_message()
    assert [refusal_of(ration(), second) is None for second in (59.9, 60, 61, 62)] == [False, True, True, False]


def test_each_caller_and_each_group_has_its_own_count(db):
    every = [ration("1/h"), ration("1/h", owner="token:1"), ration("1/h", group="lookup")]
    assert [refusal_of(each) for each in every] == [None, None, None]
    assert all(refusal_of(each) for each in every)


def test_a_use_counts_in_every_window_or_in_none(db):
    """A use refused by the hour does not count in the minute; the longest wait is reported."""
    both = ration("2/min,3/h")
    assert [refusal_of(both, second) is None for second in (0, 1, 2, 60, 61)] == [True, True, False, True, False]
    assert dict(RateBucket.objects.values_list("group", "used")) == {"mail:min": 1, "mail:h": 3}
    assert refusal_of(both, 70).retry_after == 3600 - 70


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("text", "passed"), [("7/h", 7), ("9/min,5/h", 5)])
def test_concurrent_uses_never_exceed_the_limit(text, passed):
    wanted = ration(text)
    results = at_once(*[lambda: acquire_use(wanted, now=NOON)] * THREADS)
    assert results.count(None) == passed
    assert sum(isinstance(result, RateLimited) for result in results) == THREADS - passed


def test_a_pause_holds_between_two_uses(db):
    paused = ration("1/30s,3/min", group="m" * 60)
    assert [refusal_of(paused, second) is None for second in (0, 1, 29.9, 30, 59)] == [True, False, False, True, False]
    assert refusal_of(paused, 31).retry_after == 29
    rows = dict(RateBucket.objects.values_list("group", "used"))
    assert rows == {f"{'m' * 60}:30s": 1, f"{'m' * 60}:min": 2}


def test_counts_that_are_over_are_cleared(db):
    refusal_of(ration(), -25 * 3600)
    refusal_of(ration(owner="user:2"))
    assert clear_rate_buckets(now=NOON) == 1
    assert [row.owner for row in RateBucket.objects.all()] == ["user:2"]


def test_a_use_is_given_back_to_the_windows_it_was_counted_in(db):
    both = ration("1/min,9/h")
    assert [refusal_of(both, second) for second in (0, 120)] == [None, None]
    release_use(both, counted_at=NOON)
    assert dict(RateBucket.objects.values_list("group", "used")) == {"mail:min": 1, "mail:h": 1}
    for _ in range(3):
        release_use(both, counted_at=NOON + timedelta(seconds=120))
    assert dict(RateBucket.objects.values_list("group", "used")) == {"mail:min": 0, "mail:h": 0}
