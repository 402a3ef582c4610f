"""Fixtures of the fault tests: processes to kill, the tools that they run, a client, the evidence."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from catalog.inventory import snapshot
from catalog.inventory.sync import sync_tools
from catalog.tools import registry
from catalog.tools.registry import register_tool
from tests import counts
from tests.browser.conftest import browser, complaints  # noqa: F401 - fixtures
from tests.chaos.client import Client, signed_in
from tests.chaos.history import History
from tests.chaos.loop import places
from tests.chaos.nursery import Nursery
from tests.chaos.serving import Serving
from tests.chaos.tools import TOOLS
from tests.chaos.verdicts import Evidence

MakeFleet = Callable[..., list[Serving]]
MakeClient = Callable[..., Client]


@pytest.fixture
def chaos_tools(transactional_db: None, catalog: None) -> Iterator[None]:
    """Register the tools that write to the sink."""
    for tool in TOOLS:
        register_tool(tool)
    sync_tools()
    yield
    for tool in TOOLS:
        registry._TOOLS.pop(tool.name)
    snapshot.drop_snapshot()


@pytest.fixture
def serving(chaos_tools: None, tmp_path: Path) -> Iterator[Serving]:
    """A process that serves and executes once started; it is killed at the end of the test."""
    process = Serving(tmp_path)
    yield process
    process.kill()


@pytest.fixture
def fleet(chaos_tools: None, tmp_path: Path) -> Iterator[MakeFleet]:
    """Return a factory of processes, one a command; all are killed at the end of the test."""
    made: list[Serving] = []
    nurseries: list[Nursery] = []

    def make(*commands: tuple[str, ...], **environment: str) -> list[Serving]:
        names = [f"{number}-{command[0]}.log" for number, command in enumerate(commands)]
        made.extend(
            Serving(tmp_path, command, name=name, **environment) for name, command in zip(names, commands, strict=True)
        )
        nurseries.append(Nursery(made[0].environment))
        for process in made:
            process.nursery = nurseries[0]
        return made

    yield make
    for process in made:
        process.kill()
    for nursery in nurseries:
        nursery.close()


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    """The sink's folder and the client's history."""
    return Evidence(tmp_path, History(tmp_path / "history.jsonl"))


@pytest.fixture
def client_of(evidence: Evidence, ada: User, rosa: User) -> Iterator[MakeClient]:
    """Return a factory of clients of a fleet: Ada creates plans, Rosa approves."""
    made: list[Client] = []

    def make(processes: list[Serving], seed: int) -> Client:
        people = signed_in(ada), signed_in(rosa)
        made.append(Client(lambda: places(processes), evidence.history, counts.dice(seed), *people))
        return made[-1]

    yield make
    for each in made:
        each.http.close()
