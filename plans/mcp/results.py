"""Results of calls in the format of MCP: the value of a tool, a pending call, a refusal.

Every result has its message as the first text block, and repeats its structured content as a text block of JSON,
because some clients show models only text.
"""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any

import mcp_types as types
from django.conf import settings

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import log_unexpected
from catalog.models import Call, ToolVersion
from catalog.rest.problems import ProblemDetails, problem_for
from catalog.results import STANDARD_FIELDS
from catalog.schemas import compile_schema
from catalog.states import CallStatus
from plans.engine import model_texts

Schema = dict[str, Any]

PENDING, RUNNING = "pending_approval", "running"
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
EDITED = "A person changed these arguments before approving the call: {fields}."


def text_block(text: str) -> types.TextContent:
    """Return a block of text."""
    return types.TextContent(text=text)


def result(message: str, structured: Mapping[str, Any] | None, *, is_error: bool = False) -> types.CallToolResult:
    """Return a result with a message and structured content, which is repeated as text."""
    blocks: list[Any] = [text_block(message)] if message else []
    if structured is None:
        return types.CallToolResult(content=blocks, is_error=is_error)
    blocks.append(text_block(json.dumps(structured, ensure_ascii=False)))
    return types.CallToolResult(content=blocks, structured_content=dict(structured), is_error=is_error)


def pending_result(request: ApprovalRequest) -> types.CallToolResult:
    """Return the result of a call that waits for approval, or that was approved and is still running."""
    status = RUNNING if request.status in (RequestStatus.APPROVED, RequestStatus.CONSUMED) else PENDING
    structured = {
        "status": status,
        "approval_id": request.public_id,
        "url": page_of(request),
        "expires_at": format_utc(request.expires_at),
        "next": NEXT[status],
    }
    return result(NEXT[status], structured)


def page_of(request: ApprovalRequest) -> str:
    """Return the URL of the page on which people decide a request."""
    return f"{settings.TOOLGATE_URL}/approvals/?item={request.public_id}"


def running_result(call: Call) -> types.CallToolResult:
    """Return the result of a call that needs no approval and is still running when its wait ends."""
    message = (
        "This call still runs, and this server stops waiting for it. Call approval_result with the call_id in place "
        "of an approval_id to learn the outcome; do not make the same call again."
    )
    return result(message, {"status": RUNNING, "call_id": call.public_id}, is_error=True)


def ended_result(call: Call, request: ApprovalRequest | None) -> types.CallToolResult:
    """Return the result of a call that has ended, or whose outcome is unknown."""
    if call.status == CallStatus.COMPLETED:
        return _completed(call)
    status = _status_of(call, request)
    reason = UNKNOWN_OUTCOME if call.status == CallStatus.OUTCOME_UNKNOWN else reason_of(call)
    structured: dict[str, Any] = {"status": status, "error": reason}
    if request is not None:
        structured["approval_id"] = request.public_id
    return result(reason, structured, is_error=True)


def _status_of(call: Call, request: ApprovalRequest | None) -> str:
    if request is not None and call.started_at is None and request.status in ENDED_WITHOUT_RUN:
        return ENDED_WITHOUT_RUN[RequestStatus(request.status)]
    return str(call.status)


def reason_of(call: Call) -> str:
    """Return why a call did not succeed."""
    response = call.response_json or {}
    return str(response.get("error") or response.get("warning") or call.message or "The call failed.")


def _completed(call: Call) -> types.CallToolResult:
    response = call.response_json or {}
    message = call.message or "OK"
    fields = response.get("edited", {}).get("fields")
    if fields:
        message += "\n\n" + EDITED.format(fields=", ".join(fields))
    if hasattr(call, "model_text") and call.model_text.is_left_out:
        return result(f"{message}\n\n{model_texts.VALUE_HIDDEN}", None)
    return result(message, structured_value(response, output_schema_of(call.version_id)))


@lru_cache(maxsize=4_096)
def output_schema_of(version_pk: int) -> Schema | None:
    """Return the output schema of a tool version; versions are immutable."""
    schema: Schema | None = ToolVersion.objects.values_list("output_schema", flat=True).get(pk=version_pk)
    return schema


def structured_value(response: Mapping[str, Any], schema: Schema | None) -> dict[str, Any]:
    """Return the value in a standard response as the object that the tool's listed output schema describes.

    An object is returned unchanged, any other declared value as the member `result`, and undeclared values as the list
    `results` with the tool's own fields.
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
    """Return the value that a standard response lists: lists are kept, None is an empty list, others a list of one."""
    if schema.get("type") == "array":
        return results
    single = results[0] if len(results) == 1 else None
    if len(results) > 1 or (len(results) == 1 and compile_schema(schema).problems(single)):
        return results
    return single


def listed_output_schema(schema: Schema | None, *, may_wait: bool) -> Schema | None:
    """Return the output schema for the list; with `may_wait` it also admits the pending result.

    None for a tool without a schema, and for schemas with references that break inside another schema.
    """
    if schema is None or not all(each.startswith("#/$defs/") for each in references_in(schema)):
        return None
    own = deepcopy(schema)
    definitions = own.pop("$defs", None)
    own.pop("$schema", None)
    if own.get("type") != "object":
        own = {"type": "object", "properties": {"result": own}, "required": ["result"]}
    listed = {"type": "object", "anyOf": [own, PENDING_SCHEMA]} if may_wait else own
    return listed | ({"$defs": definitions} if definitions else {})


def references_in(schema: object) -> Iterator[str]:
    """Yield the references in a schema."""
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
    """Return the result of a call that was refused before it was stored; None for an unexpected error."""
    problem = problem_for(error)
    if problem is None:
        return None
    if problem.status >= 500:
        log_unexpected(error)
    message = error.user_message() if hasattr(error, "user_message") else problem.detail
    return result(message, _refusal_facts(problem, error), is_error=True)


def refusal_reason(error: Exception) -> str:
    """Return why a call was refused, for its owner: names the parameters that are wrong, and never quotes arguments."""
    problem = problem_for(error)
    if problem is None:
        return ""
    if problem.errors:
        return f"Invalid parameters: {', '.join(each['path'] for each in problem.errors if each['path']) or 'all'}."
    return problem.detail


def _refusal_facts(problem: ProblemDetails, error: Exception) -> dict[str, Any]:
    document = problem.as_json()
    facts = {"error": document["type"].rpartition(":")[2], "message": problem.detail}
    facts |= {name: document[name] for name in ("errors", "policy") if document.get(name)}
    retry_after = getattr(error, "retry_after", None) or (problem.headers or {}).get("Retry-After")
    if retry_after:
        facts["retry_after"] = int(retry_after)
    return facts
