"""The official conformance suite and MCP Inspector's command line against the MCP server; both come from npm."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog.access.tokens import create_token
from catalog.tools import register_tool, registry
from tests.catalogs import fill_catalog
from tests.npm import installed_modules
from tests.plans.mcp.conformance_tools import TOOLS
from tests.plans.mcp.conftest import serving_mcp

pytestmark = [pytest.mark.nightly, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

PINNED = Path(__file__).parent / "clients"
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
REPORT = Path(__file__).parents[3] / "docs" / "development" / "mcp-conformance.md"


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest) -> Path:
    """The installed npm packages, kept in pytest's cache until their versions change."""
    return installed_modules(request.config.cache, PINNED, "mcp-npm")


def run_node(modules: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the installed packages with the Node that came with them."""
    command = [str(modules / ".bin" / "node"), str(modules / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def token(executor: Any, ada: Any) -> Iterator[str]:
    """An agent's token, with the tools of the suite in the catalog."""
    for each in TOOLS:
        register_tool(each)
    fill_catalog()
    yield create_token(user=ada, kind="agent", scopes=["calls:create"])[1]
    for each in TOOLS:
        registry._TOOLS.pop(each.name)


def test_the_suite_passes_but_for_the_features_that_are_not_offered(modules: Path, token: str, tmp_path: Path) -> None:
    not_offered = re.findall(r"^\| `([a-z0-9-]+)` \|", REPORT.read_text(), re.MULTILINE)
    baseline = tmp_path / "baseline.yaml"
    baseline.write_text(yaml.safe_dump({"server": not_offered}))
    with serving_mcp(token) as url:
        options = ["--suite", "all", "--expected-failures", str(baseline), "--output-dir", str(tmp_path / "out")]
        done = run_node(modules, SUITE, "server", "--url", url, *options)
    assert done.returncode == 0, done.stdout[-4000:]
    assert len(not_offered) > 20 and len(list((tmp_path / "out").iterdir())) >= 30


def test_the_inspector_lists_and_calls(modules: Path, token: str) -> None:
    def inspect(url: str, *arguments: str) -> Any:
        header = f"Authorization: Bearer {token}"
        options = ["--cli", url, "--transport", "http", "--header", header, "--method", *arguments]
        done = run_node(modules, INSPECTOR, *options)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    with serving_mcp() as url:
        listed = inspect(url, "tools/list")
        called = inspect(url, "tools/call", "--tool-name", "test_simple_text")
    assert {"approval_result", "test_simple_text"} <= {tool["name"] for tool in listed["tools"]}
    assert called["structuredContent"] == {"result": "text"}
