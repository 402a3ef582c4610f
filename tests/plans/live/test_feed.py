"""The feed: every event once and in order, with slow readers and lost notifications."""

import asyncio
import json

import pytest
from django.contrib.auth.models import User

from plans.live import feed as feeds
from plans.live import feed as live_feed
from plans.live.broadcast import BroadcastChannel
from plans.live.feed import SerializedEvent, Subscription, current_feed
from plans.models import Plan
from tests.builders import make_plan, step
from tests.plans.socket_clients import apart, happen

pytestmark = pytest.mark.db


@pytest.fixture
def plan(transactional_db: None, catalog: None, ada: User) -> Plan:
    """Ada's plan that has not started: one event."""
    return make_plan(ada, step(1), start=False)


async def take(lines: Subscription, count: int) -> list[int]:
    """Return the numbers of the next events, at least `count`."""
    numbers: list[int] = []
    async with asyncio.timeout(60):
        while len(numbers) < count:
            numbers += [line.seq for line in await anext(lines)]
    return numbers


async def test_stored_events_come_before_new_ones(plan: Plan) -> None:
    """Without a gap in between."""
    await apart(happen, plan, 5)
    with current_feed().watch(plan.public_id, after=2) as lines:
        telling = asyncio.ensure_future(apart(happen, plan, 20))
        assert await take(lines, 24) == list(range(3, 27))
        await telling


async def test_watched_plan_is_read_once_for_all_subscribers(plan: Plan, monkeypatch) -> None:
    reads, lines_after = [], live_feed.serialized_events_after

    def read(plan_ref: str, seq: int) -> list[SerializedEvent]:
        found = lines_after(plan_ref, seq)
        reads.append(seq)
        return found

    monkeypatch.setattr(live_feed, "serialized_events_after", read)
    monkeypatch.setattr(feeds, "POLL_SECONDS", 3600.0)
    feed = current_feed()
    with feed.watch(plan.public_id, 1) as one, feed.watch(plan.public_id, 1) as two:
        waiting = asyncio.gather(take(one, 1), take(two, 1))
        async with asyncio.timeout(60):
            while len(reads) < 2:
                await asyncio.sleep(0.01)
        reads.clear()
        await apart(happen, plan)
        assert list(await waiting) == [[2], [2]]
    assert reads == [1]


async def test_polling_finds_events_without_notification(plan: Plan, monkeypatch) -> None:
    monkeypatch.setattr(feeds.Feed, "notify", lambda *told: None)
    with current_feed().watch(plan.public_id, after=1) as lines:
        await apart(happen, plan)
        assert await take(lines, 1) == [2]


def test_overflowing_events_are_read_from_the_database(monkeypatch) -> None:
    """A slow reader is late but misses nothing."""
    stored = [SerializedEvent(seq, str(seq)) for seq in range(1, 40)]
    monkeypatch.setattr(live_feed, "MAX_BUFFERED_EVENTS", 10)

    async def read(seq: int) -> list[SerializedEvent]:
        return stored[seq : seq + 5]

    async def follow() -> list[int]:
        lines = Subscription(read, after=0)
        assert [line.seq for line in await anext(lines)] == [1, 2, 3, 4, 5]
        lines.offer(stored[5:12])
        lines.offer(stored[12:30])
        lines.offer(stored[30:32])
        return await take(lines, 27)

    monkeypatch.setattr(live_feed, "EVENTS_AT_ONCE", 5)
    assert asyncio.run(follow())[:27] == list(range(6, 33))


def test_gaps_are_read_and_duplicates_dropped() -> None:
    stored = [SerializedEvent(seq, str(seq)) for seq in range(1, 10)]

    async def read(seq: int) -> list[SerializedEvent]:
        return stored[seq:6]

    async def follow() -> list[int]:
        lines = Subscription(read, after=2)
        lines.offer(stored[6:7])
        first = await take(lines, 4)
        lines.offer(stored[4:8])
        lines.offer(stored[5:9])
        return first + await take(lines, 3)

    assert asyncio.run(follow()) == [3, 4, 5, 6, 7, 8, 9]


async def test_subscriber_with_a_future_number_does_not_block_others(plan: Plan) -> None:
    feed = current_feed()
    with feed.watch(plan.public_id, 10**9) as ahead, feed.watch(plan.public_id, 0) as lines:
        waiting = asyncio.ensure_future(anext(ahead))
        await take(lines, 1)
        await apart(happen, plan)
        assert await take(lines, 1) == [2]
        assert not waiting.done()
        waiting.cancel()


async def test_serialized_event_has_the_documented_fields(plan: Plan) -> None:
    with current_feed().watch(plan.public_id, after=0) as lines:
        [line] = await anext(lines)
    event = json.loads(line.text)
    assert event.pop("at").endswith("Z")
    assert event == {"seq": 1, "type": "plan.created", "step_id": None, "data": {}}


async def test_unreachable_redis_is_logged_once(settings, caplog, monkeypatch) -> None:
    """And its return, once."""
    settings.REDIS_URL, tries = "", 0
    monkeypatch.setattr("plans.live.broadcast.RETRY_SECONDS", 0.0)
    pokes: BroadcastChannel[int] = BroadcastChannel(lambda poked: None)

    async def send() -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise ConnectionError
        pokes._log_return()
        await asyncio.Event().wait()

    with caplog.at_level("INFO", "toolgate"):
        task = asyncio.ensure_future(pokes._repeat_forever(send))
        while "Redis is back" not in caplog.text:
            await asyncio.sleep(0)
    task.cancel()
    assert (tries, caplog.text.count("Redis cannot be reached"), caplog.text.count("Unexpected")) == (4, 1, 0)


async def test_task_ends_if_its_cancellation_is_swallowed(settings) -> None:
    """The connecting Redis client does so; otherwise the server would never stop."""
    settings.REDIS_URL = ""

    async def connect() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError from None

    task = asyncio.ensure_future(BroadcastChannel(lambda poked: None)._repeat_forever(connect))
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=20)
    assert done == {task}
