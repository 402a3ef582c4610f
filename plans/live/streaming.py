"""What models say while they are still speaking, brought to whoever listens on this event loop.

Best effort: nothing is stored, and of what waits for a slow listener only the newest is kept. A late listener gets the
whole text so far with the model's next words. Between processes it crosses Redis, encrypted with TOOLGATE_SECRET_KEYS;
a process then also hears itself again, a moment later.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from plans.live.broadcast import BroadcastChannel

GROUP = "voices"

StreamedTexts = dict[str, str]
"""Texts by "plan step"."""


class OutputSubscription:
    """One listener to a plan: the newest text of each of its steps that it has not heard yet."""

    def __init__(self) -> None:
        self._said: dict[int, str] = {}
        self._bell = asyncio.Event()

    def receive(self, step_id: int, text: str) -> None:
        """Take in what a step says now."""
        self._said[step_id] = text
        self._bell.set()

    async def news(self) -> Mapping[int, str]:
        """Return what was not heard yet, by the numbers of steps, once there is something."""
        await self._bell.wait()
        self._bell.clear()
        said, self._said = self._said, {}
        return said


class ModelOutputStream:
    """All the speaking and listening on one event loop. Everything but `say` is called on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._output_subscriptions: dict[str, set[OutputSubscription]] = {}
        self._said: StreamedTexts = {}
        self._lock = threading.Lock()
        self._others: BroadcastChannel[str] = BroadcastChannel(self._hear, GROUP)

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
            if plan_ref not in self._output_subscriptions and not self._others.wanted:
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

    def _hear(self, said: StreamedTexts) -> None:
        """Take in what was said, in this process or another."""
        for place, text in said.items():
            plan_ref, _, number = place.rpartition(" ")
            for ear in self._output_subscriptions.get(plan_ref, ()):
                ear.receive(int(number), text)

    @contextmanager
    def listen(self, plan_ref: str) -> Iterator[OutputSubscription]:
        """Listen to the steps of a plan from now on."""
        ear = OutputSubscription()
        ears = self._output_subscriptions.setdefault(plan_ref, set())
        ears.add(ear)
        try:
            yield ear
        finally:
            ears.discard(ear)
            if not ears:
                self._output_subscriptions.pop(plan_ref, None)
