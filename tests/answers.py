"""A check of the REST API's answers against the OpenAPI document: status, content type and body.

The suite makes it of every answer that Django's test client gets, so a document that does not tell the truth fails the
test that shows it.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator
from jsonschema_rs import Draft202012Validator

from catalog.core.canonical_json import parse_json

API = "/api/v1/"
PARAMETER = re.compile(r"<(?:[^:>]+:)?([^>]+)>")
NOT_DESCRIBED = frozenset({"/api/v1/schema/", "/api/v1/docs/"})
PROBLEM = ("application/problem+json", {"$ref": "#/components/schemas/Problem"})


_making = threading.Lock()


def document() -> dict[str, Any]:
    """Return the OpenAPI document, its objects closed: a field that it does not name is a fault of the answer."""
    with _making:  # what makes it keeps state of its own, which several threads would spoil
        return _document()


@cache
def _document() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator(urlconf="config.urls").get_schema(request=None, public=True)
    for each in _objects(made["components"]["schemas"]):
        each.setdefault("additionalProperties", False)
    return made


def check(response: HttpResponseBase, method: str, path: str) -> None:
    """Fail unless an answer of the API is as the document says."""
    try:
        route = resolve(path, "config.urls").route
    except Resolver404:
        route = ""
    media_type = response.get("Content-Type", "").partition(";")[0]
    body = b"" if response.streaming else response.content  # type: ignore[attr-defined]
    fault = fault_of(method, route, response.status_code, media_type, body)
    assert fault is None, f"The OpenAPI document does not tell the truth of {method} {path}: {fault}"


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas of objects that name properties."""
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            yield node
        for inner in node.values():
            yield from _objects(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _objects(inner)


def fault_of(method: str, route: str, status: int, media_type: str, body: bytes) -> str | None:
    """Return how an answer differs from the document; None if it does not. `route` is Django's, '' for no path."""
    path = "/" + PARAMETER.sub(r"{\1}", route)
    operation = document()["paths"].get(path, {}).get(method.lower())
    if path in NOT_DESCRIBED:
        return None
    if operation is None:  # no such path or method: refused, in the shape of every refusal
        declared: Mapping[str, Any] = {PROBLEM[0]: {"schema": PROBLEM[1]}} if status >= 400 else {}
    elif str(status) not in operation["responses"]:
        return f"status {status} is not declared"
    else:
        declared = operation["responses"][str(status)].get("content", {})
    if not declared and not body:
        return None
    if media_type not in declared:
        return f"{status} is {media_type or 'empty'}, declared {sorted(declared)}"
    if not media_type.endswith("json"):
        return None
    where = () if operation is None else (path, method.lower(), str(status), media_type)
    found = next(_validator(where).iter_errors(parse_json(body)), None)
    return None if found is None else f"{status} at {'.'.join(map(str, found.instance_path))}: {found.message[:500]}"


@cache
def _validator(where: tuple[str, ...]) -> Draft202012Validator:
    """Return the compiled schema of an answer, of refusals for no operation."""
    made = document()
    schema = PROBLEM[1]
    if where:
        path, method, status, media_type = where
        schema = made["paths"][path][method]["responses"][status]["content"][media_type]["schema"]
    return Draft202012Validator({**schema, "components": made["components"]}, validate_formats=True)
