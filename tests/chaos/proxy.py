"""A proxy in front of PostgreSQL that cuts a connection before or after the COMMIT of a named point.

It reads just enough of the wire protocol to see statements. `tests.chaos.points` names the point of the next COMMIT
in a comment on the same connection. Before: the COMMIT never reaches the server, which rolls back. After: the server
has committed and said so, and the client does not receive that.
"""

import asyncio
import re
import threading
from dataclasses import dataclass, field

ANNOUNCED = re.compile(rb"chaos:([a-z,-]+):")
COMMIT = b"COMMIT\x00"
READY = b"Z\x00\x00\x00\x05"
"""The server's ReadyForQuery without its last byte: everything sent with the COMMIT is answered."""
CHUNK = 65536
PROTOCOL_3 = 196608


@dataclass(slots=True)
class Order:
    """The next cut: its point, and whether before or after the COMMIT; no cut if `point` is empty."""

    point: str = ""
    moment: str = ""
    fired: list[str] = field(default_factory=list)

    def take(self, point: str) -> str | None:
        """Return the moment to cut at if this is the ordered point, and clear the order."""
        if point != self.point:
            return None
        self.fired.append(f"{self.point}-{self.moment}")
        self.point = ""
        return self.moment


class Link:
    """One client's connection and the server's."""

    def __init__(self, proxy: "Proxy", client: "Stream", server: "Stream") -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self._points: list[str] = []
        self._is_deaf = False

    async def run(self) -> None:
        """Carry bytes both ways until one side ends or the connection is cut."""
        jobs = [asyncio.ensure_future(self._to_server()), asyncio.ensure_future(self._to_client())]
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        self.cut()

    def cut(self) -> None:
        """End both connections at once."""
        for stream in (self.client, self.server):
            stream.writer.transport.abort()

    async def _to_server(self) -> None:
        await self._start()
        while True:
            head = await self.client.reader.readexactly(5)
            body = await self.client.reader.readexactly(int.from_bytes(head[1:], "big") - 4)
            if head[:1] in b"QP" and self._cuts(head[:1], body):
                return
            await self.proxy.delay()
            await self.server.send(head + body)

    async def _start(self) -> None:
        """Carry the messages before the session, which have no type."""
        code = 0
        while code != PROTOCOL_3:
            size = await self.client.reader.readexactly(4)
            body = await self.client.reader.readexactly(int.from_bytes(size, "big") - 4)
            code = int.from_bytes(body[:4], "big")
            await self.server.send(size + body)

    def _cuts(self, kind: bytes, body: bytes) -> bool:
        """Look at a statement; say whether the connection ends instead of carrying it."""
        text = body if kind == b"Q" else body.partition(b"\x00")[2]
        announced = ANNOUNCED.search(text)
        if announced:
            self._points = announced[1].decode().split(",")
            return False
        if not text.startswith(COMMIT):
            return False
        moments = [moment for point in self._points if (moment := self.proxy.order.take(point))]
        self._points, self._is_deaf = [], "after" in moments
        return "before" in moments

    async def _to_client(self) -> None:
        while True:
            data = await self.server.reader.read(CHUNK)
            while data and self._is_deaf and data[-6:-1] != READY:
                more = await self.server.reader.read(CHUNK)
                data = data + more if more else b""
            if not data or self._is_deaf:
                return  # deaf: the COMMIT is done, and the client never receives the answer
            await self.client.send(data)


@dataclass(slots=True)
class Stream:
    """Both ends of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        self.writer.write(data)
        await self.writer.drain()


class Proxy:
    """Listens on a free local port, on a thread and an event loop of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.order, self.port = Order(), 0
        self.is_down, self.delay_seconds, self.accepted = False, 0.0, 0
        self._target, self._links = (host, port), set[Link]()
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start to listen; `port` is then set."""
        self._thread.start()
        self._listens.wait(timeout=10)

    def stop(self) -> None:
        """Cut all connections and stop listening."""
        self.drop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def drop(self) -> None:
        """Cut all connections."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._drop, done)
        done.wait(timeout=10)

    def _drop(self, done: threading.Event) -> None:
        for link in list(self._links):
            link.cut()
        done.set()

    def away(self, seconds: float) -> None:
        """Cut all connections and refuse new ones for this time."""
        self.is_down = True
        self.drop()
        threading.Event().wait(seconds)
        self.is_down = False

    async def delay(self) -> None:
        """Wait `delay_seconds` before a message is passed on."""
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0.05))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        self.accepted += 1
        try:
            server = Stream(*await asyncio.open_connection(*self._target))
        except OSError:
            writer.transport.abort()
            return
        link = Link(self, Stream(reader, writer), server)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
