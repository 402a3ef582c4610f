"""What the OpenAPI document says beside what the views say: how every refusal looks."""

from typing import Any

PROBLEM = {
    "type": "object",
    "description": "Why a request was refused (RFC 9457).",
    "required": ["type", "title", "status", "detail", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "code", "message"],
                "properties": {name: {"type": "string"} for name in ("path", "code", "message")},
            },
        },
    },
}
REFUSAL = {
    "description": "The request was refused.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
AWAY = {
    **REFUSAL,
    "description": "The database was away, or what was asked about is locked: ask again. `restored`: it was set back.",
}


def describe_refusals(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Add the problem document to every operation."""
    result["components"]["schemas"]["Problem"] = PROBLEM
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"]["4XX"] = REFUSAL
            operation["responses"]["503"] = AWAY
    return result
