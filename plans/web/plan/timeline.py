"""Timeline of a plan: when its steps worked, waited and were retried, in percent of a lane; long waits are compressed.

The current wait of a step is read from the rows of the step and its call, earlier waits from events. Templates style
the bars.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Literal

from django.utils.dateparse import parse_datetime

from plans.engine.retries import DRIFTED
from plans.models import Event, Plan, Step
from plans.states import WaitingFor

Kind = Literal["working", "waiting", "retry", "agent", "preparing", "put_off"]
IDLE = ("waiting", "agent", "preparing", "put_off")
"""Kinds that are not work: waiting for people, an agent's step waiting for its calls, preparing a preview before
approval is requested, or deferred."""

NOW, NOW_LABEL = 94.0, "now"
WAITS_PER_WORK = 0.5
SHORTEST_WAIT = 2.0
"""Seconds of the axis that a compressed wait keeps, so that it never looks shorter than work of milliseconds."""
MOST_TICKS = 4
LABEL_WIDTH, CHARACTER_WIDTH, HALF_OF_NOW = 20.0, 4.2, 10.0
"""In percent. Beside the open step the lane is about 140 px wide and a label like 1:31 takes 28 px, longer ones more.
The label "now" is centred; the end of a plan ends at its offset; others start at theirs."""
_STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200),
)
_DAY = 86400


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval in the life of one step; `end` is None while it lasts."""

    step_id: int
    kind: Kind
    start: datetime
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlacedInterval:
    """An interval on its lane: offset and width in percent; `is_open` while it lasts."""

    step_id: int
    kind: Kind
    offset: float
    width: float
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """A label on the axis at an offset in percent; `is_end` for the end of a plan, which stands before its offset."""

    offset: float
    label: str
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bars in the order of the intervals, ticks of the axis, and the offset of the present (None after the end).

    `length` is the length of the axis until the present or the end in seconds, with long waits compressed. While a
    step works, `moves` is true, and the page shrinks the axis as time passes.
    """

    bars: tuple[PlacedInterval, ...]
    ticks: tuple[Tick, ...]
    now: float | None
    length: float
    moves: bool = False


def draw_timeline(
    intervals: Sequence[Interval], *, start: datetime, until: datetime, running: bool, compress: bool = True
) -> Timeline:
    """Return the timeline from `start` to `until`, the end of the plan or the present while it runs."""
    length = max((until - start).total_seconds(), 0.001)
    spans = [(_within(each.start, start, length), _within(each.end or until, start, length)) for each in intervals]
    work = _union([span for span, each in zip(spans, intervals, strict=True) if each.kind not in IDLE])
    scale = _Scale(work if compress and work else [(0.0, length)], length, NOW if running else 100.0)
    bars = (
        PlacedInterval(
            each.step_id,
            each.kind,
            scale.at(begin),
            round(max(0.0, scale.at(end) - scale.at(begin)), 2),
            is_open=running and each.end is None,
        )
        for each, (begin, end) in zip(intervals, spans, strict=True)
    )
    moves = running and any(each.end is None and each.kind not in IDLE for each in intervals)
    now = NOW if running else None
    length = round((now or 100.0) / scale.per_second, 3)
    return Timeline(tuple(bars), tuple(_ticks(scale, running=running)), now, length, moves)


def _within(moment: datetime, start: datetime, length: float) -> float:
    return min(max((moment - start).total_seconds(), 0.0), length)


Span = tuple[float, float]


def _union(spans: Sequence[Span]) -> list[Span]:
    """Return the spans sorted, with touching ones merged and empty ones removed."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > begin:
            joined.append((begin, end))
    return joined


