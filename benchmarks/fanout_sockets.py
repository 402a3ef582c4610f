"""`fanout_sockets_ms`, `fanout_cpu_ms`, `watching_cpu_ms`, `socket_kib`: 500 watchers of a plan of 500 steps.

A step is skipped over REST; the clock runs from the time of the event, read in its transaction before the commit, until
a watcher has received the message with it. Server and watchers share the machine, so the watchers are plain sockets:
with a library for WebSockets, half of the time was theirs.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, sleep, time

from django.conf import settings

from benchmarks.client import Client
from benchmarks.ground import Served, person, prepare, serving, session_of, step, token_for
from plans.actions.create import create_plan
from plans.models import Event, Plan
from plans.spec import PlanDocument
from plans.store.requesters import Requester
from plans.store.transactions import plan_transaction

WATCHERS = 500
PEOPLE = 20
STEPS, EVENTS = 500, 5000
ROUNDS = 10
APART_SECONDS = 1.5
IDLE_SECONDS = 10.0
LONGEST_SECONDS = 60.0
NOTHING = b"\0"
"""A text that no message contains."""
TEXT, PING, PONG, MASKED = 0x81, 0x89, 0x8A, 0x80
"""First bytes of whole frames (RFC 6455); bit of the second byte of a frame that is masked, as clients must."""


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each watcher and event."""
    with _audience() as audience:
        return [latency for number in range(runs * ROUNDS) for latency in audience.skip(number + 2)[0]]


def processor_time(runs: int) -> list[float]:
    """Return the milliseconds of the server's processor time for each event, until the last watcher has it."""
    with _audience() as audience:
        return [audience.skip(number + 2)[1] for number in range(runs * ROUNDS)]


def idle_processor_time(runs: int) -> list[float]:
    """Return the milliseconds of the server's processor time for a second in which nothing happens."""
    with _audience() as audience:
        return [audience.idle() for _ in range(runs)]


def memory(runs: int) -> list[float]:
    """Return the KiB by which the server's resident memory grows with each socket."""
    found = []
    for _ in range(runs):
        with _audience() as audience:
            found.append(audience.kib)
    return found


@dataclass(slots=True)
class Watcher:
    """One open WebSocket of a page, with the bytes of a frame that has not arrived whole."""

    connection: socket.socket
    received: bytearray = field(default_factory=bytearray)

    def hears(self, wanted: bytes) -> bool:
        """Read what has arrived; return whether a message contains this text."""
        arrived = self.connection.recv(1 << 20)
        if not arrived:
            raise RuntimeError("The server closed a socket.")
        self.received += arrived
        found = False
        while (frame := self._next_frame()) is not None:
            kind, payload = frame
            if kind == PING:
                self.connection.sendall(bytes((PONG, MASKED | len(payload), 0, 0, 0, 0)) + payload)
            elif kind != TEXT:
                raise RuntimeError(f"The server sent {payload!r}.")
            found = found or wanted in payload
        return found

    def _next_frame(self) -> tuple[int, bytes] | None:
        """Return the first byte and the content of the next whole frame of a server, which has no mask."""
        if len(self.received) < 2:
            return None
        begin, length = 2, self.received[1]
        if length > 125:
            begin = 4 if length == 126 else 10
            length = int.from_bytes(self.received[2:begin])
        if len(self.received) < begin + length:
            return None
        kind, payload = self.received[0], bytes(self.received[begin : begin + length])
        del self.received[: begin + length]
        return kind, payload


