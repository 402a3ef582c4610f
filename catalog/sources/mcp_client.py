"""Client of upstream MCP servers: one long-lived connection for each source and process, over stdio or HTTP.

Everything here runs on the event loop of asynchronous handlers. A connection is entered and left by one task that
owns it, because the SDK's cancel scopes belong to a task; calls of other tasks share its client. A connection that
breaks is opened again by the next call, with growing pauses while it fails.
"""

import asyncio
import atexit
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

import httpx2

from catalog.core.egress import RequestNotSent, describe_failure
from catalog.dispatch.runner import background_loop
from catalog.errors import EffectUnknown, MalformedJSON, SourceProblem, UpstreamError, UpstreamUnavailable
from catalog.results import UpstreamResult
from catalog.sources.definitions import MAX_TOOLS, Definition, Listing, visible_text
from catalog.sources.mcp_results import keep_raw_results, to_tool_result
from catalog.sources.mcp_tools import definition_from, offered_digest_or_none
from catalog.sources.mcp_transport import BROKEN, NOT_SENT, TOO_LARGE, McpTransport
from catalog.sources.settings import UpstreamSettings

MAX_RESPONSE = 8 * 1024 * 1024
"""Bytes of one HTTP response of an upstream."""
MAX_PAGES = 50
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between attempts to connect to an upstream that fails."""
NOTIFICATION_SECONDS = 1.0
LISTEN_AGAIN_SECONDS = 30.0
CLOSING_SECONDS = 8.0
"""Seconds for ending connections: the SDK waits 2 before it terminates a program, and 2 more before it kills it."""

logger = logging.getLogger("toolgate.sources")
ChangeListener = Callable[[int], None]

_connections: dict[int, "Connection"] = {}
"""Connections for new calls, by source."""
_open_connections: set["Connection"] = set()
"""Connections that have sessions. A retired one stays here until its last session has ended."""
_owner_pid = 0
_listeners: list[ChangeListener] = []


def register_change_listener(listener: ChangeListener) -> None:
    """Call `listener` with a source's key, in a thread, when its upstream says that its tools changed."""
    _listeners.append(listener)


def connection_to(settings: UpstreamSettings) -> "Connection":
    """Return this process's connection to an upstream. Call it on the event loop of asynchronous handlers."""
    global _connections, _open_connections, _owner_pid  # a forked process must not use its parent's connections
    if _owner_pid != os.getpid():
        _connections, _open_connections, _owner_pid = {}, set(), os.getpid()
    known = _connections.get(settings.pk)
    if known is not None and known.settings == settings:
        return known
    if known is not None:
        known.retire()
    _connections[settings.pk] = connection = Connection(settings)
    return connection


def keep_connections(sources: Collection[int]) -> None:
    """Close this process's connections to all other sources, once their calls have ended. For any thread."""
    if _owner_pid != os.getpid():
        return
    for pk in _connections.keys() - set(sources):
        known = _connections.pop(pk, None)
        if known is not None:
            background_loop().call_soon_threadsafe(known.retire)


def close_connections() -> None:
    """End this process's connections, retired ones too, and wait until their programs have ended. For any thread."""
    if _owner_pid == os.getpid() and (_connections or _open_connections):
        with suppress(UpstreamUnavailable):
            run_on_loop(_close_all(), CLOSING_SECONDS)


atexit.register(close_connections)


async def _close_all() -> None:
    known = {*_connections.values(), *_open_connections}
    _connections.clear()
    await asyncio.gather(*(each.end() for each in known))


class _Session:
    """One opened connection: the SDK's client, the task that owns it, and the number of calls that use it."""

    def __init__(self, own: Callable[["_Session"], Coroutine[Any, Any, None]], name: str) -> None:
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.owner = asyncio.create_task(own(self), name=name)
        self._users = 0
        self._retired = False

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the session open while the body runs, even if it is retired."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._retired:
                self.retire()

    def retire(self) -> None:
        """Close the session as soon as no call uses it."""
        self._retired = True
        if not self._users:
            self.closing.set()

    def end(self) -> None:
        """Close the session now, even if calls use it or wait for it."""
        self.closing.set()
        if not self.ready.done():
            self.owner.cancel()


