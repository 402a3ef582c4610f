"""Plain calls: `tools/call` of protocol version 2026-07-28, answered without the SDK's machinery if they end at once.

One thread verifies the token, makes the call and writes the answer. The SDK takes 0.5 ms of the processor for the same
request: tasks, streams and contexts that only a call which waits needs. Requests are validated by the SDK's own
functions, and the answer is the one that it would give. Everything else goes on to the SDK: requests that are refused,
and calls that have not ended, which it must not make again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp.shared.inbound import InboundModernRoute, classify_inbound_request, validate_mcp_param_headers
from mcp_types import SERVER_INFO_META_KEY, CallToolRequestParams, CallToolResult
from mcp_types.methods import serialize_server_result, validate_client_request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from plans.mcp import calls, listing
from plans.mcp.callers import Caller, verify
from plans.mcp.calls import OpenedCall
from plans.mcp.messages import Refusal, read_message

METHOD = "tools/call"
MEMBERS = frozenset({"name", "arguments", "_meta"})
MAX_BYTES = 65_536
"""The largest body of a plain call; a body is read before its token is verified."""


@dataclass(frozen=True, slots=True)
class PlainCall:
    """A valid request to call a tool."""

    request_id: str | int
    version: str
    name: str
    arguments: dict[str, Any]
    traceparent: object = None
    """The client's trace, as it was sent."""

    @property
    def message(self) -> dict[str, Any]:
        """The members of the request that its trace needs."""
        params = {"name": self.name, "_meta": {"traceparent": self.traceparent}}
        return {"id": self.request_id, "method": METHOD, "params": params}


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """The caller, and either the answer of a call that has ended or what else became of it."""

    caller: Caller
    body: bytes = b""
    opened: OpenedCall | None = None
    is_error: bool = False


def read_plain_call(headers: Mapping[str, str], body: bytes) -> PlainCall | None:
    """Return the plain call in a request; None for a request that the SDK must answer.

    `headers` must not be folded of repeated ones, of which the SDK reads the first.
    """
    accepted = {media_type.strip() for media_type in headers.get("accept", "").split(",")}
    if (
        headers.get("mcp-method") != METHOD
        or headers.get("mcp-protocol-version") not in MODERN_PROTOCOL_VERSIONS
        or headers.get("content-type") != "application/json"
        or not accepted >= {"application/json", "text/event-stream"}
        or len(body) > MAX_BYTES
    ):
        return None
    try:
        received = read_message(body)
        message = received.content
        params = message.get("params")
        if received.fault is not None or "id" not in message or not params or not params.keys() <= MEMBERS:
            return None
        route = classify_inbound_request(message, headers=headers)
        if not isinstance(route, InboundModernRoute):
            return None
        validate_client_request(METHOD, route.protocol_version, params)
        name = CallToolRequestParams.model_validate(params, by_name=False).name
    except (Refusal, ValidationError):
        return None
    arguments, schema = params.get("arguments"), listing.input_schema_of(name)
    if name in listing.OWN_TOOLS or "toolgate/session" in params["_meta"] or arguments is None or schema is None:
        return None
    is_valid = validate_mcp_param_headers(schema, arguments, headers) is None
    traceparent = params["_meta"].get("traceparent")
    return PlainCall(message["id"], route.protocol_version, name, arguments, traceparent) if is_valid else None


def make_plain_call(text: str, user_agent: str, call: PlainCall, server_info: Mapping[str, Any]) -> PlainAnswer | None:
    """Verify a bearer token and make the call, in a thread; return None if it is not valid. Raises like `verify`."""
    caller = verify(text, user_agent)
    if caller is None:
        return None
    try:
        state = calls.open_call(caller, call.name, call.arguments, session="")
    except Exception as error:  # noqa: BLE001 - raised again where the SDK calls the tool
        return PlainAnswer(caller, opened=OpenedCall(None, error))
    if state is None or state.result is None:
        return PlainAnswer(caller, opened=OpenedCall(state))
    try:
        body = answer_body(call, state.result, server_info)
        return PlainAnswer(caller, body, is_error=bool(state.result.is_error))
    except ValueError:  # the SDK answers with an error of its own
        return PlainAnswer(caller, opened=OpenedCall(state))


def answer_body(call: PlainCall, result: CallToolResult, server_info: Mapping[str, Any]) -> bytes:
    """Return the JSON-RPC answer with a result, as the SDK writes it."""
    dumped = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    shaped = serialize_server_result(METHOD, call.version, dumped)
    shaped["_meta"] = {**(shaped.get("_meta") or {}), SERVER_INFO_META_KEY: server_info}
    answer = {"jsonrpc": "2.0", "id": call.request_id, "result": shaped}
    return json.dumps(answer, separators=(",", ":")).encode()
