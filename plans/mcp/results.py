"""Results of calls in the format of MCP: the value of a tool, a pending call, a refusal.

Content blocks of an upstream come first and unchanged. Structured content is repeated as a text block of JSON, because
some clients show models only text. An error has only the JSON text: SDKs compare even the structured content of errors
with the tool's output schema, and would replace the error by their own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

import mcp_types as types
from django.conf import settings
from pydantic import TypeAdapter, ValidationError

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog.calls.blobs import complete_blocks
from catalog.core.canonical_json import format_utc
from catalog.core.content_blocks import OWN_KEYS, described_block, holds_json, says, text_of
from catalog.core.transactions import log_unexpected
from catalog.models import Call, ToolVersion
from catalog.rest.problems import EXPECTED_FAILURES, problem_for
from catalog.results import NO_MESSAGE, STANDARD_FIELDS, TRUNCATION_MARK, ResultWarning, render_value
from catalog.schemas import compile_schema
from catalog.states import CallStatus
from plans.engine import model_texts

Schema = dict[str, Any]

PENDING, RUNNING, HIDDEN = "pending_approval", "running", "hidden"
NEXT = {
    PENDING: (
        "A person must approve this call before it runs. Call approval_result with this approval_id to learn the "
        "outcome; do not make the same call again."
    ),
    RUNNING: (
        "This call was approved and has not ended. Call approval_result with this approval_id to learn the outcome."
    ),
}
PENDING_SCHEMA: Schema = {
    "type": "object",
    "description": "The call waits for a person, or was approved and has not ended.",
    "properties": {
        "status": {"enum": [PENDING, RUNNING]},
        "approval_id": {"type": "string"},
        "url": {"type": "string"},
        "expires_at": {"type": "string"},
        "next": {"type": "string"},
    },
    "required": ["status", "approval_id", "url", "expires_at", "next"],
}
HIDDEN_SCHEMA: Schema = {
    "type": "object",
    "description": "The call succeeded; the tool does not show its value to models.",
    "properties": {"status": {"const": HIDDEN}, "message": {"type": "string"}},
    "required": ["status", "message"],
}
WARNED_SCHEMA: Schema = {
    "type": "object",
    "description": "The call succeeded, and something was wrong with its result, such as that it was cut.",
    "properties": {
        "warnings": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "code": {"enum": ["output_schema", "not_json", "cut"]},
                    "message": {"type": "string"},
                },
                "required": ["code", "message"],
            },
        }
    },
    "required": ["warnings"],
}
ENDED_WITHOUT_RUN = {
    RequestStatus.REJECTED: "rejected",
    RequestStatus.EXPIRED: "expired",
    RequestStatus.WITHDRAWN: "withdrawn",
    RequestStatus.REVOKED: "revoked",
    RequestStatus.CHANGES_REQUESTED: "changes_requested",
    RequestStatus.INVALIDATED: "invalidated",
    RequestStatus.SUPERSEDED: "invalidated",
}
UNKNOWN_OUTCOME = (
    "Nobody knows whether this call took effect. A person has to settle that; do not make the same call again."
)


def text_block(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def json_block(value: object) -> types.TextContent:
    return text_block(json.dumps(value, ensure_ascii=False))


def result(message: str, structured: Mapping[str, Any] | None, *, is_error: bool = False) -> types.CallToolResult:
    """Return a result with message and value as text. Unless it is an error, the value is also structured content."""
    blocks: list[Any] = [text_block(message)] if message else []
    if structured is None:
        return types.CallToolResult(content=blocks, is_error=is_error)
    blocks.append(json_block(structured))
    return types.CallToolResult(
        content=blocks, structured_content=None if is_error else dict(structured), is_error=is_error
    )


def pending_result(request: ApprovalRequest, outside: str = "") -> types.CallToolResult:
    """Return the result of a call that waits for approval, or that was approved and still runs.

    `outside` is the reason why no envelope of the caller lets a waiting call start; empty if there is none.
    """
    status = RUNNING if request.status in (RequestStatus.APPROVED, RequestStatus.CONSUMED) else PENDING
    advice = " ".join(filter(None, (outside if status == PENDING else "", NEXT[status])))
    structured = {
        "status": status,
        "approval_id": request.public_id,
        "url": page_of(request),
        "expires_at": format_utc(request.expires_at),
        "next": advice,
    }
    return result(advice, structured)


def page_of(request: ApprovalRequest) -> str:
    """Return the URL of the page on which people decide a request."""
    return f"{settings.TOOLGATE_URL}/approvals/?item={request.public_id}"


def running_result(call: Call) -> types.CallToolResult:
    """Return the result of a call that needs no approval, but still runs when the client's wait ends."""
    message = (
        "This call still runs, and this server stops waiting for it. Call approval_result with the call_id in place "
        "of an approval_id to learn the outcome; do not make the same call again."
    )
    return result(message, {"status": RUNNING, "call_id": call.public_id}, is_error=True)