class Connection:
    """A connection to one upstream, opened by its first use and shared by all calls."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self._session: _Session | None = None
        self._sessions: set[_Session] = set()
        self._retired = False
        self._ended = False
        self._pause = 0.0
        self._next_attempt = 0.0
        self._notification: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def _used_session(self) -> AsyncIterator[_Session]:
        """Yield a connected session and keep it open while the body runs. Raises UpstreamUnavailable."""
        session = self._session or self._new_session()
        with session.used():  # also while it connects: a session that is retired meanwhile must not close at once
            if self._retired:
                self._drop(session)
            try:
                async with asyncio.timeout(self.settings.timeout):
                    await asyncio.shield(session.ready)
            except TimeoutError:
                self._fail(session)
                raise UpstreamUnavailable(f"{self.settings.name} did not answer in time.") from None
            yield session

    def _new_session(self) -> _Session:
        """Start to connect. Raises UpstreamUnavailable."""
        if self._ended:
            raise UpstreamUnavailable(f"The connection to {self.settings.name} was closed.")
        if time.monotonic() < self._next_attempt:
            raise UpstreamUnavailable(f"{self.settings.name} could not be reached a moment ago.")
        self._session = session = _Session(self._own, name=f"mcp {self.settings.name}")
        self._sessions.add(session)
        _open_connections.add(self)
        session.owner.add_done_callback(lambda _: self._forget(session))
        return session

    def _forget(self, session: _Session) -> None:
        self._sessions.discard(session)
        if not self._sessions:
            _open_connections.discard(self)

    def retire(self) -> None:
        """End the connection when its calls have ended. A call that needs another session opens one for itself."""
        self._retired = True
        if self._session is not None:
            self._drop(self._session)

    async def end(self) -> None:
        """End the connection now, even if calls use it, and wait until it has ended."""
        self._ended, self._session = True, None
        for session in self._sessions:
            session.end()
        if self._sessions:
            await asyncio.wait([session.owner for session in self._sessions], timeout=CLOSING_SECONDS)

    def _drop(self, session: _Session) -> None:
        """Use another session from now on."""
        if self._session is session:
            self._session = None
        session.retire()

    def _fail(self, session: _Session) -> None:
        """Use another session after a pause."""
        if self._session is session:
            self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
            self._next_attempt = time.monotonic() + self._pause
        if not session.ready.done():
            session.end()
        self._drop(session)

    async def _own(self, session: _Session) -> None:
        """Enter the connection, keep it until it is closed, and leave it, in this one task."""
        web = None if self.settings.command else McpTransport(max_bytes=MAX_RESPONSE)
        try:
            async with _connected(self.settings, web, self._record_change) as client:
                self._pause = 0.0
                session.ready.set_result(client)
                listening = asyncio.create_task(self._listen(client))
                await session.closing.wait()
                listening.cancel()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever an upstream does, callers get one error
            cause = _innermost(error)
            logger.warning("upstream_failed source=%s error=%s", self.settings.name, type(cause).__name__)
            if not session.ready.done():
                session.ready.set_exception(UpstreamUnavailable(_connect_problem(self.settings.name, web, cause)))
                session.ready.exception()  # a caller that gave up does not ask for it
                self._fail(session)
            else:
                self._drop(session)

    async def _listen(self, client: Any) -> None:
        """Record changes that an upstream of protocol version 2026-07-28 announces; older ones send notifications."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost  # noqa: PLC0415 - loaded with the SDK
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415

        with suppress(ListenNotSupportedError, MCPError):
            while True:
                with suppress(SubscriptionLost, TimeoutError):
                    async with client.listen(tools_list_changed=True) as subscription:
                        async for _ in subscription:
                            self._record_change()
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)

    def _record_change(self) -> None:
        """Notify the listeners once for all changes within NOTIFICATION_SECONDS: there may be thousands."""
        if self._notification is None:
            loop = asyncio.get_running_loop()
            self._notification = loop.call_later(NOTIFICATION_SECONDS, self._notify_listeners)

    def _notify_listeners(self) -> None:
        self._notification = None
        for listener in _listeners:
            asyncio.get_running_loop().run_in_executor(None, listener, self.settings.pk)

    async def list_tools(self) -> list[Any]:
        """Return all tools of the upstream. Raises UpstreamUnavailable and SourceProblem."""
        async with self._listed() as (_, tools):
            return tools

    @asynccontextmanager
    async def _listed(self) -> AsyncIterator[tuple[_Session, list[Any]]]:
        """Yield a session, kept open while the body runs, and all tools it lists. Raises as `list_tools`.

        An upstream that was restarted does not know an older session, so such a failure is tried again in a new one.
        """
        was_open = self._session is not None
        for may_try_again in (was_open, False):
            async with self._used_session() as session:
                try:
                    tools = await self._list(session)
                except (UpstreamUnavailable, SourceProblem) as error:
                    if may_try_again and isinstance(error, SourceProblem):
                        self._drop(session)
                        continue
                    self._fail(session)
                    raise
                yield session, tools
                return

    async def _list(self, session: _Session) -> list[Any]:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - loaded with the SDK

        client = session.ready.result()
        found: list[Any] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.settings.timeout):
                for _ in range(MAX_PAGES):
                    page = await client.list_tools(cursor=cursor, cache_mode="bypass")
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None or len(found) > MAX_TOOLS:
                        break
        except MCPError as error:
            problem = _LISTING_PROBLEMS.get(error.code, f"answered tools/list with an error ({error.code})")
            raise SourceProblem(f"{self.settings.name} {problem}.") from None
        except TimeoutError:
            raise UpstreamUnavailable(f"{self.settings.name} did not list its tools in time.") from None
        except ValueError:
            raise SourceProblem(f"{self.settings.name} sent a list of tools that is not valid MCP.") from None
        if cursor is not None or len(found) > MAX_TOOLS:
            raise SourceProblem(f"{self.settings.name} offers more than {MAX_TOOLS:,} tools.")
        return found

    async def call(
        self, definition: Definition, arguments: Mapping[str, Any], *, verify_first: bool
    ) -> UpstreamResult[Any]:
        """Call a tool and return its result.

        With `verify_first`, the upstream's tools are listed first, and the call is refused if the tool's definition
        differs from the imported one. Raises UpstreamUnavailable, UpstreamError and EffectUnknown.
        """
        try:
            async with self._verified(definition) if verify_first else self._used_session() as session:
                result = await self._send(session, definition, arguments)
        except _SessionLost:
            # The upstream only says that it ran nothing, so a call that must not run twice is not sent again.
            if not definition.retry_safe:
                raise UpstreamError(f"{self.settings.name} lost the session.", "upstream_refused") from None
            try:
                async with self._used_session() as session:
                    result = await self._send(session, definition, arguments)
            except _SessionLost:
                raise UpstreamUnavailable(f"{self.settings.name} did not accept a new session.") from None
        return to_tool_result(self.settings.name, result)

    @asynccontextmanager
    async def _verified(self, definition: Definition) -> AsyncIterator[_Session]:
        """Yield a session, kept open while the body runs, that lists the tool as imported. Raises as `call`."""
        async with AsyncExitStack() as stack:
            try:
                session, tools = await stack.enter_async_context(self._listed())
            except SourceProblem as problem:
                raise UpstreamUnavailable(problem.message) from None
            # The first of a name counts, as for an import.
            offered = next((tool for tool in tools if tool.name == definition.upstream), None)
            if offered is None or offered_digest_or_none(offered) != definition.offered_digest:
                self._record_change()
                raise UpstreamError(
                    f"{self.settings.name} has changed the definition of {definition.upstream} since it was imported. "
                    "Nothing ran; an administrator must accept the change.",
                    "drifted",
                )
            yield session

    async def _send(self, session: _Session, definition: Definition, arguments: Mapping[str, Any]) -> Any:
        """Send one call. Raises as `call`, and _SessionLost if the upstream did not know the session."""
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - loaded with the SDK

        try:
            return await session.ready.result().call_tool(
                definition.upstream, dict(arguments), read_timeout_seconds=self.settings.timeout
            )
        except MCPError as error:
            raise self._call_error(session, error) from None
        except (ValueError, RuntimeError):  # RuntimeError: it asks for input again
            raise UpstreamError(f"{self.settings.name} sent an invalid result.", "upstream_malformed") from None

    def _call_error(self, session: _Session, error: Any) -> Exception:
        """Return what an error of the protocol means for a call that was sent."""
        from mcp.types import (  # noqa: PLC0415 - loaded with the SDK
            CONNECTION_CLOSED,
            INTERNAL_ERROR,
            INVALID_REQUEST,
            PARSE_ERROR,
            REQUEST_TIMEOUT,
        )

        name, code, message = self.settings.name, error.code, error.message
        # Calls in flight end on this session; later ones open another.
        if code in (NOT_SENT, BROKEN, CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST):
            self._drop(session)
        refused = UpstreamError(f"{name} refused the call: {visible_text(message)}", "upstream_refused")
        meanings: dict[int, Exception] = {
            NOT_SENT: UpstreamUnavailable(f"{name} cannot be reached."),
            BROKEN: EffectUnknown(f"The connection to {name} broke before it answered."),
            CONNECTION_CLOSED: EffectUnknown(f"The connection to {name} broke before it answered."),
            INTERNAL_ERROR: EffectUnknown(f"{name} failed while it handled the call."),
            REQUEST_TIMEOUT: EffectUnknown(f"{name} did not answer within {self.settings.timeout:g} seconds."),
            TOO_LARGE: UpstreamError(f"{name} sent too much.", "upstream_too_large"),
            PARSE_ERROR: UpstreamError(f"{name} sent an invalid result.", "upstream_malformed"),
            INVALID_REQUEST: refused,
        }
        if code == CONNECTION_CLOSED and message.startswith("SSE stream failed"):  # of the SDK: an event is too large
            return meanings[TOO_LARGE]
        if code == INVALID_REQUEST and message.startswith("Unexpected content type"):  # of the SDK
            return meanings[PARSE_ERROR]
        if code == INVALID_REQUEST and "202" in message:  # of the SDK: the request was accepted; no answer will follow
            return EffectUnknown(f"{name} accepted the call and did not answer it.")
        if code == INVALID_REQUEST and "session" in message.lower():
            return _SessionLost()
        return meanings.get(code, refused)


