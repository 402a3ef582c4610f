"""Values of tools as structured content that fits the output schema their tool is listed with."""

from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from catalog.dispatch.pipeline import answer_response
from catalog.models import Call
from catalog.results import ResultWarning, ToolResult, UpstreamResult
from plans.engine.model_texts import VALUE_HIDDEN
from plans.mcp import results
from tests.builders import act, call_of, make_plan, work_off


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


@pytest.mark.parametrize(("kind", "value", "structured"), VALUES)
def test_a_value_fits_the_schema_that_is_listed(kind: Any, value: Any, structured: Any) -> None:
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    response = answer_response(None, {}, value, tool_name="tool")
    listed = results.listed_output_schema(schema)
    assert results.structured_value(response, schema) == structured
    assert listed is not None and listed["type"] == "object"
    jsonschema.Draft202012Validator.check_schema(listed)
    jsonschema.validate(structured, listed)
    pending = {"status": "pending_approval", "approval_id": "a", "url": "u", "expires_at": "e", "next": "n"}
    warned = {"warnings": [{"code": "cut", "message": "m"}]}
    for other in (pending, warned, {"status": "hidden", "message": "m"}):
        jsonschema.validate(other, listed)


def test_an_undeclared_value_is_listed_beside_the_fields_of_its_tool() -> None:
    response = answer_response(None, {}, {"results": [1], "total": 9}, tool_name="tool")
    assert results.structured_value(response, None) == {"results": [1], "total": 9}
    assert results.listed_output_schema(None) is None


def test_a_schema_whose_references_lead_elsewhere_is_not_listed() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "string"}}}
    assert results.listed_output_schema(schema) is None


PNG = b"\x89PNG\r\n\x1a\n"
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png", "annotations": {"audience": ["user"]}}
SHOWN = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png", "annotations": {"audience": ["user"]}}
TEXT = {"type": "text", "text": "Echo: hi"}
JSON = {"type": "text", "text": '{"w": 1}'}
CUT = ResultWarning("cut", "It was cut.")
WARNED = {"warnings": [{"code": "cut", "message": "It was cut."}]}


def said(text: str) -> dict[str, str]:
    """Return a text block."""
    return {"type": "text", "text": text}


RESULTS = [
    # A tool's message, or its value as a model reads it; "OK" only where there is neither.
    (ToolResult.ok({"w": 1}, "Drawn"), [said("Drawn"), said('{"results": [{"w": 1}]}')], {"results": [{"w": 1}]}),
    (ToolResult.ok("hi"), [said("hi"), said('{"results": ["hi"]}')], {"results": ["hi"]}),
    (ToolResult.ok([1, 2]), [said("[1, 2]"), said('{"results": [1, 2]}')], {"results": [1, 2]}),
    (ToolResult.ok(None), [said("OK"), said('{"results": []}')], {"results": []}),
    (ToolResult("m", 7, exclude_value_from_context=True, content=[TEXT]), [said("m"), said("HIDDEN")], None),
    (ToolResult("Drawn", {"w": 1}, content=[IMAGE]), [said("Drawn"), SHOWN, JSON], {"w": 1}),
    (ToolResult.ok("It rises", content=[IMAGE]), [SHOWN, said('{"results": ["It rises"]}')], {"results": ["It rises"]}),
    # An upstream's blocks, and nothing that they hold already.
    (UpstreamResult("OK", "Echo: hi", content=[TEXT]), [TEXT], None),
    (UpstreamResult("OK", {"w": 1}, content=[JSON, IMAGE]), [JSON, SHOWN], {"w": 1}),
    (UpstreamResult("OK", {"w": 1}, content=[TEXT]), [TEXT, JSON], {"w": 1}),
    (UpstreamResult("OK", {"results": "a"}, content=[TEXT]), [TEXT, said('{"results": "a"}')], {"results": "a"}),
    (UpstreamResult("OK", None, content=[]), [], None),
    (
        UpstreamResult("OK", "[hologram]", content=[{"type": "hologram", "a": 1}]),
        [said('{"type": "hologram", "a": 1}')],
        None,
    ),
    (UpstreamResult("OK", "Echo: hi", content=[TEXT], warnings=[CUT]), [TEXT, said("It was cut.")], None),
    (
        UpstreamResult("OK", {"w": 1}, content=[JSON], warnings=[CUT]),
        [JSON, said('{"w": 1, "warnings": [{"code": "cut", "message": "It was cut."}]}')],
        {"w": 1, **WARNED},
    ),
    (
        UpstreamResult("OK", {"warnings": 1}, content=[TEXT], warnings=[CUT]),
        [TEXT, said('{"result": {"warnings": 1}, "warnings": [{"code": "cut", "message": "It was cut."}]}')],
        {"result": {"warnings": 1}, **WARNED},
    ),
    # Errors have no structured content.
    (
        UpstreamResult("No room", None, success=False, content=[said("No room"), IMAGE]),
        [said("No room"), SHOWN, said('{"status": "failed", "error": "No room"}')],
        None,
    ),
]


def called(stage: Any, user: Any, returned: object) -> Call:
    """Return the ended call of a tool that returned this."""
    stage.acts["safe"] = lambda value, context: returned
    return call_of(work_off(make_plan(user, act(1))))


@pytest.mark.parametrize(("returned", "blocks", "structured"), RESULTS)
def test_result_has_the_blocks_of_its_tool(
    stage: Any, ada: Any, returned: Any, blocks: list[Any], structured: Any
) -> None:
    call = called(stage, ada, returned)
    answer = results.ended_result(call, None).model_dump(mode="json", by_alias=True, exclude_none=True)
    hidden = [said(VALUE_HIDDEN) if each == said("HIDDEN") else each for each in blocks]
    assert answer["content"] == hidden
    assert answer.get("structuredContent") == structured
    assert answer["isError"] is not returned.success


def test_result_that_does_not_fit_its_listed_schema_says_so(
    stage: Any, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients refuse a result that neither fits nor says so, and agents repeat the call."""
    schema = {"type": "object", "required": ["pages"]}
    listed = results.listed_output_schema(schema)
    assert listed is not None
    monkeypatch.setattr(results, "output_schema_of", lambda version: schema)
    for returned in (ToolResult.ok({"w": 1}), ToolResult.ok("x"), ToolResult("m", 1, exclude_value_from_context=True)):
        structured = results.ended_result(called(stage, ada, returned), None).structured_content
        jsonschema.validate(structured, listed)


def test_bytes_that_were_not_kept_are_described(stage: Any, ada: Any) -> None:
    large = {"type": "image", "data": b"x" * 2_000_000, "mimeType": "image/png"}
    long = {"type": "text", "text": "a" * 2_000_000}
    answer = results.ended_result(called(stage, ada, UpstreamResult("OK", "a", content=[large, long])), None)
    image, text, warning = answer.content
    assert (image.type, "2,000,000" in image.text) == ("text", True)  # type: ignore[union-attr]
    assert text.text.endswith("[... truncated ...]")  # type: ignore[union-attr]
    assert len(text.text) > 1_000_000  # type: ignore[union-attr]
    assert warning.type == "text"
