"""The MCP server on a real socket in this process, with a real executor, and clients that connect to it."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from socket import socket
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from catalog.core.asgi import App
from config.serving.mcp import McpRouter
from plans.live.feed import current_feed
from plans.mcp.endpoint import McpEndpoint

ERAS = ("legacy", "auto")
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def facts_of(answer: Any) -> dict[str, Any]:
    """Return the facts of an error: its JSON, which is no structured content."""
    assert answer.is_error
    assert answer.structured_content is None
    facts: dict[str, Any] = json.loads(answer.content[-1].text)
    return facts


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    """Answer everything beside the MCP server's paths."""
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def with_token(app: App, token: str) -> App:
    """Return an application that forwards requests with a token, for clients that send none."""

    async def forward(scope: Any, receive: Any, send: Any) -> None:
        headers = [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]
        await app({**scope, "headers": headers}, receive, send)

    return forward


async def serve(
    listener: socket, is_up: threading.Event, stop: threading.Event, token: str | None, others: App
) -> None:
    """Serve on a socket until told to stop; with a `token` every request has it."""
    endpoint = McpEndpoint()
    router: App = McpRouter(endpoint, others)
    app = with_token(router, token) if token else router
    config = uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    async with endpoint.run():
        serving = asyncio.ensure_future(server.serve([listener]))
        is_up.set()
        await asyncio.to_thread(stop.wait)
        server.should_exit = True
        await serving
    await current_feed().close()


@contextmanager
def serving_mcp(token: str | None = None, others: App = nowhere) -> Iterator[str]:
    """Serve in a thread while the body runs, which gets the address; with a `token` every request has it.

    `others` answers what is not for the MCP server.
    """
    is_up, stop = threading.Event(), threading.Event()
    with socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=lambda: asyncio.run(serve(listener, is_up, stop, token, others)))
        thread.start()
        is_up.wait()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        stop.set()
        thread.join()


@pytest.fixture
def mcp_url(executor: Any) -> Iterator[str]:
    """The address of a server that runs as long as the test."""
    with serving_mcp() as url:
        yield url


@asynccontextmanager
async def connected(url: str, token: str, mode: str = ERAS[1], **options: Any) -> AsyncIterator[Any]:
    """Connect the SDK's client with a token, in the handshake era (`legacy`) or with version 2026-07-28."""
    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(60, read=300)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **options) as client,
    ):
        yield client
