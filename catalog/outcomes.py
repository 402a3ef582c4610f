"""How the implementations of a tool do beside each other: calls, success, time. Reads calls, never their contents."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from catalog.models import Call, Implementation, Tool
from catalog.states import CallStatus

LAST_CALLS = 1000
"""The newest calls of the tool that are looked at."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one implementation did in the tool's newest calls; times in milliseconds, None while nothing was timed."""

    implementation: Implementation
    share: float
    calls: int
    completed: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None
    last_call_at: datetime | None

    @property
    def success_rate(self) -> float | None:
        """The part of the ended calls that succeeded, 0 to 1; None while none has ended."""
        ended = self.completed + self.failed
        return self.completed / ended if ended else None


def outcomes_of(tool: Tool) -> list[Outcome]:
    """Return how each implementation did, in two queries; `share` is the part of new plans that it gets, 0 to 1."""
    implementations = list(tool.implementations.order_by("pk"))
    seen: dict[int | None, list[_Seen]] = defaultdict(list)
    for each in _newest_calls(tool):
        seen[each.implementation].append(each)
    shares = _shares(implementations)
    return [_outcome(each, shares[each.pk], seen[each.pk]) for each in implementations]


@dataclass(frozen=True, slots=True)
class _Seen:
    implementation: int | None
    status: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def _newest_calls(tool: Tool) -> Iterable[_Seen]:
    calls = Call.objects.filter(tool_name=tool.name).order_by("-created_at")
    columns: Any = ("implementation_id", "status", "created_at", "started_at", "finished_at")
    return (_Seen(*values) for values in calls.values_list(*columns)[:LAST_CALLS])


def _shares(implementations: list[Implementation]) -> dict[int, float]:
    weights = {each.pk: each.weight if each.enabled and each.registered else 0 for each in implementations}
    total = sum(weights.values())
    return {pk: weight / total if total else 0.0 for pk, weight in weights.items()}


def _outcome(implementation: Implementation, share: float, seen: list[_Seen]) -> Outcome:
    statuses = [each.status for each in seen]
    timed = (each for each in seen if each.status == CallStatus.COMPLETED)
    spans = sorted(
        (each.finished_at - each.started_at).total_seconds() * 1000
        for each in timed
        if each.started_at and each.finished_at
    )
    return Outcome(
        implementation=implementation,
        share=share,
        calls=len(seen),
        completed=statuses.count(CallStatus.COMPLETED),
        failed=statuses.count(CallStatus.FAILED),
        p50_ms=percentile(spans, 0.5),
        p95_ms=percentile(spans, 0.95),
        last_call_at=seen[0].created_at if seen else None,
    )


def percentile(ordered: list[float], part: float) -> float | None:
    """Return the least of the ordered values that this part of them does not exceed; None without any."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
