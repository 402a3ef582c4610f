"""One websocket from its opening to its end: accepted first, refused by code and reason, its visitor looked at again.

Knows nothing of what is told over it.
"""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from catalog.core.transactions import log_unexpected
from plans import door, metrics
from plans.door import TurnedAway, Visitor
from plans.feed import feed_here

log = logging.getLogger("toolgate.sockets")
LOOK_AGAIN_SECONDS = 3.0

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Socket(ABC):
    """One connection; a subclass says who may enter and what is told."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.feed = feed_here()
        self._send = send
        self._accepted = False

    @classmethod
    async def serve(cls, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection: the ASGI application of this kind of socket."""
        await receive()
        socket = cls(scope, send)
        try:
            with metrics.socket_open():
                visitor = await socket.feed.run(socket.enter)
                await until_one_ends(socket.tell(visitor), socket.look_again(visitor), _until_gone(receive))
        except TurnedAway as refusal:
            await socket.close(refusal.code, str(refusal))
        except OSError:
            log.debug("a client was gone before it was told")
        except Exception as error:  # noqa: BLE001 - logged without its message, which may hold arguments
            log.warning("a socket broke")
            log_unexpected(error)
            await socket.close(1011, "Something went wrong here; it has been logged.")

    @abstractmethod
    def enter(self) -> Visitor:
        """Return who is there, now and each few seconds again, in a thread. Raises TurnedAway."""

    @abstractmethod
    async def tell(self, visitor: Visitor) -> None:
        """Accept, then tell the visitor what there is to tell, for ever."""

    async def look_again(self, visitor: Visitor) -> None:
        """Turn a visitor away who has signed out since, or whose rights are fewer than they were."""
        gone = TurnedAway(door.NO_RIGHT, "You no longer have access.")
        while True:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            try:
                now = await self.feed.run(self.enter)
            except TurnedAway as refusal:
                raise (gone if refusal.code == door.NOT_FOUND else refusal) from None
            if visitor.sees_all and not now.sees_all:
                raise gone

    async def say(self, message: dict[str, Any]) -> None:
        """Send one message as JSON; returns when the client can take more."""
        await self.say_text(json.dumps(message, ensure_ascii=False))

    async def say_text(self, text: str) -> None:
        """Send one message that is JSON already."""
        await self._send({"type": "websocket.send", "text": text})

    async def accept(self) -> None:
        """Accept the connection, unless that was done."""
        if not self._accepted:
            self._accepted = True
            await self._send({"type": "websocket.accept"})

    async def close(self, code: int, reason: str) -> None:
        """Close with a code and a sentence; a browser is told them only once it was accepted."""
        await self.accept()
        await self._send({"type": "websocket.close", "code": code, "reason": reason})


async def until_one_ends(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run jobs side by side until one returns or raises; raise what it raised."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


async def _until_gone(receive: Receive) -> None:
    """Return when the client has gone; what it says before is not listened to."""
    while (await receive())["type"] != "websocket.disconnect":
        continue
