"""`mcp_call_ratio_agentbarrier`, `mcp_rate_ratio_agentbarrier`: `/mcp` beside AgentBarrier and the SDK's bare echo.

The servers run at the same time and are called alternately, so that a busy machine slows all of them. Like Toolgate,
AgentBarrier verifies a token, evaluates a policy and stores each call in SQLite; then it calls an upstream echo server
over stdio.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection, socket
from statistics import median
from time import monotonic, perf_counter, sleep
from uuid import uuid4

from benchmarks.figures import ROOT, print_figure
from benchmarks.ground import prepare, serving, token_for
from benchmarks.mcp_call import CLIENTS, WARM_UP, McpClient
from benchmarks.peers.environments import HERE, environment_of

TOKEN = "agentbarrier-token-for-benchmarks-only"  # noqa: S105 - opens nothing but a server of this run
START_SECONDS = 60.0
CALLS = 50
Caller = Callable[[int], float]


def call_ratio(runs: int) -> list[float]:
    """Print the milliseconds per call of each server; return the ratio of Toolgate to AgentBarrier for each round."""
    with _servers() as servers:
        for make in servers.values():
            _call_often(make(), WARM_UP)
        rounds = [{name: _call_often(_connected(make), CALLS) for name, make in servers.items()} for _ in range(runs)]
    for name in servers:
        print_figure(f"mcp_{name}_call_ms", [each for values in rounds for each in values[name]], "ms")
    medians = [{name: median(values) for name, values in each.items()} for each in rounds]
    return _ratios("mcp_call_ratio", medians)


def rate_ratio(runs: int) -> list[float]:
    """Print the calls per second of sixteen clients for each server; return the ratio of Toolgate to AgentBarrier."""
    with _servers() as servers, ThreadPoolExecutor(CLIENTS) as threads:
        for make in servers.values():
            _call_often(make(), WARM_UP)
        rounds = [{name: _rate(threads, make) for name, make in servers.items()} for _ in range(runs)]
    for name in servers:
        print_figure(f"mcp_{name}_calls_per_s", [each[name] for each in rounds], "calls/s")
    return _ratios("mcp_rate_ratio", rounds)


def _ratios(name: str, rounds: Sequence[dict[str, float]]) -> list[float]:
    """Print Toolgate's ratio to the echo server; return its ratio to AgentBarrier for each round."""
    print_figure(f"{name}_echo", [each["toolgate"] / each["echo"] for each in rounds], "")
    return [each["toolgate"] / each["agentbarrier"] for each in rounds]


def _rate(threads: ThreadPoolExecutor, make: Callable[[], Caller]) -> float:
    calls = [_connected(make) for _ in range(CLIENTS)]
    started = perf_counter()
    list(threads.map(_call_often, calls, [CALLS] * CLIENTS))
    return CLIENTS * CALLS / (perf_counter() - started)


def _connected(make: Callable[[], Caller]) -> Caller:
    """Return a new client that has made its first call; clients are not kept, as servers close idle connections."""
    call = make()
    call(0)
    return call


def _call_often(call: Caller, count: int) -> list[float]:
    return [call(number) for number in range(count)]


@contextmanager
def _servers() -> Iterator[dict[str, Callable[[], Caller]]]:
    """Run all servers; yield for each a function that creates a client."""
    environment, token = environment_of("agentbarrier"), token_for(prepare(), "calls:create")
    with ExitStack() as stack:
        toolgate = stack.enter_context(serving()).port
        echo = stack.enter_context(listening(lambda port: [sys.executable, str(HERE / "echo.py"), str(port)]))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentbarrier-", dir=ROOT / "var")))
        barrier = stack.enter_context(listening(lambda port: _barrier_command(environment, folder, port)))
        yield {
            "toolgate": lambda: McpClient(toolgate, token).call,
            "echo": lambda: McpClient(echo, TOKEN, "echo").call,
            "agentbarrier": lambda: _barrier_call(McpClient(barrier, TOKEN, "echo")),
        }


def _barrier_call(client: McpClient) -> Caller:
    """Return a caller that gives each call its own idempotency key, since AgentBarrier runs a key only once."""
    return lambda number: client.call(number, key=uuid4().hex)


def _barrier_command(environment: Path, folder: Path, port: int) -> list[str]:
    """Write the configuration of AgentBarrier in front of the echo server, and return its command."""
    policy = {"version": "1", "default": "deny", "rules": [{"name": "echo", "effect": "allow", "tool": "echo"}]}
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    auth = {"version": "1", "tokens": [{"subject": "bench", "token_sha256": digest, "scopes": ["mcp:call"]}]}
    (folder / "policy.json").write_text(json.dumps(policy))
    (folder / "auth.json").write_text(json.dumps(auth))
    command = [str(environment / "bin" / "agentbarrier"), "mcp", "http", "--port", str(port)]
    command += ["--policy", str(folder / "policy.json"), "--auth-config", str(folder / "auth.json")]
    command += ["--db", str(folder / "barrier.sqlite3"), "--idempotency-argument", "key"]
    return [
        *command,
        "--upstream-command",
        str(environment / "bin" / "python"),
        "--upstream-arg",
        str(HERE / "echo.py"),
    ]


@contextmanager
def listening(command: Callable[[int], list[str]]) -> Iterator[int]:
    """Run a server on a free port until the body is left; yield the port once it listens."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with subprocess.Popen(command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:  # noqa: S603
        try:
            _wait_for(port, server)
            yield port
        finally:
            server.terminate()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    """Return once the server listens. Raises ConnectionRefusedError if it has ended or takes too long."""
    ends = monotonic() + START_SECONDS
    while True:
        try:
            create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if monotonic() > ends or server.poll() is not None:
                raise
            sleep(0.05)
        else:
            return
