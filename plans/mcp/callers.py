"""Callers of the MCP server: a bearer token and its owner, verified for each request and again during long requests.

Also the client's name and the session that a request states. Database work of the MCP server runs in three small thread
pools, so that slow work delays only its own kind. `in_thread` is for work of milliseconds, and `in_call_thread` for
storing a call and waiting up to 50 ms. `in_held_thread` is for calls that may wait for a tool's preview, or for another
thread that stores the same call. One token cannot use all threads of this last pool.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import mcp_types as types
from django.conf import settings
from django.contrib.auth.models import User
from django.db import close_old_connections
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from catalog.access import learnt_waits
from catalog.access.roles import NotAllowed, prefetch_groups, user_for_token
from catalog.access.tokens import ASK_SCOPE, may_hold_scope, reload_token
from catalog.connections.authentication import authenticate_at_mcp, is_access_token
from catalog.context import MAX_SESSION
from catalog.core.asgi import Scope
from catalog.errors import MalformedJSON
from catalog.inventory import snapshot
from catalog.models import ApiToken
from catalog.rest.authentication import check_scope
from plans.engine.holding import CallBusy
from plans.store.requesters import Requester

SCOPE = "calls:create"
SCOPE_KEY = "toolgate.caller"
"""The key in an ASGI scope that holds the caller of the request."""
OPENED_KEY = "toolgate.opened_call"
"""The key in an ASGI scope of the OpenedCall of a request whose call was made before the SDK got it."""
FAULT_KEY = "toolgate.arguments_fault"
"""The key in an ASGI scope that holds the MalformedJSON of unreadable arguments, or None."""
CHECK_SECONDS = 3.0
"""Seconds after which a request that waits verifies its token again."""
HELD_WAIT_SECONDS = 10.0
"""Longest time in seconds that a call waits for one of its token's places in the pool of held calls."""
MAX_HELD_CALLS = 16
"""Maximum number of calls of one token that have a place in the pool of held calls or wait for one."""

SESSION_ID_HEADER = b"mcp-session-id"
NAMED_SESSION = "client"
"""Beginning of a session id that holds the client's name."""

Context = ServerRequestContext[Any, Any]
ResultT = TypeVar("ResultT")


class TokenEnded(Exception):
    """The token was revoked, has expired, or its owner was deactivated during a request."""


@dataclass(frozen=True, slots=True)
class Caller:
    token: ApiToken
    user: User
    user_agent: str = ""
    is_connected: bool = False
    """True for the access token of a connection, whose client can ask for more scopes."""

    @property
    def may_step_up(self) -> bool:
        """True if the caller may make no calls, but could by connecting again with the scope for it."""
        lacks = SCOPE not in self.token.scopes
        return self.is_connected and lacks and may_hold_scope(self.user, SCOPE)

    @property
    def may_call(self) -> bool:
        return self._may(SCOPE)

    @property
    def may_ask(self) -> bool:
        """True if the caller may ask for permission to run tools of its own."""
        return self._may(ASK_SCOPE)

    def _may(self, scope: str) -> bool:
        try:
            check_scope(scope, self.user, self.token)
        except NotAllowed:
            return False
        return True

    def requester(self, session: str = "") -> Requester:
        return Requester(self.user, self.token, via="mcp", session=session)


def verify(text: str, user_agent: str) -> Caller | None:
    """Return the caller with this bearer token; None if the token is unknown, expired or revoked.

    Refreshes an outdated catalog snapshot, because the event loop may read tools only from memory.
    """
    token = authenticate_at_mcp(text)
    if token is None:
        return None
    snapshot.callable_tools()
    return Caller(token, user_for_token(token), user_agent, is_connected=is_access_token(text))


def verify_again(caller: Caller) -> Caller:
    """Return the caller with its token read again from the database. Raises TokenEnded."""
    token = reload_token(caller.token)
    if token is None:
        raise TokenEnded
    return Caller(token, user_for_token(token), caller.user_agent)


def live_callers(callers: Iterable[Caller]) -> dict[int, Caller]:
    """Return the callers whose tokens are still valid, by the token's primary key. Reads them again in two queries."""
    agents = {caller.token.pk: caller.user_agent for caller in callers}
    tokens = ApiToken.objects.select_related("user").filter(pk__in=agents)
    live = [token for token in tokens if token.is_live and token.user.is_active]
    prefetch_groups(token.user for token in live)
    return {token.pk: Caller(token, user_for_token(token), agents[token.pk]) for token in live}


