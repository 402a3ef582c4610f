"""Access that ends through one server, as a client of another server on the same database meets it."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from mcp.client.subscriptions import Subscription, SubscriptionLost
from mcp.shared.exceptions import MCPError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from catalog.models import ApiToken, Call
from tests.catalog.connections.oauth_client import OAuthClient
from tests.conftest import MakeServing
from tests.plans.mcp.conftest import ACCEPT, ERAS, connected
from tests.plans.socket_clients import apart, session_of
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

PROMISED_SECONDS = 5.0
WRITE = {"path": "a.txt", "content": "x"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
OF_CONNECTION = {"legacy call", "auto call", "stream", "subscription"}
OF_SESSION = {"shell socket", "inbox socket"}


@pytest.fixture
def servers(transactional_db: None, catalog: None, make_serving: MakeServing) -> Iterator[tuple[str, str]]:
    """The addresses of two servers."""
    first, second = (make_serving(TOOLGATE_LEASE_SECONDS="30", TOOLGATE_TOOLS="") for _ in range(2))
    second.name = "second.log"
    for process in (first, second):
        process.start()
    yield eventually(first.url, what="the first server"), eventually(second.url, what="the second server")
    for process in (first, second):
        process.end(signal.SIGTERM)


async def press(url: str, user: User, page: str, action: str, **fields: str) -> None:
    """Send a form of a page in a browser in which the user has just signed in."""
    cookies = {settings.SESSION_COOKIE_NAME: await apart(session_of, user)}
    async with httpx2.AsyncClient(base_url=url, cookies=cookies, timeout=60) as browser:
        found = CSRF.search((await browser.get(page)).text)
        assert found is not None
        answer = await browser.post(action, data={"csrfmiddlewaretoken": found[1], **fields})
    assert answer.status_code == 302, answer.text


async def held_call(client: Any, is_held: asyncio.Event) -> None:
    """Return when the server refuses to wait longer for a held call."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        is_held.set()

    with pytest.raises(MCPError, match="no longer valid"):
        await client.call_tool("write_file", WRITE, progress_callback=on_progress)


async def until_end(events: Any) -> None:
    async for _ in events:
        pass


async def until_lost(subscription: Subscription) -> None:
    with pytest.raises(SubscriptionLost):
        await until_end(subscription)


async def until_signed_out(socket: ClientConnection) -> None:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await socket.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401


@asynccontextmanager
async def everything_open(url: str, user: User, access_token: str) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Open all that waits at a server, for a connection and for a person; the tasks are done when it has ended."""
    open_tasks: dict[str, asyncio.Task[None]] = {}

    def watch(name: str, work: Awaitable[None]) -> None:
        open_tasks[name] = asyncio.ensure_future(work)

    async with AsyncExitStack() as stack:
        headers = {**ACCEPT, "authorization": f"Bearer {access_token}"}
        clients = {era: await stack.enter_async_context(connected(f"{url}/mcp", access_token, era)) for era in ERAS}
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
        stream = await stack.enter_async_context(http.stream("GET", f"{url}/mcp"))
        assert stream.status_code == 200
        watch("stream", until_end(stream.aiter_lines()))
        subscription = await stack.enter_async_context(clients["auto"].listen(tools_list_changed=True))
        watch("subscription", until_lost(subscription))
        cookie = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={await apart(session_of, user)}"}
        for page in ("shell", "inbox"):
            address = f"{url.replace('http', 'ws', 1)}/ws/pages/{page}/"
            opening = connect(address, additional_headers=cookie, origin=Origin(url))
            watch(f"{page} socket", until_signed_out(await stack.enter_async_context(opening)))
        held = {era: asyncio.Event() for era in ERAS}
        for era in ERAS:
            watch(f"{era} call", held_call(clients[era], held[era]))
        await asyncio.gather(*(each.wait() for each in held.values()))
        assert not [name for name, task in open_tasks.items() if task.done()]
        try:
            yield open_tasks
        finally:
            for task in open_tasks.values():
                task.cancel()
            await asyncio.gather(*open_tasks.values(), return_exceptions=True)


@pytest.mark.parametrize(
    ("end", "ends"),
    [
        ("connection", OF_CONNECTION),
        ("account", OF_CONNECTION | OF_SESSION),
        ("sessions", OF_SESSION),
    ],
)
async def test_what_one_server_ends_ends_at_the_other(
    servers: tuple[str, str], ada: User, admin: User, end: str, ends: set[str]
) -> None:
    here, there = servers
    client = await apart(OAuthClient.registered)
    tokens = await apart(client.connected, ada)
    number = (await apart(ApiToken.objects.get)).pk
    async with everything_open(here, ada, tokens["access_token"]) as open_tasks:
        if end == "connection":
            await press(there, ada, f"/connections/{number}/", f"/connections/{number}/end/")
        elif end == "account":
            await press(there, admin, f"/people/{ada.pk}/", f"/people/{ada.pk}/access/", do="deactivate")
        else:
            await press(there, ada, "/profile/sign-ins/", "/profile/sign-ins/end-others/")
        awaited = [open_tasks[name] for name in ends]
        await asyncio.wait(awaited, timeout=PROMISED_SECONDS)
        assert {name for name, task in open_tasks.items() if task.done()} == ends
        for task in awaited:
            await task
    headers = {**ACCEPT, "authorization": f"Bearer {tokens['access_token']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        status = (await http.post(f"{here}/mcp", json=LIST)).status_code
    assert status == (200 if end == "sessions" else 401)
    refreshed = await apart(client.refresh, tokens["refresh_token"])
    assert refreshed.status_code == (200 if end == "sessions" else 400)
    assert await apart(Call.objects.filter(status="held").count) == 1  # the call itself goes on