def ended_result(call: Call, request: ApprovalRequest | None) -> types.CallToolResult:
    """Return the result of a call that has ended or whose outcome is unknown."""
    if call.status == CallStatus.COMPLETED:
        return _completed(call)
    status = str(call.status)
    if request is not None and call.started_at is None and request.status in ENDED_WITHOUT_RUN:
        status = ENDED_WITHOUT_RUN[RequestStatus(request.status)]
    reason = UNKNOWN_OUTCOME if call.status == CallStatus.OUTCOME_UNKNOWN else reason_of(call)
    facts: dict[str, Any] = {"status": status, "error": reason}
    if request is not None:
        facts["approval_id"] = request.public_id
    if call.status == CallStatus.FAILED and call.content:  # the upstream's own words
        blocks = [*content_blocks(call), json_block(facts)]
        return types.CallToolResult(content=blocks, is_error=True)
    return result(reason, facts, is_error=True)


def reason_of(call: Call) -> str:
    response = call.response_json or {}
    return str(response.get("error") or response.get("warning") or call.message or "The call failed.")


def _completed(call: Call) -> types.CallToolResult:
    """Return the result of a completed call: content blocks or message and value, then structured content as text."""
    response, schema = call.response_json or {}, output_schema_of(call.version_id)
    message, notes = call.message if call.message != NO_MESSAGE else "", list[str]()
    if "edited" in response and (call.content or message.endswith(f": {', '.join(response['edited']['fields'])}.")):
        message, notes = "", [message]  # it only says what was edited, and an upstream's blocks come first
    if hasattr(call, "model_text") and call.model_text.is_left_out:
        return _hidden(message, notes, schema)
    structured = _structured_content(call, response, schema)
    warnings = call.warnings_json
    if structured is not None and schema is not None and not warnings:
        value = structured if schema.get("type") == "object" else structured.get("result")
        if compile_schema(schema).problems(value):
            warnings = [ResultWarning("output_schema", "The result does not match the tool's output schema.").as_json()]
    if warnings and structured is not None:
        structured = {"result": structured} if "warnings" in structured else structured
        structured = {**structured, "warnings": [*warnings]}
    elif warnings:
        notes += [each["message"] for each in warnings]
    blocks: list[Any] = content_blocks(call)
    if not blocks and not message:
        message = _value_text(call, structured) or ("" if call.content else NO_MESSAGE)
    blocks = [*([text_block(message)] if message else []), *blocks]
    texts = [{"type": "text", "text": each.text} for each in blocks if isinstance(each, types.TextContent)]
    if structured is not None and not holds_json(texts, structured):
        blocks.append(json_block(structured))
    blocks += [text_block(each) for each in notes]
    return types.CallToolResult(content=blocks, structured_content=structured)


def _hidden(message: str, notes: Sequence[str], schema: Schema | None) -> types.CallToolResult:
    """Return a result without the value, because the tool hides it from models. Structured content needs a schema."""
    structured = {"status": HIDDEN, "message": model_texts.VALUE_HIDDEN}
    texts = [*([message] if message else []), model_texts.VALUE_HIDDEN, *notes]
    blocks: list[Any] = [text_block(each) for each in texts]
    if schema is None:
        return types.CallToolResult(content=blocks)
    return types.CallToolResult(content=[*blocks, json_block(structured)], structured_content=structured)


def content_blocks(call: Call) -> list[types.ContentBlock]:
    """Return the content blocks as the call received them. A block that was stored in part says that it was cut."""
    blocks: list[types.ContentBlock] = []
    for block in complete_blocks(call):
        if block.get("cut"):
            text = text_of(block)
            shown = f"[{described_block(block)}]" if text is None else f"{text}{TRUNCATION_MARK}"
            blocks.append(text_block(shown))
            continue
        plain = {name: each for name, each in block.items() if name not in OWN_KEYS}
        try:
            blocks.append(_BLOCK.validate_python(plain, by_name=False))
        except ValidationError:  # a type that MCP does not know
            blocks.append(json_block(plain))
    return blocks


_BLOCK: TypeAdapter[types.ContentBlock] = TypeAdapter(types.ContentBlock)


