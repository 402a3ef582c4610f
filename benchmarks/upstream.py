"""`mcp_upstream_ms`, `mcp_upstream_per_s`: a safe tool of an upstream MCP server over HTTP, called through Toolgate.

The upstream is the SDK's echo server. It is called alternately through Toolgate and directly, so that a busy machine
slows both; the ratio is also printed.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from time import perf_counter

from benchmarks.figures import print_figure
from benchmarks.ground import person, prepare, serving, token_for
from benchmarks.mcp_call import CALLS, CLIENTS, WARM_UP, McpClient
from benchmarks.peers.environments import HERE
from benchmarks.peers.mcp_servers import listening
from catalog.inventory.source_sync import sync_source
from catalog.inventory.sources import create_source
from catalog.models import Tool
from catalog.sources import mcp_client

Caller = Callable[[int], float]


def measure(runs: int) -> list[float]:
    """Print the milliseconds of a direct call, and the ratio; return those of a call through Toolgate."""
    with _both() as (through, direct):
        for make in (through, direct):
            _call_often(make(), WARM_UP)
        rounds = [(_call_often(through(), CALLS), _call_often(direct(), CALLS)) for _ in range(runs)]
    print_figure("mcp_upstream_direct_ms", [each for _, values in rounds for each in values], "ms")
    print_figure("mcp_upstream_ratio", [median(values) / median(others) for values, others in rounds], "")
    return [each for values, _ in rounds for each in values]


def per_second(runs: int) -> list[float]:
    """Print the direct calls per second of sixteen clients, and the ratio; return those through Toolgate."""
    with _both() as (through, direct), ThreadPoolExecutor(CLIENTS) as threads:
        for make in (through, direct):
            _rate(threads, make)
        rounds = [(_rate(threads, through), _rate(threads, direct)) for _ in range(runs)]
    print_figure("mcp_upstream_direct_per_s", [rate for _, rate in rounds], "calls/s")
    print_figure("mcp_upstream_rate_ratio", [rate / other for rate, other in rounds], "")
    return [rate for rate, _ in rounds]


@contextmanager
def _both() -> Iterator[tuple[Callable[[], Caller], Callable[[], Caller]]]:
    """Run the upstream, and Toolgate in front of it; yield a function for each that creates a client."""
    token = token_for(prepare(), "calls:create")
    with listening(lambda port: [sys.executable, str(HERE / "echo.py"), str(port)]) as upstream:
        tool = _import(upstream)
        with serving() as served:
            yield (
                lambda: McpClient(served.port, token, tool).call,
                lambda: McpClient(upstream, "none", "echo").call,
            )


def _import(port: int) -> str:
    """Import the upstream's tool as a safe one; return its name."""
    source = create_source(
        {
            "name": "bench-echo",
            "kind": "mcp",
            "url": f"http://127.0.0.1:{port}/mcp",
            "tools": {"echo": {"safety_level": "safe", "reason": "It returns its arguments."}},
        },
        by=person("administrator"),
    )
    sync_source(source)
    mcp_client.close_connections()
    return Tool.objects.get(source=source).name


def _rate(threads: ThreadPoolExecutor, make: Callable[[], Caller]) -> float:
    calls = [make() for _ in range(CLIENTS)]
    started = perf_counter()
    list(threads.map(_call_often, calls, [CALLS // 2] * CLIENTS))
    return CLIENTS * (CALLS // 2) / (perf_counter() - started)


def _call_often(call: Caller, count: int) -> list[float]:
    return [call(number) for number in range(count)]
