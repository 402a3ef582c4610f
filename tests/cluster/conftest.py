"""Fixtures: a cluster of processes on the test database, with a Redis server of its own."""

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog import registry, snapshot
from catalog.registry import register_tool
from catalog.sync import sync_tools
from tests.chaos.nursery import Nursery
from tests.chaos.serving import Serving
from tests.chaos.tools import TOOLS
from tests.waiting import eventually

Start = Callable[..., Serving]
WEB, WORKER = ("serve", "--port", "0"), ("worker", "--concurrency", "2")
LEASE_SECONDS = 60
"""Long enough that a process which stops cleanly does not lose a lease on a slow machine."""


class Redis:
    """A Redis server on a free port."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.home)]
        self._process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        eventually(self._answers, what="Redis")

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """A Redis server for this test, not yet started."""
    server = Redis(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def marking_tools(transactional_db: None, catalog: None) -> Iterator[None]:
    """Register the tools that write to the sink."""
    for tool in TOOLS:
        register_tool(tool)
    sync_tools()
    yield
    for tool in TOOLS:
        registry._TOOLS.pop(tool.name)
    snapshot.forget()


@pytest.fixture
def start(marking_tools: None, redis: Redis, settings: object, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts one process of the cluster; all are killed at the end of the test."""
    settings.TOOLGATE_EXECUTOR = "procrastinate"  # type: ignore[attr-defined]
    started: list[Serving] = []
    nurseries: dict[frozenset[tuple[str, str]], Nursery] = {}

    def start_one(command: tuple[str, ...], **environment: str) -> Serving:
        name = f"{command[0]}-{len(started)}.log"
        common = {
            "TOOLGATE_EXECUTOR": "procrastinate",
            "REDIS_URL": redis.url,
            "TOOLGATE_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        process = Serving(tmp_path, command, name=name, **{**common, **environment})
        started.append(process)
        surroundings = frozenset(process.environment.items())
        if surroundings not in nurseries:
            nurseries[surroundings] = Nursery(process.environment)
        process.nursery = nurseries[surroundings]
        process.start()
        return process

    yield start_one
    for process in started:
        process.kill()
    for nursery in nurseries.values():
        nursery.close()


def is_up(process: Serving) -> bool:
    """Say whether a process serves, or executes."""
    assert process.is_alive(), process.log()
    return "Toolgate serves on" in process.log() or "Toolgate executes" in process.log()
