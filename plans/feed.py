"""News of plans for whoever waits for it on this event loop: events read once per plan, calls that end, bells.

A poke names a plan and a number, no data. Numbers have no gaps, so a subscriber that is handed 7 after 5 reads what it
missed from the database; a look at the counters of all watched plans each second makes up for pokes that were lost.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from channels.db import DatabaseSyncToAsync

from catalog.models import Call
from catalog.states import TERMINAL
from plans import events
from plans.lines_of_events import Line, lines_after
from plans.models import Plan
from plans.pokes import Pokes

ResultT = TypeVar("ResultT")
READERS = 4
LOOK_SECONDS = 1.0
LINES_AT_ONCE = 500
LINES_KEPT = 1000
"""Lines a slow subscriber may be behind in memory; past that it reads them again from the database."""

Bell = asyncio.Event


@dataclass(slots=True, eq=False)
class Watched:
    """One plan that someone on this loop watches."""

    ref: str
    heard: int = 0
    read: int = 0
    bells: set[Bell] = field(default_factory=set)
    subscriptions: "set[Subscription]" = field(default_factory=set)
    reading: "asyncio.Task[None] | None" = None


class Feed:
    """All the watching on one event loop. Everything but `poke` is called on that loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.bells: set[Bell] = set()
        self._plans: dict[str, Watched] = {}
        self._poked: dict[str, int] = {}
        self._lock = threading.Lock()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="toolgate-feed")
        self._others = Pokes(self._hear)
        self._looking = self.loop.create_task(self._look_again_and_again())

    async def stop(self) -> None:
        """Stop looking; what still waits is left to whoever cancels it."""
        _feeds.pop(self.loop, None)
        self._looking.cancel()
        self._others.stop()
        self._readers.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking

    async def run(self, function: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run a function that reads the database in one of this feed's threads."""
        call = DatabaseSyncToAsync(function, thread_sensitive=False, executor=self._readers)
        result: ResultT = await call(*arguments)
        return result

    def poke(self, plan_ref: str, last_seq: int) -> None:
        """Hear from any thread that a plan has events up to `last_seq`; wakes the loop once for many pokes."""
        if not self.bells and plan_ref not in self._plans and not self._others.wanted:
            return
        with self._lock:
            first = not self._poked
            self._poked[plan_ref] = last_seq
        if first:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self.loop.call_soon_threadsafe(self._take_pokes)

    def _take_pokes(self) -> None:
        with self._lock:
            poked, self._poked = self._poked, {}
        self._others.send(poked)
        self._hear(poked)

    def _hear(self, poked: dict[str, int]) -> None:
        """Take in what was said of plans, here or in another process."""
        for plan_ref, last_seq in poked.items():
            watched = self._plans.get(plan_ref)
            if watched is not None and last_seq > watched.heard:
                watched.heard = last_seq
                _ring(watched.bells)
                self._read(watched)
        if poked:
            _ring(self.bells)

    def _read(self, watched: Watched) -> None:
        if watched.subscriptions and watched.reading is None:
            watched.reading = self.loop.create_task(self._hand_out(watched))

    async def _hand_out(self, watched: Watched) -> None:
        """Read what is new, once, and hand it to every subscription."""
        try:
            while watched.heard > watched.read and watched.subscriptions:
                lines = await self.run(lines_after, watched.ref, watched.read, LINES_AT_ONCE)
                if not lines:
                    break
                watched.read = lines[-1].seq
                for subscription in watched.subscriptions:
                    subscription.offer(lines)
        finally:
            watched.reading = None

    async def _look_again_and_again(self) -> None:
        """Find what no poke told of: lost ones, and those of processes that have none to send."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(Exception):  # a database that is away now is asked again in a second
                self._hear(await self.run(_last_numbers, list(self._plans)))
            _ring(self.bells)

    @contextmanager
    def _watching(self, plan_ref: str) -> Iterator[Watched]:
        watched = self._plans.setdefault(plan_ref, Watched(plan_ref))
        try:
            yield watched
        finally:
            if not watched.bells and not watched.subscriptions:
                self._plans.pop(plan_ref, None)

    @contextmanager
    def listening(self, plan_ref: str | None = None) -> Iterator[Bell]:
        """Give a bell that rings whenever a plan has events: this one, or any (then also once a second)."""
        bell = Bell()
        if plan_ref is None:
            self.bells.add(bell)
            yield bell
            self.bells.discard(bell)
            return
        with self._watching(plan_ref) as watched:
            watched.bells.add(bell)
            try:
                yield bell
            finally:
                watched.bells.discard(bell)
