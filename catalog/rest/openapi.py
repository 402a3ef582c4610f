"""Postprocessing hooks of the OpenAPI document: shared error responses, descriptions and overlapping alternatives."""

from http import HTTPStatus
from typing import Any

from catalog.rest.problems import MEDIA_TYPE

COMMON_STATUSES = (400, 401, 403, 500, 503)
WRITE_STATUSES = (409, 422)
BODY_STATUSES = (408, 413, 415)
DESCRIPTIONS = {
    401: "No token or session, or one that is no longer valid.",
    403: "A scope or a role is missing, or a policy rule forbids the action.",
    404: "The object does not exist, or the caller may not see it.",
    408: "The body arrived too slowly.",
    409: "The state has changed, or the Idempotency-Key was used for another request.",
    413: "The body is larger than 1 MiB.",
    415: "The body is not JSON.",
    422: "Fields are invalid; `errors` lists each.",
    503: "The database is unavailable: retry after `Retry-After`. Or it was restored (`urn:toolgate:restored`).",
}


def describe_refusals(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Add the usual error responses to each operation. Those that its view declares are kept."""
    for path in result["paths"].values():
        for method, operation in path.items():
            responses = operation["responses"]
            places = {parameter["in"] for parameter in operation.get("parameters", ())}
            statuses = [
                *COMMON_STATUSES,
                *((404,) if "path" in places else ()),
                *((422,) if "query" in places else ()),
                *(WRITE_STATUSES if method != "get" else ()),
                *(BODY_STATUSES if method in ("post", "patch") else ()),
            ]
            for status in statuses:
                refusal = {
                    "description": DESCRIPTIONS.get(status, HTTPStatus(status).phrase),
                    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
                responses.setdefault(str(status), refusal)
            operation["responses"] = dict(sorted(responses.items()))
    return result


def describe_fields(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Remove "Return" from descriptions of fields, because they are docstrings of serializer methods."""
    for schema in result["components"]["schemas"].values():
        for field in schema.get("properties", {}).values():
            text = field.get("description", "")
            if text.startswith("Return "):
                text = text.removeprefix("Return ")
                field["description"] = text[0].upper() + text[1:]
    return result


def let_alternatives_overlap(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Replace `oneOf` by `anyOf`: one value can match several alternatives, as null also matches "any JSON value"."""
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
