"""`mcp_call_ms`, `mcp_calls_per_s`: calls of one safe tool over MCP, by one client and by sixteen concurrent ones.

The requests are those of a client of version 2026-07-28; for each, the server looks up the token, stores a call and
runs it. `mcp_call_ratio_oauth` compares a client that signed in with one that has a static token.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.client import HTTPConnection
from statistics import median
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User

from benchmarks.figures import print_figure
from benchmarks.ground import prepare, serving, token_for
from catalog.connections.credentials import ACCESS_PREFIX, checksum_of
from catalog.connections.models import AccessToken, Client
from catalog.connections.services import ConsentTerms, create_connection
from catalog.core import clock

CALLS = 100
WARM_UP = 50
CLIENTS = 16
VERSION = "2026-07-28"
TOOL = "bench_noop"


class McpClient:
    """Calls a tool over one persistent connection."""

    def __init__(self, port: int, token: str, tool: str = TOOL) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._tool = tool
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }

    def call(self, number: int, **more: str) -> float:
        """Return the milliseconds of one call. Raises RuntimeError unless it succeeds."""
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": self._tool, "arguments": {"number": number, **more}, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        started = perf_counter()
        self._connection.request("POST", "/mcp", body, self._headers)
        answer = self._connection.getresponse().read()
        milliseconds = (perf_counter() - started) * 1000
        if json.loads(answer).get("result", {}).get("isError", True):
            raise RuntimeError(f"The call was answered with {answer[:500]!r}")
        return milliseconds


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each call by one client."""
    token = token_for(prepare(), "calls:create")
    with serving() as served:
        client = McpClient(served.port, token)
        _call_often(client, WARM_UP)
        return _call_often(client, runs * CALLS)


def oauth_ratio(runs: int) -> list[float]:
    """Print the milliseconds per call of both clients; return the ratio of OAuth to the static token for each run.

    The clients call in turn.
    """
    user = prepare()
    tokens = {"oauth": _access_token_for(user), "static": token_for(user, "calls:create")}
    rounds = []
    with serving() as served:
        clients = {name: McpClient(served.port, token) for name, token in tokens.items()}
        for client in clients.values():
            _call_often(client, WARM_UP)
        for _ in range(runs):
            turns = [{name: client.call(number) for name, client in clients.items()} for number in range(CALLS)]
            rounds.append({name: median(turn[name] for turn in turns) for name in clients})
    for name in tokens:
        print_figure(f"mcp_call_ms_{name}", [each[name] for each in rounds], "ms")
    return [each["oauth"] / each["static"] for each in rounds]


def _access_token_for(user: User) -> str:
    """Return the text of an access token of a new connection."""
    client = Client.objects.create(name="bench", redirect_uris="http://127.0.0.1/callback")
    terms = ConsentTerms(("calls:create",))
    connection = create_connection(user=user, client=client, redirect_uri=client.redirect_uris, terms=terms)
    text = f"{ACCESS_PREFIX}bench"
    AccessToken.objects.create(
        user=user,
        application=client,
        api_token=connection.token,
        token_checksum=checksum_of(text),
        expires=clock.now() + timedelta(hours=1),
    )
    return text


def per_second(runs: int) -> list[float]:
    """Return the calls per second of sixteen concurrent clients, for each run."""
    token = token_for(prepare(), "calls:create")
    with serving() as served, ThreadPoolExecutor(CLIENTS) as threads:
        clients = [McpClient(served.port, token) for _ in range(CLIENTS)]
        list(threads.map(_call_often, clients, [WARM_UP // 5] * CLIENTS))
        rates = []
        for _ in range(runs):
            started = perf_counter()
            list(threads.map(_call_often, clients, [CALLS // 2] * CLIENTS))
            rates.append(CLIENTS * (CALLS // 2) / (perf_counter() - started))
        return rates


def _call_often(client: McpClient, count: int) -> list[float]:
    return [client.call(number) for number in range(count)]
