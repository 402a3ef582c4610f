"""Both clients on a scripted server in the place of the network, without pauses."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from inspect import isawaitable
from typing import Any

import httpx
import pytest

from toolgate_client import AsyncClient, Client

TOKEN = "tg_secret-of-the-test"
CALL = {"id": "call_1", "tool": "write_file", "status": "completed", "message": "OK", "result": {"results": ["x"]}}
PROBLEM_TYPE = {"content-type": "application/problem+json"}
Reply = httpx.Response | Exception


def problem(status: int, kind: str = "conflict", **headers: str) -> httpx.Response:
    """Return an error as Toolgate answers it."""
    body = {"type": f"urn:toolgate:{kind}", "title": "", "status": status, "detail": "In words.", "errors": []}
    return httpx.Response(status, json=body, headers={**PROBLEM_TYPE, **headers})


class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that has not been read yet, as it comes from a network."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.content


def unread(response: httpx.Response) -> httpx.Response:
    """Return a response as it comes from a network."""
    return httpx.Response(response.status_code, headers=response.headers, stream=Chunks(response.content))


class Script:
    """A server that gives its replies in order; `requests` are those that it got."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return unread(reply)

    def bodies(self) -> list[Any]:
        """Return the JSON of the requests that have some."""
        return [json.loads(request.content) for request in self.requests if request.content]

    def paths(self) -> list[str]:
        """Return method and path of each request."""
        return [f"{request.method} {request.url.path.removeprefix('/api/v1/')}" for request in self.requests]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The server, and no pauses."""
    script = Script()

    async def pause(seconds: float) -> None:
        script.pauses.append(seconds)

    monkeypatch.setattr("toolgate_client.client.time.sleep", script.pauses.append)
    monkeypatch.setattr("toolgate_client.client.asyncio.sleep", pause)
    return script


@pytest.fixture(params=[Client, AsyncClient])
def toolgate(request: pytest.FixtureRequest, script: Script) -> Iterator[Client | AsyncClient]:
    """One client and then the other."""
    transport = httpx.MockTransport(script)
    yield request.param("https://toolgate.example", TOKEN, session="s1", transport=transport)


@pytest.fixture
def outcome() -> Callable[[Any], Any]:
    """Return the result of a method of either client."""

    def of(result: Any) -> Any:
        async def awaited() -> Any:
            return await result

        return asyncio.run(awaited()) if isawaitable(result) else result

    return of
