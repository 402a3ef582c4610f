"""A serving process for tests that kill it, and the tools that it runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog import registry, snapshot
from catalog.registry import register_tool
from catalog.sync import sync_tools
from tests.chaos.serving import Serving
from tests.chaos.tools import dangerous_work, safe_work


@pytest.fixture
def serving(transactional_db: None, catalog: None, tmp_path: Path) -> Iterator[Serving]:
    """A process that serves and executes from when it is started; it is dead when the test is over."""
    for tool in (safe_work, dangerous_work):
        register_tool(tool)
    sync_tools()
    process = Serving(tmp_path)
    yield process
    process.kill()
    for tool in (safe_work, dangerous_work):
        registry._TOOLS.pop(tool.name)
    snapshot.forget()
