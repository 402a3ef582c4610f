"""Examples of the OpenAPI document, added after it is generated: each app has a file `api/examples.yaml`.

A key is the id of an operation, the name of a component, or `operation media/type` for a response that is not JSON. The
example of a component `X` is also used for `PatchedX`, `PageX` and arrays of `X`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.apps import apps

from catalog.core.yaml_documents import parse_yaml
from catalog.rest.problems import DATABASE_UNAVAILABLE, MEDIA_TYPE, NOT_FOUND, STATUS_DETAILS, ProblemDetails

Named = Mapping[str, Any]
"""Examples by their summaries."""

PROBLEMS: Mapping[int, ProblemDetails] = {
    400: ProblemDetails(400, "A value is missing, or a comma is too many (line 1, column 9).", "malformed_json"),
    401: ProblemDetails(401, "This token is unknown, expired or revoked. Use a new one.", "authentication_failed"),
    403: ProblemDetails(403, "This token lacks the scope approvals:decide.", "permission_denied"),
    404: ProblemDetails(404, NOT_FOUND, "not_found"),
    408: ProblemDetails(408, STATUS_DETAILS[408]),
    409: ProblemDetails(409, "The request was already decided.", "conflict"),
    413: ProblemDetails(413, "The request body may have at most 1,048,576 bytes.", "too_large"),
    415: ProblemDetails(415, 'Unsupported media type "text/plain" in request.', "unsupported_media_type"),
    422: ProblemDetails(
        422,
        "page_size: A valid integer is required.",
        "invalid",
        [{"path": "page_size", "code": "invalid", "message": "A valid integer is required."}],
    ),
    429: ProblemDetails(429, "send_mail may be called 5 times a minute. Try again in 12 seconds.", "rate_limited"),
    500: ProblemDetails(500, "An unexpected error occurred. It has been logged."),
    502: ProblemDetails(502, "The model's provider answered with an error.", "model_unavailable"),
    503: DATABASE_UNAVAILABLE,
    504: ProblemDetails(504, "The model did not answer in time.", "model_timeout"),
}


def add_examples(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Add the examples of all apps to the bodies of requests and responses. A drf-spectacular postprocessing hook."""
    requests: dict[str, Named] = {}
    responses: dict[str, Named] = {}
    for app in apps.get_app_configs():
        path = Path(app.path, "api", "examples.yaml")
        if path.exists():
            found: Any = parse_yaml(path.read_text(encoding="utf-8"))
            requests |= found["requests"]
            responses |= found["responses"]
    for operation in (each for item in result["paths"].values() for each in item.values()):
        name = operation["operationId"]
        for content in operation.get("requestBody", {}).get("content", {}).values():
            _set_examples(content, _find(requests, name, content["schema"]))
        for status, response in operation["responses"].items():
            for media_type, content in response.get("content", {}).items():
                if status.startswith("2") or media_type != MEDIA_TYPE:
                    key = name if media_type.endswith("/json") else f"{name} {media_type}"
                    _set_examples(content, _find(responses, key, content["schema"]))
                elif (component := _component(content["schema"])) in responses:
                    _set_examples(content, responses[component])
                else:
                    problem = PROBLEMS[int(status)].as_json()
                    _set_examples(content, {problem["title"]: problem})
    return result


def _find(table: Mapping[str, Named], operation: str, schema: Mapping[str, Any]) -> Named:
    if operation in table:
        return table[operation]
    component = _component(schema)
    if component in table:
        return table[component]
    item = component.removeprefix("Page")
    if component.startswith("Page") and item in table:
        first = next(iter(table[item].values()))
        return {"One page": {"next": None, "previous": None, "results": [first]}}
    if schema.get("type") == "array" and (item := _component(schema["items"])) in table:
        return {"All": [next(iter(table[item].values()))]}
    return {}


def _component(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2].removeprefix("Patched")


def _set_examples(content: dict[str, Any], examples: Named) -> None:
    if examples:
        content.setdefault(
            "examples",
            {
                re.sub(r"\W+", "_", summary).strip("_").lower(): {"summary": summary, "value": value}
                for summary, value in examples.items()
            },
        )