def _structured_content(call: Call, response: Mapping[str, Any], schema: Schema | None) -> dict[str, Any] | None:
    """Return the value as structured content.

    None if the tool has no output schema and the value is only the text of content blocks: the upstream sent no
    structured content either.
    """
    results = response.get("results", [])
    if call.content and schema is None:
        if len(results) == 1 and isinstance(results[0], dict):
            return dict(results[0])
        if not results or (len(results) == 1 and isinstance(results[0], str) and says(call.content_json, results[0])):
            return None
    return structured_value(response, schema)


def _value_text(call: Call, structured: Mapping[str, Any] | None) -> str:
    """Return the value of a call as text for models; empty if there is none."""
    if hasattr(call, "model_text"):
        return str(call.model_text.text)
    value: Any = structured
    if structured is not None and structured.keys() == {"result"}:
        value = structured["result"]
    elif structured is not None and structured.keys() == {"results"}:
        results = structured["results"]
        value = results[0] if len(results) == 1 else results or None
    return render_value(value)


@lru_cache(maxsize=4_096)
def output_schema_of(version_pk: int) -> Schema | None:
    """Return the output schema of a tool version. It may be cached, because versions are immutable."""
    schema: Schema | None = ToolVersion.objects.values_list("output_schema", flat=True).get(pk=version_pk)
    return schema


def structured_value(response: Mapping[str, Any], schema: Schema | None) -> dict[str, Any]:
    """Return the value of a standard response as an object that fits the tool's listed output schema.

    An object is returned unchanged. Any other value becomes the member `result`. Without an output schema, the results
    become the list `results`, beside the tool's own fields.
    """
    results = response.get("results", [])
    fields = {name: each for name, each in response.items() if name not in STANDARD_FIELDS}
    if schema is None:
        return {"results": results, **fields}
    if schema.get("type") == "object":
        if "results" in schema.get("properties", {}):
            fields.pop("edited", None)
            return {"results": results, **fields}
        return results[0] if len(results) == 1 and isinstance(results[0], dict) else {"results": results}
    return {"result": _declared_value(results, schema)}


def _declared_value(results: list[Any], schema: Schema) -> Any:
    """Return the value that fits the schema. In `results`, None is an empty list and a single value a list of one."""
    if schema.get("type") == "array":
        return results
    single = results[0] if len(results) == 1 else None
    if len(results) < 2:
        # A list of one counts as its only entry, unless the schema says otherwise.
        is_list = (
            bool(results) and compile_schema(schema).problems(single) and not compile_schema(schema).problems(results)
        )
        return results if is_list else single
    return results


def listed_output_schema(schema: Schema | None) -> Schema | None:
    """Return the output schema for the list of tools. It also allows pending, hidden and warned results.

    Clients check results against the schema that they listed last, and a policy may change later. None if the tool has
    no schema, or if references in it would break inside another schema.
    """
    if schema is None or not all(each.startswith("#/$defs/") for each in references_in(schema)):
        return None
    own = deepcopy(schema)
    definitions = own.pop("$defs", None)
    own.pop("$schema", None)
    if own.get("type") != "object":
        own = {"type": "object", "properties": {"result": own}, "required": ["result"]}
    listed: Schema = {"type": "object", "anyOf": [own, PENDING_SCHEMA, HIDDEN_SCHEMA, WARNED_SCHEMA]}
    return listed | ({"$defs": definitions} if definitions else {})


def references_in(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference
        for each in schema.values():
            yield from references_in(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from references_in(each)


def refusal(error: Exception) -> types.CallToolResult | None:
    """Return the result of a call that was refused before it was stored; None if the error is unexpected."""
    problem = problem_for(error)
    if problem is None:
        return None
    if problem.status >= 500 and not isinstance(error, EXPECTED_FAILURES):
        log_unexpected(error)
    message = error.user_message() if hasattr(error, "user_message") else problem.detail
    document = problem.as_json()
    facts = {"error": document["type"].rpartition(":")[2], "message": problem.detail}
    facts |= {name: document[name] for name in ("errors", "policy") if document.get(name)}
    retry_after = getattr(error, "retry_after", None) or (problem.headers or {}).get("Retry-After")
    if retry_after:
        facts["retry_after"] = int(retry_after)
    return result(message, facts, is_error=True)


def refusal_reason(error: Exception) -> str:
    """Return for the token's owner why a call was refused. It names invalid parameters, but never quotes arguments."""
    problem = problem_for(error)
    if problem is None:
        return ""
    if problem.errors:
        return f"Invalid parameters: {', '.join(each['path'] for each in problem.errors if each['path']) or 'all'}."
    return problem.detail
