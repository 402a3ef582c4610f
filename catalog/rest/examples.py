"""Examples of the OpenAPI document, added after it is generated, so that views carry none.

Each `api` package has one table, `ExampleHook`, that is listed in `SPECTACULAR_SETTINGS`. Pages and arrays are composed
from the examples of their items.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, slots=True)
class ExampleHook:
    """A postprocessing hook that adds examples of requests and responses.

    Keys are the names of components, or ids of operations, which win; a response that is not JSON is named
    `operation media/type`. An example of a component `X` serves `PatchedX` and, as an item, `PageX`.
    """

    requests: Mapping[str, Named] = field(default_factory=dict)
    responses: Mapping[str, Named] = field(default_factory=dict)

    def __call__(self, result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return the document with the examples of this table."""
        for operation in _operations(result):
            name = operation["operationId"]
            for content in operation.get("requestBody", {}).get("content", {}).values():
                _set_examples(content, _find(self.requests, name, content["schema"]))
            for status, response in operation["responses"].items():
                for media_type, content in response.get("content", {}).items():
                    if status.startswith("2") or media_type != MEDIA_TYPE:
                        key = name if media_type.endswith("/json") else f"{name} {media_type}"
                        _set_examples(content, _find(self.responses, key, content["schema"]))
                    elif (component := _component(content["schema"])) in self.responses:
                        _set_examples(content, self.responses[component])
        return result


def add_problem_examples(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Add an example to each problem document that has none. A postprocessing hook."""
    for operation in _operations(result):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get(MEDIA_TYPE)
            if content is not None:
                problem = PROBLEMS[int(status)]
                _set_examples(content, {problem.as_json()["title"]: problem.as_json()})
    return result


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def _find(table: Mapping[str, Named], operation: str, schema: Mapping[str, Any]) -> Named:
    if operation in table:
        return table[operation]
    component = _component(schema)
    if component in table:
        return table[component]
    item = component.removeprefix("Page")
    if component.startswith("Page") and item in table:
        return {"One page": {"next": None, "previous": None, "results": _first(table[item])}}
    if schema.get("type") == "array" and (item := _component(schema["items"])) in table:
        return {"All": _first(table[item])}
    return {}


def _first(examples: Named) -> list[Any]:
    return [next(iter(examples.values()))]


def _component(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2].removeprefix("Patched")


def _set_examples(content: dict[str, Any], examples: Named) -> None:
    """Set the examples of a media type, unless it has some."""
    if examples:
        named = {_key(summary): {"summary": summary, "value": value} for summary, value in examples.items()}
        content.setdefault("examples", named)


def _key(summary: str) -> str:
    return re.sub(r"\W+", "_", summary).strip("_").lower()
