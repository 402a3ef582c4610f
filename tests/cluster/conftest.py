"""Fixtures: a cluster of processes on the test database, with a Redis server of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog.inventory import snapshot
from catalog.inventory.sync import sync_tools
from catalog.tools import registry
from catalog.tools.registry import register_tool
from tests.chaos.nursery import Nursery
from tests.chaos.redis import RedisServer
from tests.chaos.serving import Serving
from tests.chaos.tools import TOOLS

Start = Callable[..., Serving]
WEB, WORKER = ("serve", "--port", "0"), ("worker", "--concurrency", "2")
LEASE_SECONDS = 60
"""Long enough that a process which stops cleanly does not lose a lease on a slow machine."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server for this test, not yet started."""
    server = RedisServer(tmp_path)
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
    snapshot.drop_snapshot()


@pytest.fixture
def start(marking_tools: None, redis: RedisServer, settings: object, tmp_path: Path) -> Iterator[Start]:
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
