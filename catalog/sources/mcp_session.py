"""Sessions with upstream MCP servers. The SDK is loaded with the first session: it takes half a second."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from opentelemetry.trace import SpanKind

from catalog.core import tracing
from catalog.core.egress import RequestNotSent, describe_failure
from catalog.sources.definitions import Schema, visible_text
from catalog.sources.mcp_failures import MAX_RESPONSE, MAX_WORDS, Failure, Fault, RequestFailed
from catalog.sources.settings import UpstreamSettings


class Link:
    """A connected client of the SDK that returns raw results and raises failures as RequestFailed."""

    def __init__(self, client: Any, channel: Any, settings: UpstreamSettings) -> None:
        self.client = client
        self.channel = channel
        self._source = settings.name
        self._transport = "pipe" if settings.command else "tcp"

    @property
    def offers_tasks(self) -> bool:
        tasks = self.client.server_capabilities.tasks
        return bool(tasks and tasks.requests and tasks.requests.tools and tasks.requests.tools.call)

    async def request(
        self, method: str, params: Mapping[str, Any], *, schema: Schema | None = None, on_progress: Any = None
    ) -> dict[str, Any]:
        """Send a request and return its raw result. Raises RequestFailed.

        The SDK's own method refuses a whole result, such as a list of tools, for one part that it does not know.
        `schema` is the input schema of the called tool: it may name arguments that are repeated as headers.
        The SDK writes the current trace into the request's `_meta`.
        """
        if not tracing.is_exporting():
            return await self._request(method, params, schema, on_progress)
        facts = {
            "source": self._source,
            "network.transport": self._transport,
            "mcp.protocol.version": str(self.client.protocol_version),
        }
        tool = str(params["name"]) if method == "tools/call" else ""
        with tracing.mcp_operation(SpanKind.CLIENT, method, facts, tool=tool) as operation:
            try:
                result = await self._request(method, params, schema, on_progress)
            except RequestFailed as error:
                operation.fail(str(error.failure.fault))
                raise
            if result.get("isError") is True:
                operation.fail("tool_error")
            return result

    async def _request(
        self, method: str, params: Mapping[str, Any], schema: Schema | None, on_progress: Any
    ) -> dict[str, Any]:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - loaded with the SDK
        from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map  # noqa: PLC0415

        if self.channel.has_ended:
            raise RequestFailed(Failure(fault=Fault.NOT_SENT))
        session = self.client.session
        message = {"method": method, "params": dict(params)}
        options: dict[str, Any] = {}
        session._stamp(message, options)
        if schema is not None and self.is_modern:
            options["headers"] |= mcp_param_headers(x_mcp_header_map(schema), params["arguments"])
        if on_progress is not None:
            options["on_progress"] = on_progress
        try:
            return dict(await session._dispatcher.send_raw_request(method, message["params"], options))
        except MCPError as error:
            failure = error.error.data  # an error without one is the SDK's own: the connection was closed
            known = failure if isinstance(failure, Failure) else Failure(fault=Fault.UNANSWERED)
            raise RequestFailed(known) from None

    @property
    def is_modern(self) -> bool:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415 - loaded with the SDK

        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS


class Session:
    """One opened connection: its link, the task that owns it, and the number of calls that use it."""

    def __init__(self, own: Callable[["Session"], Coroutine[Any, Any, None]], name: str) -> None:
        self.ready: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.owner = asyncio.create_task(own(self), name=name)
        self._users = 0
        self._retired = False

    @property
    def link(self) -> Link:
        """The link of a session that is ready."""
        return self.ready.result()

    @property
    def has_ended(self) -> bool:
        return self.ready.done() and (self.ready.exception() is not None or bool(self.link.channel.has_ended))

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


@dataclass(slots=True)
class Handshake:
    """The upstream's answers while connecting: the HTTP status and the last JSON-RPC error."""

    http_status: int = 0
    refusal: Any = None


@asynccontextmanager
async def connected(
    settings: UpstreamSettings, handshake: Handshake, on_change: Callable[[], None]
) -> AsyncIterator[Link]:
    """Connect a client of the SDK to an upstream, over HTTP or by its command, and yield its link."""
    from mcp import Client, StdioServerParameters, types  # noqa: PLC0415
    from mcp.client.stdio import stdio_client  # noqa: PLC0415

    from catalog.sources.mcp_transport import Channel, HttpTransport, PacedTransport, http_streams  # noqa: PLC0415

    async def handle(message: Any) -> None:
        if isinstance(getattr(message, "root", message), types.ToolListChangedNotification):
            on_change()

    async with AsyncExitStack() as stack:
        web: HttpTransport | None = None
        if settings.command:
            program, *arguments = settings.command
            parameters = StdioServerParameters(command=program, args=arguments, env=dict(settings.env))
            own_log = stack.enter_context(open(os.devnull, "w"))  # noqa: PTH123, SIM115
            channel = Channel(stdio_client(parameters, own_log))
        else:
            http = httpx2.AsyncClient(
                transport=PacedTransport(max_bytes=MAX_RESPONSE),
                headers=dict(settings.headers),
                timeout=httpx2.Timeout(settings.timeout, read=max(settings.timeout, 300.0)),
                trust_env=False,
            )
            await stack.enter_async_context(http)
            web = HttpTransport(settings.url)
            channel = Channel(http_streams(web, http))
        client = Client(
            channel,
            read_timeout_seconds=settings.timeout,
            message_handler=handle,
            client_info=types.Implementation(name="toolgate", version="1"),
        )
        try:
            entered: Any = await stack.enter_async_context(client)
        finally:
            handshake.http_status, handshake.refusal = web.answered if web is not None else 0, channel.refusal
        channel.connected = True
        if web is not None:
            web.connected = True
        yield Link(entered, channel, settings)


def innermost_error(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def connect_problem(settings: UpstreamSettings, handshake: Handshake, error: BaseException) -> str:
    """Return why connecting failed, without the upstream's address or command."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - loaded with the SDK

    name = settings.name
    if isinstance(error, RequestNotSent):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"The program of {name} does not exist."
    if isinstance(error, asyncio.CancelledError):  # by a call that waited for its whole timeout
        return f"{name} did not answer in time."
    problem = f"Toolgate could not connect to {name}"
    if isinstance(error, MCPError) and error.error == handshake.refusal and handshake.http_status < 300:
        return f"{problem}: it answered with an error: {visible_text(error.error.message)[:MAX_WORDS]}"
    if settings.command:
        return f"{problem}: its program ended, or does not speak MCP. Run the command in a shell to see its messages."
    status = handshake.http_status
    if not status:
        reason = describe_failure(error)
    elif status < 300:
        reason = "its answers are not MCP; check the URL"
    else:
        remedy = "; check the headers" if status in (401, 403) else "; check the URL" if status < 500 else ""
        reason = f"it answered {status}{remedy}"
    return f"{problem}: {reason}."
