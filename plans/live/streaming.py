"""Streaming of model output to subscribers on this event loop while it is being generated.

Best effort: nothing is stored, and slow subscribers only get the latest text. Every text repeats the output so far, so
a late subscriber catches up with the next text. Between processes, texts go through Redis, encrypted with
TOOLGATE_SECRET_KEYS; a process also receives its own texts.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from plans.live.broadcast import BroadcastChannel

GROUP = "voices"

StreamedTexts = dict[str, str]
"""Texts by "<plan> <step>"."""


class OutputSubscription:
    """One subscription to a plan: for each step, the latest text not yet delivered."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._has_texts = asyncio.Event()

    def receive(self, step_id: int, text: str) -> None:
        self._texts[step_id] = text
        self._has_texts.set()

    async def news(self) -> Mapping[int, str]:
        """Wait for new texts and return them by step number."""
        await self._has_texts.wait()
        self._has_texts.clear()
        texts, self._texts = self._texts, {}
        return texts


class ModelOutputStream:
    """The model output of one event loop. Methods except `publish` must be called on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._output_subscriptions: dict[str, set[OutputSubscription]] = {}
        self._texts: StreamedTexts = {}
        self._lock = threading.Lock()
        self._others: BroadcastChannel[str] = BroadcastChannel(self._deliver, GROUP)

    @property
    def tasks(self) -> "Sequence[asyncio.Future[None]]":
        """The tasks that run until `stop` is called."""
        return self._others.tasks

    def stop(self) -> None:
        self._others.stop()

    def publish(self, plan_ref: str, step_id: int, text: str) -> None:
        """Publish what a step's model has written so far; an empty text ends the turn. For any thread."""
        place = f"{plan_ref} {step_id}"
        with self._lock:
            if plan_ref not in self._output_subscriptions and not self._others.is_enabled:
                return
            is_first = not self._texts
            self._texts[place] = text
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        with self._lock:
            texts, self._texts = self._texts, {}
        self._others.send(texts)
        self._deliver(texts)

    def _deliver(self, texts: StreamedTexts) -> None:
        for place, text in texts.items():
            plan_ref, _, number = place.rpartition(" ")
            for subscription in self._output_subscriptions.get(plan_ref, ()):
                subscription.receive(int(number), text)

    @contextmanager
    def listen(self, plan_ref: str) -> Iterator[OutputSubscription]:
        subscription = OutputSubscription()
        subscriptions = self._output_subscriptions.setdefault(plan_ref, set())
        subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            subscriptions.discard(subscription)
            if not subscriptions:
                self._output_subscriptions.pop(plan_ref, None)
