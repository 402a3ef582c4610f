"""The feed of an event loop: events of plans, read once per plan for all subscribers, and streamed model output.

A notification carries a plan and an event number, but no content. Numbers have no gaps, so a subscriber that gets 7
after 5 reads the missing event from the database. Polling the counters of watched plans each second makes up for lost
notifications. Each subscription gets every event exactly once and in order, however slow its reader is.
"""

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from django.db import close_old_connections

from catalog.core.canonical_json import format_utc
from catalog.core.transactions import log_unexpected
from plans.live.broadcast import BroadcastChannel, Notifications
from plans.live.streaming import ModelOutputStream
from plans.models import Event, Plan

EVENTS_AT_ONCE = 500
MAX_BUFFERED_EVENTS = 1000
"""Limit of events buffered for a slow reader; beyond it the reader gets them from the database."""


@dataclass(frozen=True, slots=True)
class SerializedEvent:
    """One event as the JSON text for clients, serialized once for all subscribers."""

    seq: int
    text: str


def serialized_events_after(plan_ref: str, seq: int) -> list[SerializedEvent]:
    """Return the plan's first events with a number above `seq`, at most EVENTS_AT_ONCE."""
    found = Event.objects.filter(plan__public_id=plan_ref, seq__gt=seq).order_by("seq")
    return [
        SerializedEvent(event.seq, json.dumps(event_json(event), ensure_ascii=False))
        for event in found[:EVENTS_AT_ONCE]
    ]


def event_json(event: Event) -> dict[str, object]:
    return {
        "seq": event.seq,
        "type": event.type,
        "at": format_utc(event.at),
        "step_id": event.step_id,
        "data": event.data_json,
    }


class Subscription:
    """An endless iterator of batches of events. New events come through `offer`, missing ones from the database."""

    def __init__(self, read_events: Callable[[int], Awaitable[list[SerializedEvent]]], after: int) -> None:
        self._read = read_events
        self.seq = after
        self._waiting: list[SerializedEvent] = []
        self._behind = True
        self._news = asyncio.Event()

    def offer(self, events: list[SerializedEvent]) -> None:
        """Buffer new events. If the buffer would be too large, empty it: the database is read later."""
        if len(self._waiting) + len(events) > MAX_BUFFERED_EVENTS:
            self._waiting.clear()
            self._behind = True
        elif not self._behind:
            self._waiting += events
        self._news.set()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> list[SerializedEvent]:
        while True:
            if self._behind:
                self._behind = False  # events offered while the database is read are buffered
                fresh = await self._read(self.seq)
                self._behind = self._behind or len(fresh) == EVENTS_AT_ONCE
            else:
                await self._news.wait()
                self._news.clear()
                fresh = self._take_buffered()
            if fresh:
                self.seq = fresh[-1].seq
                return fresh

    def _take_buffered(self) -> list[SerializedEvent]:
        """Return the buffered events that follow without a gap. At a gap, the rest is read from the database."""
        events, self._waiting = self._waiting, []
        fresh: list[SerializedEvent] = []
        for event in events:
            expected = self.seq + len(fresh) + 1
            if event.seq == expected:
                fresh.append(event)
            elif event.seq > expected:
                self._behind = True
                break
        return fresh


log = logging.getLogger("toolgate.feed")
ResultT = TypeVar("ResultT")
READERS = 4
POLL_SECONDS = CLOSE_SECONDS = 1.0
PATIENCE_SECONDS = 0.2

WaitEvent = asyncio.Event


@dataclass(slots=True, eq=False)
class WatchedPlan:
    """A plan with subscribers: the last event number that was notified, and the last that was read."""

    ref: str
    notified: int = 0
    read: int = 0
    listeners: set[WaitEvent] = field(default_factory=set)
    subscriptions: set[Subscription] = field(default_factory=set)
    reading: "asyncio.Task[None] | None" = None

    def start(self) -> int:
        """Return the event number after which to read for all; a subscription further behind reads for itself."""
        return max([self.read, *(each.seq for each in self.subscriptions if each.seq <= self.notified)])


