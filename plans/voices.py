"""What models say while they are still speaking, brought to whoever listens on this event loop.

Lossy on purpose: nothing of it is stored. Who listens late hears the newest text of each step whose model still speaks,
as far as this process has heard it; of what waits for a slow listener only the newest is kept. It crosses processes
over Redis, where there is one (and a process hears itself again, a moment later): the words of models, of each step up
to the length that `plans.agents.speaking` cuts them to, on their way to who may read them. Who reads that Redis reads
them.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from plans.pokes import Pokes

GROUP = "voices"
MOST_KEPT = 1_000
"""Texts that are kept for who listens late; the oldest are let go first."""
KEPT_SECONDS = 120.0
"""A model that has been silent for longer may have been cut off: nobody would say that its turn is over."""

Said = dict[str, str]
"""Texts by "plan step"."""


class Ear:
    """One listener to a plan: the newest text of each of its steps that it has not heard yet."""

    def __init__(self) -> None:
        self._said: dict[int, str] = {}
        self._bell = asyncio.Event()

    def hear(self, step_id: int, text: str) -> None:
        """Take in what a step says now."""
        self._said[step_id] = text
        self._bell.set()

    async def news(self) -> Mapping[int, str]:
        """Return what was not heard yet, by the numbers of steps, once there is something."""
        await self._bell.wait()
        self._bell.clear()
        said, self._said = self._said, {}
        return said


class Voices:
    """All the speaking and listening on one event loop. Everything but `say` is called on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ears: dict[str, set[Ear]] = {}
        self._said: Said = {}
        self._newest: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._others: Pokes[str] = Pokes(self._hear_others, GROUP)

    @property
    def tasks(self) -> "Sequence[asyncio.Future[None]]":
        """What runs until it is stopped."""
        return self._others.tasks

    def stop(self) -> None:
        """Say and hear nothing more."""
        self._others.stop()

    def say(self, plan_ref: str, step_id: int, text: str) -> None:
        """Say, in any thread, what the model of a step has said so far; nothing when its turn is over."""
        place = f"{plan_ref} {step_id}"
        with self._lock:
            self._keep(place, text)
            if plan_ref not in self._ears and not self._others.wanted:
                return
            is_first = not self._said
            self._said[place] = text
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        with self._lock:
            said, self._said = self._said, {}
        self._others.send(said)
        self._hear(said)

    def _keep(self, place: str, text: str) -> None:
        """Keep the newest text of a step for who listens late, under the lock."""
        self._newest.pop(place, None)
        now = time.monotonic()
        if text:
            self._newest[place] = text, now
        while self._newest and (len(self._newest) > MOST_KEPT or now - self._oldest() > KEPT_SECONDS):
            del self._newest[next(iter(self._newest))]

    def _oldest(self) -> float:
        return next(iter(self._newest.values()))[1]

    def _hear_others(self, said: Said) -> None:
        with self._lock:
            for place, text in said.items():
                self._keep(place, text)
        self._hear(said)

    def _hear(self, said: Said) -> None:
        """Take in what was said, in this process or another."""
        for place, text in said.items():
            plan_ref, _, number = place.rpartition(" ")
            for ear in self._ears.get(plan_ref, ()):
                ear.hear(int(number), text)

    @contextmanager
    def listen(self, plan_ref: str) -> Iterator[Ear]:
        """Listen to the steps of a plan from now on, and hear what those that still speak have said so far."""
        ear = Ear()
        ears = self._ears.setdefault(plan_ref, set())
        ears.add(ear)
        for number, text in self._spoken(plan_ref):
            ear.hear(number, text)
        try:
            yield ear
        finally:
            ears.discard(ear)
            if not ears:
                self._ears.pop(plan_ref, None)

    def _spoken(self, plan_ref: str) -> Iterator[tuple[int, str]]:
        with self._lock:
            newest = list(self._newest.items())
        for place, (text, at) in newest:
            where, _, number = place.rpartition(" ")
            if where == plan_ref and time.monotonic() - at < KEPT_SECONDS:
                yield int(number), text
