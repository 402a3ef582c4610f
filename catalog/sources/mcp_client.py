"""Client of upstream MCP servers: one long-lived connection for each source and process, over stdio or HTTP.

Everything here runs on the event loop of asynchronous handlers. The SDK's cancel scopes belong to a task, so one task
opens and closes a connection, and the tasks of calls share it.
"""

import asyncio
import atexit
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from catalog.context import ProgressListener
from catalog.core import tracing
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.runner import background_loop
from catalog.errors import SourceProblem, UpstreamError, UpstreamUnavailable
from catalog.results import UpstreamResult
from catalog.sources.definitions import MAX_TOOLS, Definition, Listing
from catalog.sources.mcp_failures import PATIENCE, Failure, Fault, RequestFailed, call_error
from catalog.sources.mcp_results import to_tool_result
from catalog.sources.mcp_session import Handshake, Link, Session, connect_problem, connected, innermost_error
from catalog.sources.mcp_tools import OfferedTools
from catalog.sources.settings import UpstreamSettings

SHORTEST_POLL, LONGEST_POLL = 0.1, 10.0
"""Limits of the seconds between two questions for the state of a task."""
CANCELLATION_SECONDS = 2.0
"""Time to tell an upstream that the result of a task is not needed."""
BAD_REQUEST = 400
NOTIFICATION_SECONDS = 1.0
LISTEN_AGAIN_SECONDS = 30.0
CLOSING_SECONDS = 8.0
"""Seconds for ending connections: the SDK waits 2 before it terminates a program, and 2 more before it kills it."""

logger = logging.getLogger("toolgate.sources")
ChangeListener = Callable[[int], None]
FailureListener = Callable[[int, str], None]

_connections: dict[int, "Connection"] = {}
"""Connections for new calls, by source."""
_open_connections: set["Connection"] = set()
"""Connections that have sessions. A retired one stays here until its last session has ended."""
_owner_pid = 0
_listeners: list[ChangeListener] = []
_failure_listeners: list[FailureListener] = []


def register_change_listener(listener: ChangeListener) -> None:
    """Call `listener` with a source's key, in a thread, when its upstream announces that its tools changed."""
    _listeners.append(listener)


def register_failure_listener(listener: FailureListener) -> None:
    """Call `listener` with a source's key and the reason, in a thread, when a call could not reach its upstream."""
    _failure_listeners.append(listener)


def report_unreachable(settings: UpstreamSettings, reason: str) -> None:
    """Tell the failure listeners that a call could not reach its upstream. For the loop of asynchronous handlers."""
    if settings.pk in _connections:  # otherwise the process stops, or the source was changed or disabled meanwhile
        for listener in _failure_listeners:
            asyncio.get_running_loop().run_in_executor(None, listener, settings.pk, reason)


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
    """Close this process's connections to all sources except these, after their calls have ended. For any thread."""
    if _owner_pid != os.getpid():
        return
    for pk in _connections.keys() - set(sources):
        known = _connections.pop(pk, None)
        if known is not None:
            background_loop().call_soon_threadsafe(known.retire)


def close_connections() -> None:
    """Close all connections of this process and wait until their programs have ended. For any thread."""

    async def end_all() -> None:
        known = {*_connections.values(), *_open_connections}
        _connections.clear()
        await asyncio.gather(*(each.end() for each in known))

    if _owner_pid == os.getpid() and (_connections or _open_connections):
        with suppress(UpstreamUnavailable):
            run_on_loop(end_all(), CLOSING_SECONDS)


atexit.register(close_connections)


