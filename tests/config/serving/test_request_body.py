"""Request bodies that are too large or too slow are refused before authentication."""

import json
from typing import Any

import pytest
from channels.testing import HttpCommunicator
from django.conf import settings

from config.serving import request_body
from config.serving.handler import ThreadedHandler

LIMIT = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
PATHS = ("/api/v1/plans/", "/sign-in/", "/nothing/here/")


def sending(path: str, *headers: tuple[bytes, bytes]) -> HttpCommunicator:
    """Return a client that has its request's body still to send."""
    return HttpCommunicator(ThreadedHandler(), "POST", path, headers=[(b"host", b"localhost"), *headers])


async def answer_of(client: HttpCommunicator) -> Any:
    """Return the start of a response and its body."""
    start = await client.receive_output(timeout=60)
    body = (await client.receive_output(timeout=60))["body"]
    await client.wait(timeout=60)
    return start["status"], {name.lower(): value for name, value in start["headers"]}, body


@pytest.mark.parametrize("path", PATHS)
async def test_announced_size_over_the_limit_is_refused_unread(path: str) -> None:
    client = sending(path, (b"content-length", str(LIMIT + 1).encode()))
    await client.send_input({"type": "http.request", "body": b"x", "more_body": True})
    status, headers, _ = await answer_of(client)
    assert (status, headers[b"connection"]) == (413, b"close")


async def test_chunks_over_the_limit_are_refused_while_more_is_to_come() -> None:
    client = sending(PATHS[0])
    for _ in range(2):
        await client.send_input({"type": "http.request", "body": b"x" * LIMIT, "more_body": True})
    status, headers, body = await answer_of(client)
    assert (status, headers[b"content-type"]) == (413, b"application/problem+json")
    assert json.loads(body)["status"] == 413


async def test_slow_body_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "READ_TIMEOUT_SECONDS", 0.0)
    client = sending(PATHS[1])
    await client.send_input({"type": "http.request", "body": b"x", "more_body": True})
    status, _, _ = await answer_of(client)
    assert status == 408
