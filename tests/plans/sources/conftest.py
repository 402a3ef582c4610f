"""Sources of these tests: an upstream MCP server whose tools a test sets."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog.inventory.sources import create_source, sync_source
from catalog.sources import mcp_client

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
READ = {"name": "read_page", "description": "Read a page", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}}
DROP = {"name": "drop_page", "description": "Delete a page", "inputSchema": TEXT}


class Offer:
    """An upstream: a call sets the tools it offers; `command` starts it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.command = [sys.executable, "-m", "tests.upstream", str(file)]
        self(READ, DROP)

    def __call__(self, *tools: Mapping[str, Any]) -> None:
        self.file.write_text(json.dumps(tools))


@pytest.fixture
def offer(tmp_path):
    """Return an upstream with one safe and one dangerous tool."""
    return Offer(tmp_path / "offered.json")


@pytest.fixture
def source(transactional_db, admin, offer):
    """Return a source with the upstream's tools, imported."""
    made = create_source(
        {"name": "wiki", "kind": "mcp", "command": offer.command, "trusted": True}, by=admin, any_command=True
    )
    sync_source(made)
    yield made
    mcp_client.run_on_loop(mcp_client.close_connection(made.pk), 10)
