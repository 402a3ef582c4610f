"""A Redis server to kill, and clients that follow plans over sockets."""

import json
import random
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.waiting import eventually

ENDS = ("plan.completed", "plan.failed", "plan.cancelled")
FOLLOWED_SECONDS = 240.0
QUIET_SECONDS = 2.0

Receive = Callable[[float], str | bytes]


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class RedisServer:
    """`redis-server` on a free port, without persistence."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        eventually(self._answers, what="Redis")

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


@dataclass(slots=True)
class Follower:
    """Follows a plan until it ends, on a thread; sometimes reconnects with the last number it has seen."""

    place: str
    plan: str
    headers: dict[str, str]
    chance: random.Random
    seen: list[int] = field(default_factory=list)
    connections: int = 0
    ended: bool = False
    thread: threading.Thread = field(init=False)

    def start(self) -> None:
        """Start to follow."""
        self.thread = threading.Thread(target=self._follow)
        self.thread.start()

    def _follow(self) -> None:
        gives_up = monotonic() + FOLLOWED_SECONDS
        while not self.ended and monotonic() < gives_up:
            url = f"{self.place.replace('http', 'ws', 1)}/ws/plans/{self.plan}/?after={(self.seen or [0])[-1]}"
            try:
                with connect(url, additional_headers=self.headers, open_timeout=10) as link:
                    self.connections += 1
                    self._listen(link.recv)
            except (OSError, TimeoutError, WebSocketException):
                threading.Event().wait(0.1)

    def _listen(self, receive: Receive) -> None:
        """Receive events until the plan ends or a random number is reached."""
        for _ in range(self.chance.randrange(5, 40)):
            event = json.loads(receive(QUIET_SECONDS))
            self.seen.append(event["seq"])
            self.ended = event["type"] in ENDS
            if self.ended:
                return
