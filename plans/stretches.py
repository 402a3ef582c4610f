"""When a plan's steps worked, waited and tried again, as intervals for the timeline.

How long a step waits now is read from its row and its call's; what was before, from the events that are telling of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime

from plans.engine.starting import DRIFTED
from plans.models import Event, Plan, Step
from plans.states import WaitingFor
from plans.timeline import IDLE, Interval, Kind

RETRYING, WAITING, GIVEN = "step.retrying", "step.waiting", "input.received"
FOR_PEOPLE = (WaitingFor.APPROVAL.value, WaitingFor.INPUT.value)


def telling(plan: Plan) -> QuerySet[Event]:
    """Return the events that tell of tries that failed, and of waits that ended with what a person gave; in order."""
    given = plan.events.filter(type=GIVEN).values("step_id")
    return plan.events.filter(Q(type=RETRYING) | Q(type__in=(WAITING, GIVEN), step_id__in=given)).order_by("seq")


def stretches(steps: Iterable[Step], events: Mapping[int, Sequence[Event]]) -> list[Interval]:
    """Return the intervals of all steps; `events` has what is `telling` of each step, oldest first."""
    return [each for step in steps for each in _of_step(step, events.get(step.step_id, ()))]


def _of_step(step: Step, events: Sequence[Event]) -> list[Interval]:
    found = [each for event in events if event.type == RETRYING for each in _earlier_try(event)]
    if step.started_at is None or step.skipped:
        return found
    past, begun = _past(step, step.started_at, events)
    if step.waiting_for == WaitingFor.RETRY and step.waiting_since is not None:
        put_off = past.pop().start if past and past[-1].kind == "put_off" else step.waiting_since
        return [*found, *past, Interval(step.step_id, "put_off", put_off)]
    if step.agent:  # it waits for what it asked and called, which have rows of their own
        return [*found, *past, Interval(step.step_id, "agent", begun, step.completed_at)]
    wait = _wait_of(step)
    if wait is not None and past and past[-1].kind == "waiting":  # nothing ran since: it is one wait
        begun = past.pop().start
        wait = _Wait(begun, wait.end)
    found += past
    if wait is None or wait.begin < begun:
        return [*found, *_stretch(step, begun, step.completed_at)]
    found += _stretch(step, begun, wait.begin, kind="working" if _has_run(step, wait.begin) else "preparing")
    found.append(Interval(step.step_id, "waiting", wait.begin, wait.end or step.completed_at))
    return found if wait.end is None else [*found, *_stretch(step, wait.end, step.completed_at)]


def _past(step: Step, begun: datetime, events: Iterable[Event]) -> tuple[list[Interval], datetime]:
    """Return the tries and the waits that are over since the step began, and when it went on after them.

    A step that asks again with what it was given has not run meanwhile: that is one wait. What was put off before it
    could run has not failed.
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
            found += _stretch(step, begun, since, kind="preparing")
            found.append(Interval(step.step_id, "waiting", since, event.at))
            begun, since = event.at, None
        elif event.type == RETRYING:
            found += _stretch(step, begun, event.at, kind="retry" if _has_failed(event) else "preparing")
            begun, since = event.at + timedelta(seconds=float(event.data_json.get("seconds", 0))), None
            found += _stretch(step, event.at, begun, kind="put_off")
    return found, begun


def _has_failed(retry: Event) -> bool:
    """Say whether a try failed, and is not only put off or handed on: it says then of how many it was one."""
    return "of" in retry.data_json and retry.data_json.get("error") != DRIFTED


def _has_run(step: Step, before: datetime) -> bool:
    """Say whether the step's call began before this moment."""
    return step.call is not None and step.call.started_at is not None and step.call.started_at < before


def _earlier_try(retry: Event) -> list[Interval]:
    """Return the try that had failed when a person had the step tried again."""
    began, ended = (parse_datetime(str(retry.data_json.get(name, ""))) for name in ("began", "ended"))
    return [Interval(retry.step_id or 0, "retry", began, ended)] if began and ended else []


def _stretch(step: Step, begin: datetime, end: datetime | None, *, kind: Kind = "working") -> list[Interval]:
    return [] if end is not None and end <= begin else [Interval(step.step_id, kind, begin, end)]


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