class Audience:
    """The watchers of a plan that a server serves."""

    def __init__(self, served: Served, plan: Plan, token: str, kib: float, sockets: DefaultSelector) -> None:
        self.kib = kib
        self._served = served
        self._plan = plan
        self._token = token
        self._sockets = sockets
        self._size = len(sockets.get_map())

    def skip(self, number: int) -> tuple[list[float], float]:
        """Skip a step; return the milliseconds until each watcher heard of it, and the server's processor time."""
        before = self._served.processor_ms()
        path = f"plans/{self._plan.public_id}/steps/{number}/skip/"
        client = Client(self._served.port, self._token)  # a connection kept from the event before may have been closed
        skipping = threading.Thread(target=client.post, args=(path, {"reason": "Measured."}, 200))
        skipping.start()
        moments = self._listen(f'id=\\"s{number}\\"'.encode(), self._size, LONGEST_SECONDS)
        skipping.join()
        took = self._served.processor_ms() - before
        if len(moments) < self._size:
            raise RuntimeError(f"{self._size - len(moments)} watchers did not hear of step {number}.")
        event = Event.objects.get(plan=self._plan, step_id=number, type="step.skipped")
        self._listen(NOTHING, 1, APART_SECONDS)
        return [(moment - event.at.timestamp()) * 1000 for moment in moments], took

    def idle(self) -> float:
        """Return the milliseconds of the server's processor time for one of several seconds without an event."""
        before = self._served.processor_ms()
        self._listen(NOTHING, 1, IDLE_SECONDS)
        return (self._served.processor_ms() - before) / IDLE_SECONDS

    def _listen(self, wanted: bytes, watchers: int, seconds: float) -> list[float]:
        """Return the times at which so many watchers heard a text, of those that did so within these seconds."""
        moments: dict[int, float] = {}
        until = monotonic() + seconds
        while len(moments) < watchers and (left := until - monotonic()) > 0:
            for key, _ in self._sockets.select(left):
                if key.data.hears(wanted):
                    moments.setdefault(key.fd, time())  # it may hear of the step again
        return list(moments.values())


@contextmanager
def _audience() -> Iterator[Audience]:
    token = token_for(prepare(), "plans:write")
    plan = _plan(Requester(person("operator"), via="shell"))
    sessions = [session_of(person("viewer", f"watcher-{number}")) for number in range(PEOPLE)]
    with serving() as served:
        with _watching(served, plan, sessions[:1]):
            sleep(APART_SECONDS)  # what a first watcher loads is there for all
            before = served.rss_mib()
        with _watching(served, plan, sessions * (WATCHERS // len(sessions))) as sockets:
            sleep(2 * APART_SECONDS)
            kib = (served.rss_mib() - before) * 1024 / WATCHERS
            yield Audience(served, plan, token, kib, sockets)


def _plan(by: Requester) -> Plan:
    """Create a plan that waits for a person at its first step, which all others need, with so many events."""
    steps = [step(1, tool="bench_moment"), *(step(number, 1) for number in range(2, STEPS + 1))]
    plan = create_plan(PlanDocument.model_validate({"goal": "Measure", "steps": steps}), by=by)
    with plan_transaction(plan.pk, plan.public_id) as tx:
        for number in range(EVENTS - Event.objects.filter(plan=plan).count()):
            tx.record("memory.written", number % STEPS + 1, key=f"key_{number}")
    plan.refresh_from_db()
    return plan


@contextmanager
def _watching(served: Served, plan: Plan, sessions: list[str]) -> Iterator[DefaultSelector]:
    """Open a socket for each session; yield them with their watchers."""
    sockets = DefaultSelector()
    try:
        for session in sessions:
            watcher = _open(served, plan, session)
            sockets.register(watcher.connection, EVENT_READ, watcher)
            for key, _ in sockets.select(0):
                key.data.hears(NOTHING)  # a busy machine takes longer to open all than the server waits for a pong
        yield sockets
    finally:
        for key in list(sockets.get_map().values()):
            key.data.connection.close()


def _open(served: Served, plan: Plan, session: str) -> Watcher:
    """Open a socket of the plan's page, as a browser does (RFC 6455). Raises RuntimeError if it is refused."""
    lines = (
        f"GET /ws/pages/plans/{plan.public_id}/?after={plan.last_seq} HTTP/1.1",
        f"Host: 127.0.0.1:{served.port}",
        f"Origin: http://127.0.0.1:{served.port}",
        f"Cookie: {settings.SESSION_COOKIE_NAME}={session}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: d2l0aG91dCBsaWJyYXJ5IQ==",
    )
    connection = socket.create_connection(("127.0.0.1", served.port), LONGEST_SECONDS)
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    watcher = Watcher(connection)
    while b"\r\n\r\n" not in watcher.received:
        arrived = connection.recv(1 << 16)
        if not arrived:
            break
        watcher.received += arrived
    head, _, rest = bytes(watcher.received).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101 "):
        raise RuntimeError(f"The server refused a socket: {head!r}")
    watcher.received = bytearray(rest)
    return watcher
