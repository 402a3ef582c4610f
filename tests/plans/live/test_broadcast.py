"""Pokes between processes, over a real Redis: plan and number arrive at whoever listens, also after many."""

import asyncio

import pytest
from django.db import connection

from plans.live.broadcast import BroadcastChannel, Notifications

pytestmark = pytest.mark.service


async def hears(wanted: Notifications, heard: Notifications, speaker: BroadcastChannel[int]) -> None:
    """Say it until it is heard: nothing promises that a listener listens at once."""
    async with asyncio.timeout(30):
        while any(heard.get(plan) != seq for plan, seq in wanted.items()):
            speaker.send(wanted)
            await asyncio.sleep(0.05)


async def test_one_process_hears_what_another_says() -> None:
    """Two ends of the same Redis, as two processes have them."""
    heard: Notifications = {}
    listener: BroadcastChannel[int] = BroadcastChannel(heard.update)
    speaker: BroadcastChannel[int] = BroadcastChannel(lambda poked: None)
    try:
        await hears({"plan_a": 3}, heard, speaker)
        await hears({"plan_a": 4, "plan_b": 1}, heard, speaker)
    finally:
        listener.stop()
        speaker.stop()
    assert (heard["plan_a"], heard["plan_b"]) == (4, 1)


@pytest.mark.django_db
def test_the_suite_runs_on_postgresql_here() -> None:
    """What is called the suite on services must not have fallen back to SQLite."""
    assert connection.vendor == "postgresql"
