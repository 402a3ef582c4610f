"""Requests that repeat a header which may occur once."""

from typing import Any

import pytest

from config.serving.request_headers import SingleHeaders


async def sent_by(headers: list[tuple[bytes, bytes]], kind: str = "http") -> list[Any]:
    """Return the messages sent for a request; the application behind sends the text `served`."""
    sent: list[Any] = []

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await send("served")

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await SingleHeaders(served)({"type": kind, "method": "GET", "path": "/", "headers": headers}, receive, send)
    return sent


@pytest.mark.parametrize("name", [b"host", b"authorization", b"content-type", b"origin", b"mcp-protocol-version"])
async def test_a_repeated_single_header_is_refused(name: bytes) -> None:
    start, body = await sent_by([(name, b"a"), (b"accept", b"x"), (name, b"a")])
    assert start["status"] == 400 and name in body["body"]
    *_, close = await sent_by([(name, b"a"), (name, b"b")], "websocket")
    assert (close["type"], close["code"]) == ("websocket.close", 4400)


async def test_lists_may_be_divided_into_several_headers() -> None:
    for name in (b"accept", b"cookie", b"x-forwarded-for"):
        assert await sent_by([(b"host", b"a"), (name, b"a"), (name, b"b")]) == ["served"]