class _Scale:
    """Maps seconds to percent of the lane: work is to scale, all long waits together half as wide as the work.

    A wait is not drawn shorter than SHORTEST_WAIT.
    """

    def __init__(self, work: Sequence[Span], length: float, width: float) -> None:
        self.length = length
        edges = [0.0, *(edge for span in work for edge in span), length]
        self.stretches = [(begin, end, bool(place % 2)) for place, (begin, end) in enumerate(pairwise(edges))]
        working = sum(end - begin for begin, end in work)
        share = max(working * WAITS_PER_WORK / len(work), SHORTEST_WAIT)
        self.waits = [(begin, end) for begin, end, works in self.stretches if not works and end - begin > share]
        drawn = [end - begin if works else min(end - begin, share) for begin, end, works in self.stretches]
        self.per_second = width / sum(drawn)
        self.offsets = [0.0, *(seconds * self.per_second for seconds in accumulate(drawn))]
        self.working = working

    def at(self, seconds: float) -> float:
        place = max(0, bisect_right(self.stretches, (seconds, float("inf"), True)) - 1)
        begin, end, _ = self.stretches[place]
        part = (seconds - begin) / (end - begin) if end > begin else 0.0
        return round(self.offsets[place] + part * (self.offsets[place + 1] - self.offsets[place]), 2)


