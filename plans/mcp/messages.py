"""JSON-RPC messages of MCP clients: strict JSON, ids, and calls whose arguments are not strict JSON."""

import json
from dataclasses import dataclass
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR

from catalog.core.canonical_json import MAX_SAFE_INTEGER, check_json, parse_json
from catalog.errors import MalformedJSON, TooLarge

RequestId = str | int


class Refusal(Exception):
    """Raised to refuse a request before the protocol sees it, with HTTP status, JSON-RPC code and message.

    `request_id` is the id of the JSON-RPC request, None if it is unknown.
    """

    def __init__(
        self,
        status: int,
        code: int,
        message: str,
        *headers: tuple[bytes, bytes],
        request_id: RequestId | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message, and the body that the SDK parses again.

    If the arguments of a call are not strict JSON, `fault` says why, and both message and body lack the arguments.
    """

    content: Any
    body: bytes
    fault: MalformedJSON | None = None


def read_message(body: bytes) -> ReceivedMessage:
    """Return the message in a body.

    Raises Refusal unless it is strict JSON and one JSON-RPC message, whose id is a string or an integer.
    """
    try:
        content = parse_json(body)
    except TooLarge as error:
        raise Refusal(413, INVALID_REQUEST, error.message) from None
    except MalformedJSON as error:
        return _read_malformed(body, error)
    _check_envelope(content)
    return ReceivedMessage(content, body)


def _check_envelope(content: Any) -> None:
    """Raise Refusal for a message that is not JSON-RPC, or a request with an id that an answer cannot repeat."""
    if not isinstance(content, dict):
        raise Refusal(400, INVALID_REQUEST, "Send one JSON-RPC message as an object. Batches are not supported.")
    request_id = None
    if {"method", "id"} <= content.keys():
        request_id = content["id"]
        try:
            is_valid = type(check_json(request_id)) in (str, int)
        except MalformedJSON:
            is_valid = False
        if not is_valid:
            message = f"The id of a request must be a string or an integer up to ±{MAX_SAFE_INTEGER}."
            raise Refusal(400, INVALID_REQUEST, message)
    fault = None
    if content.get("jsonrpc") != "2.0":
        fault = 'The member "jsonrpc" must be "2.0".'
    elif content.keys().isdisjoint({"method", "result", "error"}):
        fault = 'The member "method" is missing.'
    elif not isinstance(content.get("method", ""), str):
        fault = 'The member "method" must be a string.'
    elif not isinstance(content.get("params"), dict | None):
        fault = 'The member "params" must be an object.'
    if fault is not None:
        raise Refusal(400, INVALID_REQUEST, fault, request_id=request_id)


def _read_malformed(body: bytes, malformed: MalformedJSON) -> ReceivedMessage:
    """Return a call without its malformed arguments, so that the call can be answered with a result.

    Agents see results, but often not errors. Raises Refusal, with any id of the request, if anything else is malformed.
    """
    refusal = Refusal(400, PARSE_ERROR, f"Parse error: {malformed}")
    try:
        content = _lenient_decoder.decode(body.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        raise refusal from None
    if type(content) is not dict:
        raise refusal
    _check_envelope(content)
    refusal.request_id = content.get("id") if "method" in content else None
    params = content.get("params")
    if content.get("method") != "tools/call" or "id" not in content or type(params) is not dict:
        raise refusal
    arguments = params.pop("arguments", {})
    try:
        check_json(content)
    except MalformedJSON:
        raise refusal from None
    fault = malformed
    try:
        check_json(arguments)
    except MalformedJSON as found:
        # It has the path in the arguments; the strict parser only knows lines. But a repeated key is found as an
        # object that is not JSON, and bytes that are not UTF-8 as lone surrogates.
        if found.code != "not_json" and malformed.code != "invalid_utf8":
            fault = found
    return ReceivedMessage(content, json.dumps(content).encode(), fault)


class _RepeatedKeys(dict[str, Any]):
    """An object in which a key appears twice, so that `check_json` refuses it."""


_lenient_decoder = json.JSONDecoder(
    object_pairs_hook=lambda pairs: (dict if len(dict(pairs)) == len(pairs) else _RepeatedKeys)(pairs),
    # Python's int() refuses very long digit strings with an error of its own.
    parse_int=lambda text: int(text) if len(text) <= 17 else MAX_SAFE_INTEGER + 1,
)
