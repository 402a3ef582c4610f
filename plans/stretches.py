"""When a plan's steps worked, waited and tried again, as intervals for the timeline. Reads rows, asks for none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.dateparse import parse_datetime

from plans.models import Event, Step
from plans.timeline import IDLE, Interval


def stretches(steps: Iterable[Step], retries: Mapping[int, Sequence[Event]]) -> list[Interval]:
    """Return the intervals of all steps; `retries` has the step.retrying events of each step, oldest first."""
    return [each for step in steps for each in _of_step(step, retries.get(step.step_id, ()))]


def _of_step(step: Step, retries: Sequence[Event]) -> list[Interval]:
    found = [each for retry in retries for each in _earlier_try(retry)]
    if step.started_at is None or step.skipped:
        return found
    begun = step.started_at
    for retry in retries:
        if retry.at < begun:
            continue
        found.append(Interval(step.step_id, "retry", begun, retry.at))
        begun = retry.at + timedelta(seconds=float(retry.data_json.get("seconds", 0)))
    if step.agent:  # it waits for what it asked and called, which have rows of their own
        return [*found, Interval(step.step_id, "agent", begun, step.completed_at)]
    wait = _wait_of(step)
    if wait is None or wait.begin < begun:
        return [*found, *_stretch(step, begun, step.completed_at)]
    found += _stretch(step, begun, wait.begin)
    found.append(Interval(step.step_id, "waiting", wait.begin, wait.end or step.completed_at))
    return found if wait.end is None else [*found, *_stretch(step, wait.end, step.completed_at)]


def _earlier_try(retry: Event) -> list[Interval]:
    """Return the try that had failed when a person had the step tried again."""
    began, ended = (parse_datetime(str(retry.data_json.get(name, ""))) for name in ("began", "ended"))
    return [Interval(retry.step_id or 0, "retry", began, ended)] if began and ended else []


def _stretch(step: Step, begin: datetime, end: datetime | None) -> list[Interval]:
    return [] if end is not None and end <= begin else [Interval(step.step_id, "working", begin, end)]


@dataclass(frozen=True, slots=True)
class _Wait:
    begin: datetime
    end: datetime | None


def _wait_of(step: Step) -> _Wait | None:
    """Return when people were waited for; None when nobody was.

    Of a call that never began and was sent back, first its reviewers were waited for, then whoever has to change it.
    """
    call = step.call
    request = getattr(call, "approval", None) if call is not None else None
    if step.waiting_for and step.waiting_since is not None:
        if request is None or call is None or call.started_at is not None:
            return _Wait(step.waiting_since, None)
        return _Wait(min(step.waiting_since, request.opened_at), None)
    if call is None or request is None:
        return None
    return _Wait(request.opened_at, call.started_at)


def working_seconds(intervals: Iterable[Interval], until: datetime) -> float:
    """Return how long at least one step was at work."""
    spans = sorted((each.start, each.end or until) for each in intervals if each.kind not in IDLE)
    total, reached = 0.0, None
    for begin, end in spans:
        start = begin if reached is None else max(begin, reached)
        total += max(0.0, (end - start).total_seconds())
        reached = end if reached is None else max(reached, end)
    return total
