"""Values of tools as structured content that fits the output schema their tool is listed with."""

from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from catalog.dispatch.pipeline import answer_response
from plans.mcp import results


@dataclass
class Point:
    """A small object."""

    x: int
    next: "Point | None" = None


@dataclass
class Found:
    """Result of a query."""

    results: list[int]
    total: int


VALUES = [
    (str, "hello", {"result": "hello"}),
    (int | None, None, {"result": None}),
    (list[int], [1], {"result": [1]}),
    (list[int], [], {"result": []}),
    (list[int] | int, [1, 2], {"result": [1, 2]}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (Found, {"results": [1], "total": 9}, {"results": [1], "total": 9}),
    (list[Point], [{"x": 1, "next": {"x": 2, "next": None}}], {"result": [{"x": 1, "next": {"x": 2, "next": None}}]}),
]


@pytest.mark.parametrize("may_wait", [False, True])
@pytest.mark.parametrize(("kind", "value", "structured"), VALUES)
def test_a_value_fits_the_schema_that_is_listed(kind: Any, value: Any, structured: Any, may_wait: bool) -> None:
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    response = answer_response(None, {}, value, tool_name="tool")
    listed = results.listed_output_schema(schema, may_wait=may_wait)
    assert results.structured_value(response, schema) == structured
    assert listed is not None and listed["type"] == "object"
    jsonschema.Draft202012Validator.check_schema(listed)
    jsonschema.validate(structured, listed)
    pending = {"status": "pending_approval", "approval_id": "a", "url": "u", "expires_at": "e", "next": "n"}
    is_allowed = jsonschema.Draft202012Validator(listed).is_valid(pending)
    assert is_allowed or not may_wait


def test_an_undeclared_value_is_listed_beside_the_fields_of_its_tool() -> None:
    response = answer_response(None, {}, {"results": [1], "total": 9}, tool_name="tool")
    assert results.structured_value(response, None) == {"results": [1], "total": 9}
    assert results.listed_output_schema(None, may_wait=True) is None


def test_a_schema_whose_references_lead_elsewhere_is_not_listed() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}}}
    assert results.listed_output_schema(schema, may_wait=True) is None