_LISTING_PROBLEMS = {
    NOT_SENT: "cannot be reached",
    BROKEN: "broke the connection before it listed its tools",
    TOO_LARGE: "sent a list of tools that is too large",
}
"""Messages for the transport's own error codes."""


class _SessionLost(Exception):
    """The upstream does not know the session any more, so it ran nothing."""


@asynccontextmanager
async def _connected(
    settings: UpstreamSettings, web: McpTransport | None, on_change: Callable[[], None]
) -> AsyncIterator[Any]:
    """Enter a client of the SDK for an upstream, over `web` or with its command.

    The SDK is loaded here: it takes half a second.
    """
    from mcp import Client, StdioServerParameters, types  # noqa: PLC0415
    from mcp.client.stdio import stdio_client  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    async def handle(message: Any) -> None:
        if isinstance(getattr(message, "root", message), types.ToolListChangedNotification):
            on_change()

    async with AsyncExitStack() as stack:
        if web is None:
            program, *arguments = settings.command
            parameters = StdioServerParameters(command=program, args=arguments, env=dict(settings.env))
            own_log = stack.enter_context(open(os.devnull, "w"))  # noqa: PTH123, SIM115
            transport: Any = stdio_client(parameters, own_log)
        else:
            http = httpx2.AsyncClient(
                transport=web,
                headers=dict(settings.headers),
                timeout=httpx2.Timeout(settings.timeout, read=max(settings.timeout, 300.0)),
                trust_env=False,
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(settings.url, http_client=http)
        client = Client(
            transport,
            read_timeout_seconds=settings.timeout,
            message_handler=handle,
            client_info=types.Implementation(name="toolgate", version="1"),
            input_required_max_rounds=1,
        )
        entered: Any = await stack.enter_async_context(client)
        # `to_tool_result` checks results by what was imported. The SDK would list the tools after a call of one that it
        # does not know yet; if that failed, a call that ran would look like one that was refused.
        entered.session.validate_tool_result = _accept_result
        keep_raw_results(entered.session)
        if web is not None:
            web.connected = True
        yield entered


async def _accept_result(_name: str, _result: Any) -> None:
    """Stand in for the SDK's check of a result."""


def _innermost(error: BaseException) -> BaseException:
    """Return the first cause in nested groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _connect_problem(name: str, web: McpTransport | None, error: BaseException) -> str:
    """Return why an upstream cannot be connected to, without its address, command or words."""
    if isinstance(error, RequestNotSent):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"The program of {name} does not exist."
    if isinstance(error, asyncio.CancelledError):  # by a call that waited for its whole timeout
        return f"{name} did not answer in time."
    problem = f"Toolgate could not connect to {name}"
    if web is None:
        return f"{problem}: its program ended, or does not speak MCP. Run the command in a shell to see its messages."
    return f"{problem}: {_answer_problem(web.answered) if web.answered else describe_failure(error)}."


def _answer_problem(status: int) -> str:
    """Return what an HTTP status says of a server that cannot be connected to."""
    if status < 300:
        return "its answers are not MCP; check the URL"
    if status in (401, 403):
        return f"it answered {status}; check the headers"
    return f"it answered {status}" + ("; check the URL" if status < 500 else "")


def list_upstream(settings: UpstreamSettings, *, once: bool = False) -> Listing:
    """Return what a server offers, from any thread but that of the loop. Raises UpstreamUnavailable, SourceProblem.

    `once` uses a connection of its own and leaves that of calls alone.
    """

    async def read() -> list[Any]:
        if not once:
            return await connection_to(settings).list_tools()
        connection = Connection(settings)
        try:
            return await connection.list_tools()
        finally:
            await connection.end()

    tools = run_on_loop(read(), 2 * settings.timeout + CLOSING_SECONDS)
    found: list[Definition] = []
    names: set[str] = set()
    problems: list[str] = []
    for tool in tools:
        if tool.name in names:
            problems.append(f"{settings.name} offers {tool.name[:80]!r} twice; the first definition is used.")
            continue
        try:
            found.append(definition_from(tool, settings))
            names.add(tool.name)
        except (ValueError, TypeError, RecursionError, MalformedJSON) as error:
            problems.append(f"{tool.name[:80]!r} cannot be imported: {type(error).__name__}.")
    return Listing(tuple(found), tuple(problems))


def run_on_loop(work: Any, seconds: float) -> Any:
    """Run a coroutine on the event loop of asynchronous handlers and return its result."""
    future = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return future.result(seconds)
    except TimeoutError:
        future.cancel()
        raise UpstreamUnavailable("The upstream did not answer in time.") from None
