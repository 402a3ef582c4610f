"""Requests to a cluster from outside: tokens, sessions, sockets of pages."""

from collections.abc import Iterator
from typing import Any

import httpx
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from catalog.access.tokens import create_token

SCOPES = ["plans:read", "plans:write", "calls:create", "approvals:read", "approvals:decide"]


HANGS_SECONDS = 60.0
"""Limit for an answer; it is there for requests that hang."""


def get(url: str, **more: Any) -> httpx.Response:
    """Send a GET request."""
    return httpx.get(url, timeout=HANGS_SECONDS, **more)


def post(url: str, **more: Any) -> httpx.Response:
    """Send a POST request."""
    return httpx.post(url, timeout=HANGS_SECONDS, **more)


def bearer(user: User) -> dict[str, str]:
    """Return the header of a new token that may do what the user may."""
    return {"Authorization": f"Bearer {create_token(user=user, kind='personal', scopes=SCOPES)[1]}"}


def signed_in(user: User) -> dict[str, str]:
    """Return the cookies of a browser in which the user has signed in."""
    browser = Client()
    browser.force_login(user)
    return {settings.SESSION_COOKIE_NAME: browser.cookies[settings.SESSION_COOKIE_NAME].value}


def page_socket(url: str, plan: str, user: User) -> ClientConnection:
    """Open the socket of a plan's page, signed in as the user."""
    cookies = "; ".join(f"{name}={value}" for name, value in signed_in(user).items())
    address = f"{url.replace('http', 'ws')}/ws/pages/plans/{plan}/?after=0"
    return connect(address, additional_headers={"Cookie": cookies}, origin=Origin(url), open_timeout=HANGS_SECONDS)


def said(socket: ClientConnection) -> Iterator[str]:
    """Yield the messages of a socket; fail if none arrives within HANGS_SECONDS."""
    while True:
        yield str(socket.recv(timeout=HANGS_SECONDS))
