"""Traces of MCP requests: the trace that a client names in `_meta`, the server's span, and its outcome.

https://github.com/open-telemetry/semantic-conventions-genai has the conventions for MCP, SEP-414 the keys of `_meta`.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace import SpanKind
from pydantic import ValidationError
from structlog.contextvars import bound_contextvars

from catalog.context import MAX_SESSION
from catalog.core import tracing
from catalog.core.asgi import Scope
from catalog.core.tracing import McpOperation
from plans.mcp import listing
from plans.mcp.callers import Context, scope_of
from plans.mcp.messages import Refusal

CALL, LISTEN = "tools/call", "subscriptions/listen"
OPERATION_KEY = "toolgate.operation"
"""The key in an ASGI scope of the McpOperation of its request."""
VERSIONS = frozenset({*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS})
METHODS = frozenset({*SPEC_CLIENT_METHODS, *SPEC_CLIENT_NOTIFICATION_METHODS, "tasks/get", "tasks/cancel"})
OTHER = "_OTHER"
"""The name of methods that do not exist: a client may make up any number of them."""
MAX_REQUEST_ID = 64


def traced(scope: Scope, headers: Mapping[str, str], message: Mapping[str, Any]) -> AbstractContextManager[object]:
    """Return a context in which a request belongs to the trace in its `_meta`, with a span if spans are exported.

    A request for a stream of changes, which lasts as long as its client, has no span.
    """
    if OPERATION_KEY in scope:
        return nullcontext()
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict):
        meta = {}
    parent = tracing.parse_traceparent(meta.get("traceparent"))
    method = message.get("method")
    if tracing.is_exporting() and isinstance(method, str) and method != LISTEN:
        return _served(scope, headers, message, meta, parent)
    return _in_trace(parent) if parent else nullcontext()


@contextmanager
def _in_trace(parent: str) -> Iterator[None]:
    with bound_contextvars(trace_id=parent[3:35]), tracing.remote_parent(parent):
        yield


@contextmanager
def _served(
    scope: Scope, headers: Mapping[str, str], message: Mapping[str, Any], meta: Mapping[str, Any], parent: str
) -> Iterator[None]:
    method = message["method"] if message["method"] in METHODS else OTHER
    facts = {"network.transport": "tcp", "network.protocol.name": "http"}
    if (version := headers.get("mcp-protocol-version")) in VERSIONS:
        facts["mcp.protocol.version"] = str(version)
    if "id" in message:
        facts["jsonrpc.request.id"] = str(message["id"])[:MAX_REQUEST_ID]
    session = meta.get("toolgate/session")
    if isinstance(session, str) and 0 < len(session) <= MAX_SESSION:
        facts["mcp.session.id"] = session
    with ExitStack() as inside:
        if parent:
            inside.enter_context(bound_contextvars(trace_id=parent[3:35]))
        operation = inside.enter_context(
            tracing.mcp_operation(SpanKind.SERVER, method, facts, tool=_tool_of(message), parent=parent)
        )
        scope[OPERATION_KEY] = operation
        try:
            yield
        except Refusal as refusal:
            operation.fail(str(refusal.code), str(refusal.code))
            raise


def _tool_of(message: Mapping[str, Any]) -> str:
    """Return the tool that a request calls; empty unless it exists: a client may make up any number of names."""
    name = message["params"].get("name") if message["method"] == CALL and message.get("params") else None
    return name if isinstance(name, str) and listing.input_schema_of(name) is not None else ""


def record_result(operation: McpOperation | None, *, is_error: bool) -> None:
    """Record how a tool's call was answered."""
    if operation is not None and is_error:
        operation.fail("tool_error")


async def record_outcome(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Record how the SDK answered a request: a middleware of its server."""
    operation: McpOperation | None = scope_of(ctx).get(OPERATION_KEY)
    if operation is None:
        return await call_next(ctx)
    try:
        result = await call_next(ctx)
    except MCPError as error:
        operation.fail(str(error.error.code), str(error.error.code))
        raise
    except ValidationError:
        operation.fail(str(INVALID_PARAMS), str(INVALID_PARAMS))
        raise
    if ctx.method == CALL:
        record_result(operation, is_error=isinstance(result, dict) and result.get("isError") is True)
    return result