def scope_of(context: Context) -> Scope:
    request: Any = context.request
    scope: Scope = request.scope
    return scope


def caller_of(context: Context) -> Caller:
    caller: Caller = scope_of(context)[SCOPE_KEY]
    return caller


def check_arguments(context: Context) -> None:
    """Raise the MalformedJSON found in the arguments of this request, if any."""
    fault: MalformedJSON | None = scope_of(context).get(FAULT_KEY)
    if fault is not None:
        raise fault


def client_of(context: Context) -> str:
    """Return the client's name from `clientInfo`; where a request has none, from its session id or User-Agent."""
    introduced = context.session.client_params
    if introduced is not None:
        return learnt_waits.client_name(introduced.client_info.name)
    session_id = next((value for name, value in scope_of(context)["headers"] if name == SESSION_ID_HEADER), b"")
    kind, _, name = session_id.decode("latin-1").partition(".")
    return learnt_waits.client_name(name if kind == NAMED_SESSION and name else caller_of(context).user_agent)


def session_id_for(client: str) -> bytes | None:
    """Return the session id for a client that names itself when it connects, and only then; None for all others.

    It holds the name, so that the server needs no sessions to know it. Gemini CLI has a User-Agent without its name.
    """
    named = client.startswith("gemini-cli") and client.isascii() and client.isprintable() and " " not in client
    return f"{NAMED_SESSION}.{client}".encode() if named and len(client) <= MAX_SESSION else None


def session_of(context: Context) -> str:
    """Return the session that a request names; empty for the default session. Raises MCPError."""
    meta = (context.params or {}).get("_meta")
    name = meta.get("toolgate/session", "") if isinstance(meta, dict) else ""
    if not isinstance(name, str) or len(name) > MAX_SESSION or "\0" in name:
        message = f"_meta['toolgate/session'] must be a text of at most {MAX_SESSION} characters."
        raise MCPError(types.INVALID_PARAMS, message)
    return name


_threads = ThreadPoolExecutor(settings.MCP_THREADS, thread_name_prefix="toolgate-mcp")
_call_threads = ThreadPoolExecutor(settings.MCP_CALL_THREADS, thread_name_prefix="toolgate-mcp-call")
_held_threads = ThreadPoolExecutor(settings.MCP_HELD_THREADS, thread_name_prefix="toolgate-mcp-held")


async def in_thread(function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Run a function that uses the database for some milliseconds."""
    return await asyncio.wrap_future(_submit(_threads, function, *arguments))


async def in_call_thread(function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Run a function that stores a call and waits briefly for its result."""
    return await asyncio.wrap_future(_submit(_call_threads, function, *arguments))


async def in_held_thread(caller: Caller, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Run a function that uses the database and may take seconds, within the token's share of threads.

    Raises CallBusy if too many calls of the token wait already, or after waiting for HELD_WAIT_SECONDS.
    """
    loop, token = asyncio.get_running_loop(), caller.token.pk
    share = _shares.setdefault(token, _Share())
    if share.calls >= MAX_HELD_CALLS:
        raise CallBusy
    share.calls += 1
    try:
        async with asyncio.timeout(HELD_WAIT_SECONDS):
            await share.places.acquire()
    except BaseException as error:
        _leave(token, share)
        if isinstance(error, TimeoutError):
            raise CallBusy from None
        raise
    work = _submit(_held_threads, function, *arguments)

    def give_back() -> None:
        share.places.release()
        _leave(token, share)

    # When the work ends, not when the client has gone: until then it occupies the thread.
    work.add_done_callback(lambda _: loop.call_soon_threadsafe(give_back))
    return await asyncio.wrap_future(work)


@dataclass(slots=True)
class _Share:
    """One token's places in the pool for held calls; `calls` counts its calls that have a place or wait for one."""

    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(settings.MCP_HELD_THREADS - 1))
    calls: int = 0


_shares: dict[int, _Share] = {}


def _leave(token: int, share: _Share) -> None:
    share.calls -= 1
    if not share.calls:
        _shares.pop(token, None)


def _submit(pool: ThreadPoolExecutor, function: Callable[..., ResultT], *arguments: Any) -> Future[ResultT]:
    """Run a function in a pool with a working database connection, and release the connection afterwards."""

    def run() -> ResultT:
        close_old_connections()
        try:
            return function(*arguments)
        finally:
            close_old_connections()

    # The copy has the ids that tie log lines and plans to the request.
    return pool.submit(copy_context().run, run)
