"""Tests of the timeline's scale, intervals and labels."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from catalog.core import clock
from catalog.models import RateBucket
from plans.web.plan.overview import load_overview
from plans.web.plan.timeline import Interval, Kind, Tick, Timeline, draw_timeline
from tests.builders import act, make_plan, work_off
from tests.plans.factories import act_raising
from tests.tools_for_tests import Stage

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return the time this many seconds after the start."""
    return START + timedelta(seconds=seconds)


def ran(step: int, begin: float, end: float | None, kind: Kind = "working") -> Interval:
    """Return an interval between two times in seconds."""
    return Interval(step, kind, at(begin), None if end is None else at(end))


def drawn(*intervals: Interval, until: float, running: bool = False, compress: bool = True) -> Timeline:
    """Return the timeline of this many seconds."""
    return draw_timeline(intervals, start=START, until=at(until), running=running, compress=compress)


def labels(timeline: Timeline) -> list[str]:
    """Return the labels of the axis."""
    return [tick.label for tick in timeline.ticks]


PROTOTYPE = (
    ran(1, 0, 12),
    ran(2, 0, 6, "retry"),
    ran(2, 9, 21),
    ran(4, 21, 47),
    ran(5, 47, 91),
    ran(6, 91, None, "waiting"),
)


def test_timeline_of_prototype_plan() -> None:
    timeline = drawn(*PROTOTYPE, until=340, running=True)
    assert labels(timeline) == ["0", "30 s", "1 min", "1:31", "now"]
    assert [tick.offset for tick in timeline.ticks] == pytest.approx([0, 20.4, 40.9, 62, 94], abs=1)
    assert (timeline.bars[-1].offset, timeline.bars[-1].width) == pytest.approx((62, 32), abs=1)
    assert timeline.now == 94


def test_uncompressed_wait_is_to_scale() -> None:
    wait = drawn(*PROTOTYPE, until=340, running=True, compress=False).bars[-1]
    assert wait.width == pytest.approx(94 * 249 / 340, abs=0.02)


def test_wait_during_work_is_not_compressed() -> None:
    timeline = drawn(ran(1, 0, 100), ran(2, 10, 90, "waiting"), until=100)
    assert [(bar.offset, bar.width) for bar in timeline.bars] == [(0, 100), (10, 80)]


def test_long_wait_leaves_work_readable() -> None:
    timeline = drawn(ran(1, 0, 1), ran(2, 1, 86_401, "waiting"), ran(2, 86_401, 86_402), until=86_402)
    assert timeline.bars[0].width > 20
    assert timeline.bars[2].width > 20


def test_short_work_is_not_drawn_wider_than_a_wait() -> None:
    """Neither in a plan of 1.6 s nor beside a wait of an hour."""
    for until in (1.6, 3600.0):
        timeline = drawn(ran(1, 0, 0.055), ran(2, 0.055, until, "waiting"), until=until)
        assert timeline.bars[0].width < 5 < 90 < timeline.bars[1].width


def test_wait_without_work_fills_lane() -> None:
    (bar,) = drawn(ran(1, 0, None, "waiting"), until=5000, running=True).bars
    assert (bar.offset, bar.width) == (0, 94)


def test_plan_without_intervals_has_axis() -> None:
    assert labels(drawn(until=0)) == ["0", "0 s"]


@pytest.mark.parametrize(
    ("seconds", "label"),
    [
        (0.31, "0.3 s"),
        (3.04, "3 s"),
        (59.6, "1 min"),
        (91, "1:31"),
        (7200, "2 h"),
        (3725, "1:02:05"),
        (259_200, "3 d"),
    ],
)
def test_time_labels(seconds: float, label: str) -> None:
    assert labels(drawn(ran(1, 0, seconds), until=seconds))[-1] == label


KINDS = st.sampled_from(["working", "waiting", "retry"])
SECONDS = st.floats(-100, 1e6)
INTERVALS = st.lists(
    st.builds(lambda begin, length, kind: ran(1, begin, begin + length, kind), SECONDS, st.floats(0, 1e5), KINDS),
    max_size=20,
)


@given(INTERVALS, st.floats(0, 1e6), st.booleans(), st.booleans())
def test_bars_and_labels_stay_on_lane(intervals: list[Interval], until: float, running: bool, compress: bool) -> None:
    timeline = drawn(*intervals, until=until, running=running, compress=compress)
    end = 94 if running else 100
    assert len(timeline.bars) == len(intervals)
    assert all(bar.offset >= 0 and bar.width >= 0 and bar.offset + bar.width <= end + 0.02 for bar in timeline.bars)
    assert timeline.ticks[0].offset == 0
    assert timeline.ticks[-1].offset == pytest.approx(end, abs=0.02)
    assert all(right.offset - left.offset >= room(left, right) for left, right in pairwise(timeline.ticks))


def room(left: Tick, right: Tick) -> float:
    """Return the minimum distance of two labels."""
    own = max(20, 4.2 * len(right.label)) if right.is_end else 10 if right.label == "now" else 0
    return max(20, 4.2 * len(left.label)) + own


def test_tick_near_start_has_no_label() -> None:
    timeline = drawn(ran(1, 0, 0.04), ran(2, 0.04, None, "waiting"), until=120, running=True)
    assert labels(timeline) == ["0", "now"]


@given(INTERVALS)
def test_offsets_keep_order(intervals: list[Interval]) -> None:
    ordered = sorted(intervals, key=lambda each: each.start)
    offsets = [bar.offset for bar in drawn(*ordered, until=1e6).bars]
    assert offsets == sorted(offsets)


def test_labels_are_not_repeated() -> None:
    for end in (30.2, 60.3, 119.7):
        timeline = drawn(ran(1, 0, end / 2), ran(2, end / 2, end), until=end)
        assert len(labels(timeline)) == len(set(labels(timeline)))
    wait = drawn(ran(1, 0, 30.3), ran(2, 30.3, 400, "waiting"), ran(3, 400, 460), until=460)
    assert len(labels(wait)) == len(set(labels(wait)))


@pytest.mark.parametrize(("kind", "moves"), [("working", True), ("preparing", False), ("put_off", False)])
def test_axis_shrinks_while_step_works(kind: Kind, moves: bool) -> None:
    timeline = drawn(ran(1, 0, 10), ran(2, 10, None, kind), until=20, running=True)
    assert timeline.length == pytest.approx(20 if moves else 15)  # waits are compressed
    assert timeline.moves is moves
    assert [bar.is_open for bar in timeline.bars] == [False, True]
    assert drawn(ran(1, 0, 10), ran(2, 10, 20, kind), until=20).moves is False


@pytest.mark.django_db
def test_waiting_is_not_work(stage: Stage, ada: User) -> None:
    plan = work_off(make_plan(ada, act(1, tool="dangerous")))
    assert load_overview(plan).working_ms == 0
    assert [stroke.look for stroke in load_overview(plan).steps[0].timeline_bars] == ["idle", "human"]


@pytest.mark.django_db
def test_failed_and_deferred_attempts_differ(stage: Stage, ada: User) -> None:
    stage.acts["cautious_patient"] = act_raising(ValueError("later"))
    plan = work_off(make_plan(ada, act(1, tool="cautious_patient")))
    began = clock.now() - timedelta(seconds=10)
    RateBucket.objects.create(group="stage:min", owner=f"user:{ada.pk}", window_started_at=began, used=2)
    other = work_off(make_plan(ada, act(1, 1, "limited")))
    looks = [[stroke.look for stroke in load_overview(each).steps[0].timeline_bars] for each in (plan, other)]
    assert looks == [["retry", "put-off"], ["idle", "put-off"]]
