"""Clients that sign in: the OAuth clients of the MCP SDKs against pages, endpoints and `/mcp` of one server."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from catalog.access.tokens import revoke_token
from catalog.connections.models import AccessToken, Connection, RefreshToken
from catalog.core import clock
from catalog.models import ApiToken, Call
from config.serving.handler import ThreadedHandler
from tests.catalog.connections.oauth_client import CALLBACK
from tests.plans.mcp.client_processes import CLIENTS, node_client, started
from tests.plans.mcp.conftest import ACCEPT, serving_mcp
from tests.plans.socket_clients import apart, session_of

pytestmark = pytest.mark.django_db(transaction=True)

SAY = {"template": "hello", "values": {}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "render_text", "arguments": SAY}}


@pytest.fixture
def served(executor: Any) -> Iterator[str]:
    """The address of `/mcp` of a server with pages and endpoints."""
    with serving_mcp(others=ThreadedHandler()) as url:
        yield url


class Storage:
    """Storage of a client; several sessions of a client share it."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@dataclass
class Person:
    """Consents in a browser to whatever is asked, and counts how often."""

    user: User
    consents: int = 0
    answer: AuthorizationCodeResult | None = None

    async def visit(self, address: str) -> None:
        """Open the page of the consent and agree; keep what is sent to the client."""
        cookies = {django_settings.SESSION_COOKIE_NAME: await apart(session_of, self.user)}
        async with httpx2.AsyncClient(cookies=cookies) as browser:
            page = await browser.get(address)
            assert page.status_code == 200, page.text
            found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
            assert found is not None
            form = {"csrfmiddlewaretoken": found[1], "decision": "allow", "days": "30"}
            sent = await browser.post(address, data=form, headers={"Referer": address})
        assert sent.status_code == 303, sent.text
        query = parse_qs(urlsplit(sent.headers["location"]).query)
        self.answer = AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0])
        self.consents += 1

    async def answered(self) -> AuthorizationCodeResult:
        assert self.answer is not None
        return self.answer


def provider_for(url: str, person: Person, storage: Storage) -> OAuthClientProvider:
    metadata = OAuthClientMetadata.model_validate({"client_name": "SDK", "redirect_uris": [CALLBACK]})
    return OAuthClientProvider(url, metadata, storage, person.visit, person.answered)


@asynccontextmanager
async def signed_in(url: str, provider: OAuthClientProvider) -> AsyncIterator[Any]:
    """Connect the SDK's client, which signs in when it must."""
    async with (
        httpx2.AsyncClient(auth=provider, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def test_the_sdk_signs_in_and_calls(served: str, ada: User) -> None:
    person, storage = Person(ada), Storage()
    async with signed_in(served, provider_for(served, person, storage)) as client:
        assert "render_text" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("render_text", SAY)).structured_content == {"result": "hello"}
    assert person.consents == 1
    assert await apart(Call.objects.filter(tool_name="render_text", status="completed").count) == 1
    connection = await apart(lambda: Connection.objects.select_related("token__user").get())
    assert (connection.client_name, connection.token.user) == ("SDK", ada)
    assert connection.token.last_used_at is not None


@pytest.mark.parametrize("kind", ["typescript", "typescript_2"])
def test_the_typescript_sdk_signs_in_refreshes_and_calls(
    served: str, ada: User, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER", f"{sys.executable} {CLIENTS / 'browser.py'}")
    monkeypatch.setenv("BROWSER_COOKIE", f"{django_settings.SESSION_COOKIE_NAME}={session_of(ada)}")
    with started(node_client(request.config.cache, kind), served, "") as client:
        assert "render_text" in client.names
        AccessToken.objects.update(expires=clock.now())
        for _ in range(2):
            assert client.call("render_text", SAY)["structuredContent"] == {"result": "hello"}
    assert Connection.objects.get().token.user == ada
    assert RefreshToken.objects.count() == 2 and RefreshToken.objects.filter(revoked=None).count() == 1


@pytest.mark.db
async def test_four_sessions_refresh_at_the_same_time(served: str, ada: User) -> None:
    """They share what the client keeps, and each sends the same refresh token."""
    person, storage = Person(ada), Storage()
    first = provider_for(served, person, storage)
    async with signed_in(served, first) as client:
        await client.list_tools()

    async def work() -> Any:
        provider = provider_for(served, person, storage)
        await provider._initialize()
        provider.context.token_expiry_time = 1
        provider.context.oauth_metadata = first.context.oauth_metadata
        async with signed_in(served, provider) as client:
            return [await client.call_tool("render_text", SAY) for _ in range(2)]

    for results in await asyncio.gather(*(work() for _ in range(4))):
        assert all(result.structured_content == {"result": "hello"} for result in results)
    assert person.consents == 1
    assert await apart(RefreshToken.objects.filter(revoked=None).count) == 4
    assert await apart(ApiToken.objects.filter(revoked_at=None, connection__isnull=False).count) == 1


async def test_a_connection_without_the_scope_is_told_to_ask_for_it(served: str, ada: User, vera: User) -> None:
    """But only if that can help: a viewer would be asked without end."""
    for user, statuses in ((ada, 403), (vera, 200)):
        storage = Storage()
        async with signed_in(served, provider_for(served, Person(user), storage)) as client:
            await client.list_tools()
        assert storage.tokens is not None
        connected = await apart(Connection.objects.select_related("token").latest, "pk")
        await apart(ApiToken.objects.filter(pk=connected.token_id).update, scopes=["tools:read", "plans:read"])
        headers = {**ACCEPT, "authorization": f"Bearer {storage.tokens.access_token}"}
        async with httpx2.AsyncClient(timeout=60) as http:
            answer = await http.post(served, headers=headers, json=CALL)
        assert answer.status_code == statuses
        if answer.status_code == 403:
            challenge = answer.headers["www-authenticate"]
            assert challenge.startswith('Bearer error="insufficient_scope"')
            assert 'scope="tools:read calls:create plans:read"' in challenge and answer.json()["id"] == 1


async def test_a_connection_that_ends_stops_its_client(served: str, ada: User) -> None:
    storage = Storage()
    async with signed_in(served, provider_for(served, Person(ada), storage)) as client:
        await client.list_tools()
    assert storage.tokens is not None and storage.client is not None
    connected = await apart(Connection.objects.select_related("token__user").get)
    await apart(revoke_token, connected.token, by=ada)
    async with httpx2.AsyncClient(timeout=60) as http:
        headers = {**ACCEPT, "authorization": f"Bearer {storage.tokens.access_token}"}
        assert (await http.post(served, headers=headers, json=CALL)).status_code == 401
        body = {"grant_type": "refresh_token", "refresh_token": storage.tokens.refresh_token or ""}
        body |= {"client_id": storage.client.client_id or "", "client_secret": storage.client.client_secret or ""}
        refreshed = await http.post(served.removesuffix("/mcp") + "/oauth/token/", data=body)
    assert (refreshed.status_code, refreshed.json()["error"]) == (400, "invalid_grant")