def _ticks(scale: _Scale, *, running: bool) -> Iterator[Tick]:
    """Yield ticks for 0, the end, starts of long waits and round times, without overlaps or repeated labels."""
    end = Tick(scale.at(scale.length), NOW_LABEL if running else _label(scale.length), is_end=not running)
    placed = [Tick(0.0, "0"), end]
    step = next((each for each in _STEPS if scale.working / each <= MOST_TICKS), None)
    step = step or _DAY * max(1, round(scale.working / _DAY / MOST_TICKS))
    times = [begin for begin, _ in scale.waits]
    for begin, until, works in scale.stretches:
        if works or (begin, until) not in scale.waits:  # round times outside the compressed waits
            times += [number * step for number in range(int(begin // step) + 1, int(until // step) + 1)]
    for seconds in times:
        new = Tick(scale.at(seconds), _label(seconds))
        if new.label != _label(0) and all(
            new.label != tick.label and _do_not_overlap(*sorted((new, tick), key=attrgetter("offset")))
            for tick in placed
        ):
            placed.append(new)
    yield from sorted(placed, key=attrgetter("offset"))


def _do_not_overlap(left_tick: Tick, right_tick: Tick) -> bool:
    before = _width(right_tick) if right_tick.is_end else HALF_OF_NOW if right_tick.label == NOW_LABEL else 0.0
    return left_tick.offset + _width(left_tick) <= right_tick.offset - before


def _width(tick: Tick) -> float:
    return max(LABEL_WIDTH, CHARACTER_WIDTH * len(tick.label))


def _label(seconds: float) -> str:
    """Return a time since the start in short form: 0.2 s, 30 s, 1 min, 1:31, 2 h, 1:02:05, 3 d."""
    if seconds < 10 and round(seconds, 1) % 1:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name in ((_DAY, "d"), (3600, "h"), (60, "min")):
        if whole >= unit and whole % unit == 0:
            return f"{whole // unit} {name}"
    if whole < 60:
        return f"{whole} s"
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


RETRYING, WAITING, GIVEN = "step.retrying", "step.waiting", "input.received"
FOR_PEOPLE = (WaitingFor.APPROVAL.value, WaitingFor.INPUT.value)


INTERVAL_TYPES = (RETRYING, WAITING, GIVEN)


def interval_events(plan: Plan) -> list[Event]:
    """Return the events of failed attempts and of waits that ended with a person's input, in order."""
    return interval_events_among(plan.events.filter(type__in=INTERVAL_TYPES).order_by("seq"))


def interval_events_among(events: Iterable[Event]) -> list[Event]:
    """Return those of a plan's events that `interval_events` returns."""
    found = [event for event in events if event.type in INTERVAL_TYPES]
    given = {event.step_id for event in found if event.type == GIVEN}
    return [event for event in found if event.type == RETRYING or event.step_id in given]


def step_intervals(steps: Iterable[Step], events: Mapping[int, Sequence[Event]]) -> list[Interval]:
    """Return the intervals of all steps; `events` maps step ids to their `interval_events`, oldest first."""
    return [each for step in steps for each in _intervals_of_step(step, events.get(step.step_id, ()))]


def _intervals_of_step(step: Step, events: Sequence[Event]) -> list[Interval]:
    found = []
    for event in events:
        if event.type == RETRYING:  # by a person: the event records the failed attempt before it
            began, ended = (parse_datetime(str(event.data_json.get(name, ""))) for name in ("began", "ended"))
            if began and ended:
                found.append(Interval(event.step_id or 0, "retry", began, ended))
    if step.started_at is None or step.skipped:
        return found
    past, begun = _past_intervals(step, step.started_at, events)
    if step.waiting_for == WaitingFor.RETRY and step.waiting_since is not None:
        put_off = past.pop().start if past and past[-1].kind == "put_off" else step.waiting_since
        return [*found, *past, Interval(step.step_id, "put_off", put_off)]
    if step.agent:  # its turns and calls have rows of their own
        return [*found, *past, Interval(step.step_id, "agent", begun, step.completed_at)]
    wait = _wait_for_people(step)
    if wait is not None and past and past[-1].kind == "waiting":  # nothing ran in between, so it is one wait
        begun = past.pop().start
        wait = _PastWait(begun, wait.end)
    found += past
    if wait is None or wait.begin < begun:
        return [*found, *_interval(step, begun, step.completed_at)]
    has_run = step.call is not None and step.call.started_at is not None and step.call.started_at < wait.begin
    found += _interval(step, begun, wait.begin, kind="working" if has_run else "preparing")
    found.append(Interval(step.step_id, "waiting", wait.begin, wait.end or step.completed_at))
    return found if wait.end is None else [*found, *_interval(step, wait.end, step.completed_at)]


def _past_intervals(step: Step, begun: datetime, events: Iterable[Event]) -> tuple[list[Interval], datetime]:
    """Return the past attempts and waits of a step since it began, and the time at which it continued.

    A step that requests approval again with new input has not run in between, so both waits are one. A step that was
    deferred before it could run has not failed.
    """
    found: list[Interval] = []
    since: datetime | None = None
    for event in events:
        if event.at < begun:
            continue
        if event.type == WAITING and event.data_json.get("waiting_for") in FOR_PEOPLE:
            since = since or event.at
        elif event.type == GIVEN and since is not None:
            if found and found[-1].kind == "waiting":
                since = found.pop().start
            found += _interval(step, begun, since, kind="preparing")
            found.append(Interval(step.step_id, "waiting", since, event.at))
            begun, since = event.at, None
        elif event.type == RETRYING:
            # Only failures record `of`; an attempt that was merely deferred or handed over has none.
            has_failed = "of" in event.data_json and event.data_json.get("error") != DRIFTED
            found += _interval(step, begun, event.at, kind="retry" if has_failed else "preparing")
            begun, since = event.at + timedelta(seconds=float(event.data_json.get("seconds", 0))), None
            found += _interval(step, event.at, begun, kind="put_off")
    return found, begun


def _interval(step: Step, begin: datetime, end: datetime | None, *, kind: Kind = "working") -> list[Interval]:
    return [] if end is not None and end <= begin else [Interval(step.step_id, kind, begin, end)]


@dataclass(frozen=True, slots=True)
class _PastWait:
    begin: datetime
    end: datetime | None


def _wait_for_people(step: Step) -> _PastWait | None:
    """Return the period in which the step waits or waited for people, or None.

    A call that was sent back without starting waited first for its reviewers, then for new arguments.
    """
    call = step.call
    request = getattr(call, "approval", None) if call is not None else None
    is_handed_out = step.waiting_for == WaitingFor.CLIENT and call is not None and call.started_at is not None
    if step.waiting_for and step.waiting_since is not None and not is_handed_out:
        if request is None or call is None or call.started_at is not None:
            return _PastWait(step.waiting_since, None)
        return _PastWait(min(step.waiting_since, request.opened_at), None)
    if call is None or request is None:
        return None
    return _PastWait(request.opened_at, call.started_at)


def working_seconds(intervals: Iterable[Interval], until: datetime) -> float:
    """Return the seconds during which at least one step was working."""
    spans = sorted((each.start, each.end or until) for each in intervals if each.kind not in IDLE)
    total, reached = 0.0, None
    for begin, end in spans:
        start = begin if reached is None else max(begin, reached)
        total += max(0.0, (end - start).total_seconds())
        reached = end if reached is None else max(reached, end)
    return total