class Connection:
    """A connection to one upstream, opened by the first call and shared by all."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self._session: Session | None = None
        self._sessions: set[Session] = set()
        self._retired = False
        self._ended = False
        self._notification: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def _used_session(self) -> AsyncIterator[Session]:
        """Yield a connected session and keep it open while the body runs. Raises UpstreamUnavailable."""
        if self._session is not None and self._session.has_ended:
            self._drop(self._session)
        session = self._session
        if session is None:
            if self._ended:
                raise UpstreamUnavailable(f"The connection to {self.settings.name} was closed.")
            self._session = session = Session(self._own, name=f"mcp {self.settings.name}")
            self._sessions.add(session)
            _open_connections.add(self)

            def forget(_: object) -> None:
                self._sessions.discard(session)
                if not self._sessions:
                    _open_connections.discard(self)

            session.owner.add_done_callback(forget)
        with session.used():  # also while it connects: a session that is retired meanwhile must not close at once
            if self._retired:
                self._drop(session)
            try:
                async with asyncio.timeout(self.settings.timeout):
                    await asyncio.shield(session.ready)
            except TimeoutError:
                session.end()
                self._drop(session)
                raise UpstreamUnavailable(f"{self.settings.name} did not answer in time.") from None
            yield session

    def retire(self) -> None:
        """Close the connection when its calls have ended. A call that needs another session opens a new one."""
        self._retired = True
        if self._session is not None:
            self._drop(self._session)

    async def end(self) -> None:
        """Close the connection now, even if calls use it, and wait until it is closed."""
        self._ended, self._session = True, None
        for session in self._sessions:
            session.end()
        if self._sessions:
            await asyncio.wait([session.owner for session in self._sessions], timeout=CLOSING_SECONDS)

    def _drop(self, session: Session) -> None:
        if self._session is session:
            self._session = None
        session.retire()

    async def _own(self, session: Session) -> None:
        """Open the connection, wait for the request to close it, and close it, all in this one task."""
        handshake = Handshake()
        try:
            tracing.leave_trace()  # of the call that needed it first: the connection serves those of others
            async with connected(self.settings, handshake, self._record_change) as link:
                session.ready.set_result(link)
                listening = asyncio.create_task(self._listen(link.client))
                await session.closing.wait()
                listening.cancel()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever an upstream does, callers get one error
            cause = innermost_error(error)
            logger.warning("upstream_failed source=%s error=%s", self.settings.name, type(cause).__name__)
            if not session.ready.done():
                session.ready.set_exception(UpstreamUnavailable(connect_problem(self.settings, handshake, cause)))
                session.ready.exception()  # a caller that gave up does not ask for it
            self._drop(session)

    async def _listen(self, client: Any) -> None:
        """Follow announced changes of an upstream of protocol version 2026-07-28; older versions send notifications."""
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
        loop = asyncio.get_running_loop()

        def notify_listeners() -> None:
            self._notification = None
            for listener in _listeners:
                loop.run_in_executor(None, listener, self.settings.pk)

        if self._notification is None:
            self._notification = loop.call_later(NOTIFICATION_SECONDS, notify_listeners)

    async def list_tools(self) -> OfferedTools:
        """Return all tools of the upstream. Raises UpstreamUnavailable and SourceProblem."""
        async with self._listed() as (_, offered):
            return offered

    @asynccontextmanager
    async def _listed(self) -> AsyncIterator[tuple[Session, OfferedTools]]:
        """Yield a session, kept open while the body runs, and all tools it lists. Raises what `list_tools` raises.

        A restarted upstream does not know older sessions, so a failure in one is tried again in a new session.
        """
        was_open = self._session is not None and not self._session.has_ended
        for may_try_again in (was_open, False):
            async with self._used_session() as session:
                try:
                    offered = await self._list(session)
                except RequestFailed as error:
                    self._drop(session)
                    failure, is_absent = error.failure, error.failure.fault in (Fault.NOT_SENT, Fault.TIMED_OUT)
                    if may_try_again and failure.fault is not Fault.TIMED_OUT:
                        continue
                    problem = UpstreamUnavailable if is_absent else SourceProblem
                    raise problem(failure.sentence(self.settings.name, "tools/list")) from None
                except SourceProblem:
                    self._drop(session)
                    raise
                yield session, offered
                return

    async def _list(self, session: Session) -> OfferedTools:
        """Read all pages of the list of tools. Raises RequestFailed, and SourceProblem for an unusable list."""
        name, timeout = self.settings.name, self.settings.timeout
        tools: list[Any] = []
        problems: list[str] = []
        cursors: set[str] = set()
        page: dict[str, Any] = {"nextCursor": None}
        try:
            async with asyncio.timeout(timeout):
                while "nextCursor" in page:
                    cursor = page["nextCursor"]
                    page = await session.link.request("tools/list", {"cursor": cursor} if cursor is not None else {})
                    if not isinstance(page.get("tools"), list):
                        raise RequestFailed(Failure(fault=Fault.NOT_MCP))
                    tools += page["tools"]
                    if len(tools) > MAX_TOOLS or len(cursors) > MAX_TOOLS:
                        what = "tools" if len(tools) > MAX_TOOLS else "pages of tools"
                        raise SourceProblem(f"{name} offers more than {MAX_TOOLS:,} {what}.")
                    following = page.pop("nextCursor", None)
                    if isinstance(following, str) and following not in cursors:
                        cursors.add(following)
                        page["nextCursor"] = following
                    elif following is not None:
                        problems.append(
                            f"{name} repeated a cursor of its list of tools. The list was read up to there."
                        )
        except TimeoutError:
            raise RequestFailed(Failure(fault=Fault.TIMED_OUT, seconds=timeout)) from None
        return OfferedTools(tools, problems, session.link.offers_tasks, session.link.is_modern)

    async def call(
        self,
        definition: Definition,
        arguments: Mapping[str, Any],
        *,
        level: SafetyLevel,
        on_progress: ProgressListener | None = None,
    ) -> UpstreamResult[Any]:
        """Call a tool and return its result. `level` is its safety level.

        Above `safe`, the upstream's tools are listed first, and the call is refused if the tool's definition differs
        from the imported one. `on_progress` is called with the progress that the upstream reports. Raises
        UpstreamUnavailable, UpstreamError and EffectUnknown.
        """
        is_repeatable = level is SafetyLevel.SAFE or (level is SafetyLevel.CAUTIOUS and definition.retry_safe)
        sent_again = False
        while True:
            async with self._used_session() if level is SafetyLevel.SAFE else self._verified(definition) as session:
                try:
                    result = await self._send(session, definition, arguments, on_progress)
                    return to_tool_result(self.settings.name, result)
                except RequestFailed as error:
                    failure = error.failure
                if failure.meaning.new_session:
                    self._drop(session)
            is_lost = failure.fault is Fault.SESSION_LOST and is_repeatable
            if sent_again or not (is_lost or failure.fault is Fault.NOT_SENT):
                if failure.status == BAD_REQUEST:  # not the session's fault: a new one changes nothing
                    failure = replace(failure, fault=Fault.REFUSED)
                raise call_error(failure, self.settings.name, is_repeatable=is_repeatable)
            sent_again = True

    @asynccontextmanager
    async def _verified(self, definition: Definition) -> AsyncIterator[Session]:
        """Yield a session in which the tool is listed exactly as it was imported. Raises what `call` raises."""
        async with AsyncExitStack() as stack:
            try:
                session, offered = await stack.enter_async_context(self._listed())
            except SourceProblem as problem:
                raise UpstreamUnavailable(problem.message) from None
            if offered.digest_of(definition.upstream) != definition.offered_digest:
                self._record_change()
                raise UpstreamError(
                    f"{self.settings.name} has changed the definition of {definition.upstream} since it was imported. "
                    "Nothing ran; an administrator must accept the change.",
                    "drifted",
                )
            yield session

    async def _send(
        self,
        session: Session,
        definition: Definition,
        arguments: Mapping[str, Any],
        on_progress: ProgressListener | None,
    ) -> dict[str, Any]:
        """Send one call and return its raw result. Raises RequestFailed.

        Each report of progress restarts the timeout; in all, a call may take PATIENCE times the timeout.
        """
        loop, timeout = asyncio.get_running_loop(), self.settings.timeout
        began, limit = loop.time(), asyncio.timeout(timeout)

        async def extend(progress: float, total: float | None = None, _message: str | None = None) -> None:
            limit.reschedule(min(loop.time() + timeout, began + PATIENCE * timeout))
            if on_progress is not None:
                on_progress(progress, total)

        params = {"name": definition.upstream, "arguments": dict(arguments)}
        try:
            async with limit:
                if definition.is_task:
                    result = await self._run_task(session.link, definition, params, extend)
                else:
                    result = await session.link.request(
                        "tools/call", params, schema=definition.input_schema, on_progress=extend
                    )
        except TimeoutError:
            longest = PATIENCE * timeout
            seconds = longest if loop.time() - began >= longest else timeout
            raise RequestFailed(Failure(fault=Fault.TIMED_OUT, seconds=seconds)) from None
        if result.get("resultType", "complete") == "input_required":
            raise RequestFailed(Failure(fault=Fault.INPUT_REQUIRED))
        return result

    async def _run_task(
        self, link: Link, definition: Definition, params: Mapping[str, Any], extend: Callable[..., Awaitable[None]]
    ) -> dict[str, Any]:
        """Call a tool as a task and wait for its result. Cancels the task if that fails. Raises RequestFailed."""
        ttl = round(1000 * (PATIENCE + 1) * self.settings.timeout)
        begun = await link.request("tools/call", {**params, "task": {"ttl": ttl}}, schema=definition.input_schema)
        state = begun.get("task")
        if not isinstance(state, dict) or not isinstance(state.get("taskId"), str):
            if "content" in begun:
                return begun
            raise RequestFailed(Failure(fault=Fault.NOT_MCP))
        task, polls = {"taskId": state["taskId"]}, 0
        try:
            while state.get("status") == "working":
                seen, polls = (state.get("lastUpdatedAt"), state.get("statusMessage")), polls + 1
                pause: Any = state.get("pollInterval")  # milliseconds
                is_number = isinstance(pause, int | float) and not isinstance(pause, bool)
                await asyncio.sleep(min(max(pause / 1000, SHORTEST_POLL), LONGEST_POLL) if is_number else 1.0)
                try:
                    state = await link.request("tasks/get", task)
                except RequestFailed:  # the task may run on
                    raise RequestFailed(Failure(fault=Fault.UNANSWERED)) from None
                message = state.get("statusMessage")
                if (state.get("lastUpdatedAt"), message) != seen:
                    await extend(polls)
            if state.get("status") == "input_required":
                raise RequestFailed(Failure(fault=Fault.INPUT_REQUIRED, words=str(state.get("statusMessage") or "")))
            return await link.request("tasks/result", task)
        except BaseException:
            with suppress(RequestFailed, TimeoutError):
                async with asyncio.timeout(CANCELLATION_SECONDS):
                    await link.request("tasks/cancel", task)
            raise


def list_upstream(settings: UpstreamSettings, *, once: bool = False) -> Listing:
    """Return the tools that a server offers. Raises UpstreamUnavailable and SourceProblem.

    Do not call it on the loop's own thread. `once` opens a separate connection and does not touch that of calls.
    """

    async def read() -> OfferedTools:
        if not once:
            return await connection_to(settings).list_tools()
        connection = Connection(settings)
        try:
            return await connection.list_tools()
        finally:
            await connection.end()

    offered: OfferedTools = run_on_loop(read(), 2 * settings.timeout + CLOSING_SECONDS)
    return offered.listing(settings)


def run_on_loop(work: Any, seconds: float) -> Any:
    future = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return future.result(seconds)
    except TimeoutError:
        future.cancel()
        raise UpstreamUnavailable("The upstream did not answer in time.") from None
