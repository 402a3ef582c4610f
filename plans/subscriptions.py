"""One reader's way through a plan's events: in order, none twice, none left out, however slow the reader is."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from catalog.core.canonical_json import time_text
from plans.models import Event

LINES_AT_ONCE = 500
LINES_KEPT = 1000
"""How many lines wait in memory for a slow reader; one that is further behind reads them from the database."""


@dataclass(frozen=True, slots=True)
class Line:
    """One event as clients are told it, written once for all of them."""

    seq: int
    text: str


def lines_after(plan_ref: str, seq: int) -> list[Line]:
    """Return the plan's next events numbered above `seq`, at most LINES_AT_ONCE."""
    found = Event.objects.filter(plan__public_id=plan_ref, seq__gt=seq).order_by("seq")
    return [Line(event.seq, json.dumps(event_json(event), ensure_ascii=False)) for event in found[:LINES_AT_ONCE]]


def event_json(event: Event) -> dict[str, object]:
    """Return an event as clients are told it."""
    return {
        "seq": event.seq,
        "type": event.type,
        "at": time_text(event.at),
        "step_id": event.step_id,
        "data": event.data_json,
    }


class Subscription:
    """An endless iterator of batches of lines. `offer` is called with what is new; the rest it reads by itself."""

    def __init__(self, read: Callable[[int], Awaitable[list[Line]]], after: int) -> None:
        self._read = read
        self.seq = after
        self._waiting: list[Line] = []
        self._behind = True
        self._news = asyncio.Event()

    def offer(self, lines: list[Line]) -> None:
        """Take new lines, or, when too many wait already, forget them: they are read again."""
        if len(self._waiting) + len(lines) > LINES_KEPT:
            self._waiting.clear()
            self._behind = True
        elif not self._behind:
            self._waiting += lines
        self._news.set()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> list[Line]:
        """Return the next lines; their numbers go on from the last without a gap."""
        while True:
            fresh = await self._catch_up() if self._behind else await self._follow()
            if fresh:
                self.seq = fresh[-1].seq
                return fresh

    async def _catch_up(self) -> list[Line]:
        """Read what is stored; what is offered meanwhile waits."""
        self._behind = False
        lines = await self._read(self.seq)
        self._behind = self._behind or len(lines) == LINES_AT_ONCE
        return lines

    async def _follow(self) -> list[Line]:
        """Return the waiting lines that come next; where they do not follow on, the database is asked."""
        await self._news.wait()
        self._news.clear()
        lines, self._waiting = self._waiting, []
        fresh: list[Line] = []
        for line in lines:
            wanted = self.seq + len(fresh) + 1
            if line.seq == wanted:
                fresh.append(line)
            elif line.seq > wanted:
                self._behind = True
                break
        return fresh
