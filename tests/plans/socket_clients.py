"""Opening sockets as programs and browsers do, and giving them something to hear."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from catalog.access.tokens import create_token
from plans.models import Plan
from plans.routing import websocket_urlpatterns
from plans.store.transactions import plan_transaction

ResultT = TypeVar("ResultT")
ORIGIN = "http://localhost"


async def apart(function: Callable[..., ResultT], *arguments: Any, **options: Any) -> ResultT:
    """Run what asks the database in a thread of its own, and give the thread's connection back."""
    return await sync_to_async(_and_hang_up, thread_sensitive=False)(function, *arguments, **options)


def _and_hang_up(function: Callable[..., ResultT], *arguments: Any, **options: Any) -> ResultT:
    try:
        return function(*arguments, **options)
    finally:
        connection.close()


def session_of(user: User) -> str:
    """Sign in and return the session's key."""
    client = Client()
    client.force_login(user)
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


def by_session(user: User, origin: str | None = ORIGIN) -> list[tuple[bytes, bytes]]:
    """Return the headers of a browser in which the user is signed in."""
    cookie = (b"cookie", f"{settings.SESSION_COOKIE_NAME}={session_of(user)}".encode())
    return [(b"host", b"localhost"), cookie, *([(b"origin", origin.encode())] if origin else [])]


def by_token(user: User, *scopes: str, kind: str = "personal") -> list[tuple[bytes, bytes]]:
    """Return the headers of a program with a token of these scopes."""
    _, text = create_token(user=user, kind=kind, scopes=scopes)
    return [(b"authorization", f"Bearer {text}".encode())]


@asynccontextmanager
async def opened(path: str, headers: list[tuple[bytes, bytes]]) -> AsyncIterator[WebsocketCommunicator]:
    """Open a socket, accepted as every socket is, and leave it at the end."""
    caller = WebsocketCommunicator(URLRouter(websocket_urlpatterns), path, headers)
    accepted, _ = await caller.connect(timeout=60)
    assert accepted
    yield caller
    await caller.disconnect()


async def refused(path: str, headers: list[tuple[bytes, bytes]]) -> int:
    """Open a socket and return the code with which it is closed at once."""
    async with opened(path, headers) as caller:
        message = await caller.receive_output(timeout=60)
        assert message["type"] == "websocket.close"
        assert message["reason"]
        return int(message["code"])


def happen(plan: Plan, count: int = 1) -> None:
    """Let `count` events happen to the plan, each in its own transaction."""
    for number in range(count):
        with plan_transaction(plan.pk, plan.public_id) as tx:
            tx.record("memory.written", key=f"k{number}")
