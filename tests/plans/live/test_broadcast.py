"""Notifications between processes over a real Redis."""

import asyncio

import pytest
from django.db import connection

from plans.live.broadcast import BroadcastChannel, Notifications

pytestmark = pytest.mark.service


async def hears(wanted: Notifications, heard: Notifications, speaker: BroadcastChannel[int]) -> None:
    """Send repeatedly until it is received: a subscriber may not listen at once."""
    async with asyncio.timeout(30):
        while any(heard.get(plan) != seq for plan, seq in wanted.items()):
            speaker.send(wanted)
            await asyncio.sleep(0.05)


async def test_notifications_reach_other_processes() -> None:
    """With two connections to one Redis."""
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
def test_suite_on_services_runs_on_postgresql() -> None:
    """It must not fall back to SQLite."""
    assert connection.vendor == "postgresql"
