"""Broadcast of notifications between processes over Redis, if it is configured.

Notifications about plans carry a plan and an event number, but no content. Other groups may carry content:
`plans.live.streaming` sends texts, and `plans.mcp.waiting` the ids of cancelled requests.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from channels.layers import get_channel_layer
from django.conf import settings
from redis.exceptions import RedisError

from catalog.core.transactions import log_unexpected

log = logging.getLogger("toolgate.pokes")
GROUP = "pokes"
GATHER_SECONDS = 0.05
RETRY_SECONDS = 1.0
CONNECTION_ERRORS = (RedisError, OSError)
"""Errors of an unreachable Redis, logged without a traceback."""

Notifications = dict[str, int]
NewsT = TypeVar("NewsT")


class BroadcastChannel(Generic[NewsT]):
    """Sends and receives the notifications of one group, on one event loop. Without Redis, it does nothing."""

    def __init__(self, on_news: Callable[[dict[str, NewsT]], None], group: str = GROUP) -> None:
        self.is_enabled = bool(settings.REDIS_URL)
        self._on_news = on_news
        self._group = group
        self._waiting: dict[str, NewsT] = {}
        self._has_waiting = asyncio.Event()
        jobs = (self._send_waiting, self._receive) if self.is_enabled else ()
        self._missed = False
        self.tasks = [asyncio.ensure_future(self._repeat_forever(job)) for job in jobs]

    def send(self, news: dict[str, NewsT]) -> None:
        """Send notifications to the other processes: the first at once, those of the next GATHER_SECONDS together."""
        if self.is_enabled:
            self._waiting.update(news)
            self._has_waiting.set()

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()

    async def _send_waiting(self) -> None:
        await self._has_waiting.wait()
        self._has_waiting.clear()
        news, self._waiting = self._waiting, {}
        await get_channel_layer().group_send(self._group, {"type": "poked", "plans": news})
        self._log_return()
        await asyncio.sleep(GATHER_SECONDS)

    async def _receive(self) -> None:
        layer: Any = get_channel_layer()
        channel = await layer.new_channel()
        await layer.group_add(self._group, channel)
        self._log_return()
        try:
            while _keeps_running():
                self._on_news((await layer.receive(channel))["plans"])
        finally:
            await layer.group_discard(self._group, channel)

    async def _repeat_forever(self, job: Callable[[], Any]) -> None:
        """Run the job forever. Errors lose notifications; the feed's polling makes up for those about plans."""
        while _keeps_running():
            try:
                await job()
            except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
                if not self._missed:
                    log.warning("Redis cannot be reached: pages poll every second")
                    if not isinstance(error, CONNECTION_ERRORS):
                        log_unexpected(error)
                self._missed = True
                await asyncio.sleep(RETRY_SECONDS)

    def _log_return(self) -> None:
        if self._missed:
            log.info("Redis is back")
        self._missed = False


def _keeps_running() -> bool:
    """Return whether this task should continue. A connecting Redis client may swallow its CancelledError."""
    task = asyncio.current_task()
    return task is None or not task.cancelling()
