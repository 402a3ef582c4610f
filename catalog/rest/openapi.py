"""Post-processing of the OpenAPI document: the refusals that operations share, and alternatives that overlap."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from catalog.rest.problems import MEDIA_TYPE

COMMON_STATUSES = (400, 401, 403, 500, 503)
WRITE_STATUSES = (409, 422)
BODY_STATUSES = (408, 413, 415)
DESCRIPTIONS = {
    401: "No token or session, or one that is no longer valid.",
    403: "A scope or a role is missing, or a rule forbids it.",
    404: "There is no such object, or the caller may not see it.",
    408: "The body came too slowly.",
    409: "Someone was faster, the state is past it, or the Idempotency-Key was used for another request.",
    413: "The body is over 1 MiB.",
    415: "The body is not JSON.",
    422: "Fields are wrong; `errors` names each.",
    503: "The database is away: ask again after `Retry-After`. Or it was set back (`urn:toolgate:restored`).",
}


def describe_refusals(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Declare the refusals of every operation that its view does not declare itself."""
    for path in result["paths"].values():
        for method, operation in path.items():
            responses = operation["responses"]
            for status in _refusal_statuses(method, operation):
                responses.setdefault(str(status), _refusal_response(status))
            operation["responses"] = dict(sorted(responses.items()))
    return result


def _refusal_statuses(method: str, operation: dict[str, Any]) -> Iterator[int]:
    """Yield the statuses that follow from an operation's method, parameters and body."""
    places = {parameter["in"] for parameter in operation.get("parameters", ())}
    yield from COMMON_STATUSES
    if "path" in places:
        yield 404
    if "query" in places:
        yield 422
    if method != "get":
        yield from WRITE_STATUSES
    if method in ("post", "patch"):
        yield from BODY_STATUSES


def _refusal_response(status: int) -> dict[str, Any]:
    return {
        "description": DESCRIPTIONS.get(status, HTTPStatus(status).phrase),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def let_alternatives_overlap(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Write `anyOf` for `oneOf`: null is also any JSON value, and a plan's problem is also a wrong field."""
    _rename(result["components"]["schemas"])
    return result


def _rename(node: Any) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("oneOf"), list):
            node["anyOf"] = node.pop("oneOf")
        for inner in node.values():
            _rename(inner)
    elif isinstance(node, list):
        for inner in node:
            _rename(inner)
