"""Clients whose requests reach the views of this process without a network, and without long polls."""

from typing import Any

import django.test
import httpx
from django.contrib.auth.models import User

from catalog.access.tokens import create_token
from toolgate_client import Client

ADDRESS = "http://testserver"


class ViewTransport(httpx.BaseTransport):
    """Lets Django's test client make the requests."""

    def __init__(self) -> None:
        self.client = django.test.Client(raise_request_exception=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the view's answer."""
        response = self.client.generic(
            request.method,
            request.url.raw_path.decode(),
            request.read(),
            request.headers.get("content-type", "application/octet-stream"),
            headers=dict(request.headers),
        )
        return httpx.Response(response.status_code, headers=dict(response.headers), stream=Body(response.content))


class Body(httpx.SyncByteStream):
    """A body that has not been read yet."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Any:
        yield self.content


def client_of(user: User, *scopes: str, **options: Any) -> Client:
    """Return a client with a new token: an agent's, or a personal one if it may decide."""
    kind = "personal" if "approvals:decide" in scopes else "agent"
    token = create_token(user=user, kind=kind, scopes=scopes)[1]
    return Client(ADDRESS, token, transport=ViewTransport(), **{"session": "s1", "retry_seconds": 0, **options})