class Feed:
    """All subscriptions of one event loop. Methods except `notify` must be called on that loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._listeners: set[WaitEvent] = set()
        self._plans: dict[str, WatchedPlan] = {}
        self._notified: Notifications = {}
        self._lock = threading.Lock()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="toolgate-feed")
        self._later = ThreadPoolExecutor(1, thread_name_prefix="toolgate-feed-later")
        self._running = 0
        self._is_calm = asyncio.Event()
        self._is_calm.set()
        self._turn = asyncio.Lock()
        self._others: BroadcastChannel[int] = BroadcastChannel(self._apply_notifications)
        self.model_output = ModelOutputStream()
        self._polling = self.loop.create_task(self._poll_each_second())

    def stop(self) -> None:
        _feeds.pop(self.loop, None)
        self._polling.cancel()
        self._others.stop()
        self.model_output.stop()
        for threads in (self._readers, self._later):
            threads.shutdown(wait=False, cancel_futures=True)

    async def close(self) -> None:
        """Stop, and wait until the tasks have ended, at most CLOSE_SECONDS in case Redis does not respond."""
        self.stop()
        await asyncio.wait([self._polling, *self._others.tasks, *self.model_output.tasks], timeout=CLOSE_SECONDS)

    async def run(self, function: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Run a function that uses the database in one of the feed's threads."""
        self._running += 1
        self._is_calm.clear()
        try:
            return await self._run(self._readers, function, *arguments)
        finally:
            self._running -= 1
            if not self._running:
                self._is_calm.set()

    async def run_later(self, function: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Like `run`, one at a time in a thread of its own: for work for each watcher, which may not delay news.

        It begins when nothing else runs, because two threads share one interpreter, but at latest after
        PATIENCE_SECONDS.
        """
        async with self._turn:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._is_calm.wait()
            return await self._run(self._later, function, *arguments)

    async def _run(self, threads: ThreadPoolExecutor, function: Callable[..., ResultT], *arguments: object) -> ResultT:
        def run() -> ResultT:
            close_old_connections()
            try:
                return function(*arguments)
            finally:
                close_old_connections()  # a thread may be idle for long

        return await self.loop.run_in_executor(threads, run)

    @contextmanager
    def watch(self, plan_ref: str, after: int) -> Iterator[Subscription]:
        """Subscribe to the events of a plan with a number above `after`, both stored and future events."""
        with self._watched(plan_ref) as watched:
            subscription = Subscription(lambda seq: self.run(serialized_events_after, plan_ref, seq), after)
            watched.subscriptions.add(subscription)
            try:
                yield subscription
            finally:
                watched.subscriptions.discard(subscription)

    @contextmanager
    def listen(self, plan_ref: str) -> Iterator[WaitEvent]:
        """Yield an asyncio event that is set whenever the plan has new events."""
        with self._watched(plan_ref) as watched, _registered_event(watched.listeners) as news:
            yield news

    @contextmanager
    def listen_to_all(self) -> Iterator[WaitEvent]:
        """Yield an asyncio event that is set whenever any plan has new events, and once a second."""
        with _registered_event(self._listeners) as news:
            yield news

    def notify(self, plan_ref: str, last_seq: int) -> None:
        """Report that a plan has events up to `last_seq`. For any thread; many reports wake the loop once."""
        if not self._listeners and plan_ref not in self._plans and not self._others.is_enabled:
            return
        with self._lock:
            is_first = not self._notified
            self._notified[plan_ref] = last_seq
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._pass_on_notifications)

    def _pass_on_notifications(self) -> None:
        with self._lock:
            notifications, self._notified = self._notified, {}
        self._others.send(notifications)
        self._apply_notifications(notifications)

    def _apply_notifications(self, notifications: Notifications) -> None:
        for plan_ref, last_seq in notifications.items():
            plan = self._plans.get(plan_ref)
            if plan is None:
                continue
            if last_seq > plan.notified:
                plan.notified = last_seq
                _set_all(plan.listeners)
            if plan.notified > plan.read and plan.subscriptions and plan.reading is None:
                plan.reading = self.loop.create_task(self._hand_out(plan))
        _set_all(self._listeners)

    async def _hand_out(self, plan: WatchedPlan) -> None:
        try:
            while events := await self.run(serialized_events_after, plan.ref, plan.start()):
                plan.read = events[-1].seq
                for subscription in plan.subscriptions:
                    subscription.offer(events)
                if plan.read >= plan.notified:
                    break
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("the events of a plan could not be read; the next poll tries again")
            log_unexpected(error)
        finally:
            plan.reading = None

    async def _poll_each_second(self) -> None:
        """Find events whose notification was lost or was not sent by another process."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                watched = Plan.objects.filter(public_id__in=list(self._plans)).values_list("public_id", "last_seq")
                self._apply_notifications(await self.run(dict, watched) if self._plans else {})
            except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
                log.warning("the plans' counters could not be read")
                log_unexpected(error)

    @contextmanager
    def _watched(self, plan_ref: str) -> Iterator[WatchedPlan]:
        watched = self._plans.setdefault(plan_ref, WatchedPlan(plan_ref))
        try:
            yield watched
        finally:
            if not watched.listeners and not watched.subscriptions:
                self._plans.pop(plan_ref, None)


@contextmanager
def _registered_event(listeners: set[WaitEvent]) -> Iterator[WaitEvent]:
    news = WaitEvent()
    listeners.add(news)
    try:
        yield news
    finally:
        listeners.discard(news)


def _set_all(listeners: set[WaitEvent]) -> None:
    for news in listeners:
        news.set()


_feeds: dict[asyncio.AbstractEventLoop, Feed] = {}


def current_feed() -> Feed:
    """Return the feed of the running event loop, creating it at the first call."""
    for loop in [loop for loop in _feeds if loop.is_closed()]:
        del _feeds[loop]
    loop = asyncio.get_running_loop()
    if loop not in _feeds:
        _feeds[loop] = Feed()
    return _feeds[loop]


def feeds() -> list[Feed]:
    return list(_feeds.values())


def notify_feeds(plan_ref: str, last_seq: int) -> None:
    for feed in feeds():
        feed.notify(plan_ref, last_seq)


MAX_STREAMED_TEXT = 4_000
"""Limit in characters. Of a longer text, only the end is sent."""
OMITTED_TEXT_MARK = "[… more before …]\n"


def publish_model_text(plan_ref: str, step_id: int, text: str) -> None:
    """Publish what an agent's model has written so far; an empty text ends the turn. Never blocks or raises."""
    excerpt = text if len(text) <= MAX_STREAMED_TEXT else OMITTED_TEXT_MARK + text[-MAX_STREAMED_TEXT:]
    for feed in feeds():
        feed.model_output.publish(plan_ref, step_id, excerpt)
