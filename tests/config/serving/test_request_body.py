"""Request bodies that are too large or too slow are refused before authentication."""

import json
from io import BytesIO
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import HttpCommunicator
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from catalog.access.tokens import create_token
from catalog.models import ApiToken
from config.serving import request_body
from config.serving.handler import ThreadedHandler
from config.serving.request_body import with_length
from tests.conftest import person

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


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("scopes", "is_announced", "status"),
    [
        (None, False, 413),
        (("calls:create",), True, 413),
        (("calls:create",), False, 413),
        (("permissions:ask",), True, 200),
        (("permissions:ask",), False, 200),
    ],
)
async def test_hook_is_larger_only_with_a_token_that_may_ask(
    scopes: tuple[str, ...] | None, is_announced: bool, status: int
) -> None:
    body = json.dumps({"hook_event_name": "Stop", "text": "x" * LIMIT}).encode()
    text = await sync_to_async(token_text)(scopes) if scopes else "tg_unknown"
    headers = [(b"authorization", f"Bearer {text}".encode()), (b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(body)).encode())] if is_announced else []
    client = sending("/api/v1/hooks/claude-code/", *headers)
    for half, more in ((body[: LIMIT // 2], True), (body[LIMIT // 2 :], False)):
        await client.send_input({"type": "http.request", "body": half, "more_body": more})
    assert (await answer_of(client))[0] == status


@pytest.mark.parametrize("announced", [None, b"1", b"67"])
async def test_request_has_the_length_of_its_body(announced: bytes | None) -> None:
    body = b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\nvalue\r\n--b--\r\n'
    headers = [(b"host", b"localhost"), (b"content-type", b"multipart/form-data; boundary=b")]
    headers += [(b"content-length", announced)] if announced is not None else []
    request = ASGIRequest(
        with_length({"type": "http", "method": "POST", "path": "/", "headers": headers}, len(body)), BytesIO(body)
    )
    assert request.POST["a"] == "value"
    assert request.META["CONTENT_LENGTH"] == str(len(body))


def token_text(scopes: tuple[str, ...]) -> str:
    owner = person("ada", "operator")
    return create_token(user=owner, kind=ApiToken.Kind.AGENT, scopes=list(scopes))[1]


async def test_slow_body_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "READ_TIMEOUT_SECONDS", 0.0)
    client = sending(PATHS[1])
    await client.send_input({"type": "http.request", "body": b"x", "more_body": True})
    status, _, _ = await answer_of(client)
    assert status == 408
