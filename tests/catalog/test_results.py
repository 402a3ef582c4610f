"""Texts and standard responses of results."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from catalog.results import (
    Preview,
    ToolResult,
    format_error_response,
    format_for_model,
    format_success_response,
    render,
    render_value,
)
from tests.corpus import faults


@dataclass
class Point:
    x: int
    label: str | None = None


class Model(BaseModel):
    a: int
    b: str | None = None


class Rendered:
    def render(self) -> Any:
        return 42


class Broken(Point):
    def render(self) -> str:
        raise RuntimeError


def test_a_value_is_rendered_for_the_model():
    cases: list[tuple[Any, str]] = [
        (None, ""),
        ("as it is", "as it is"),
        (b"bytes", "bytes"),
        ([], "[]"),
        ({"a": None}, '{"a": null}'),
        (Point(1), '{"x": 1}'),
        (Model(a=1), '{"a": 1}'),
        (Rendered(), "42"),
        (Broken(1), '{"x": 1}'),
        ((1, "é"), '[1, "é"]'),
    ]

    def check(value, text):
        assert render_value(value) == text

    assert faults(check, cases) == {}


def test_a_result_is_its_message_a_blank_line_and_its_value():
    assert render(ToolResult.ok([1], message="Done")) == "Done\n\n[1]"
    assert render(ToolResult.ok([1], message="")) == "[1]"
    assert render(ToolResult.error("No")) == "No"
    assert render(ToolResult("Done", [1], exclude_value_from_context=True)) == "Done"


def test_ok_and_error_fill_the_fields():
    assert ToolResult.ok(1) == ToolResult(message="OK", value=1, success=True)
    assert ToolResult.error("x") == ToolResult(message="x", value=None, success=False)


def test_the_standard_responses_have_their_fields():
    good = format_success_response("q", {"a": 1}, [2], tool_name="t", data={"x": 3}, success=False)
    bad = format_error_response("q", {}, "Nothing found", tool_name="t", error_type="warning", hint="h")

    assert good == {
        "query_type": "q",
        "parameters": {"a": 1},
        "results": [2],
        "output_key": "t",
        "success": True,
        "data": {"x": 3},
    }
    assert bad["results"] == [] and bad["success"] is False
    assert bad["warning"] == "Nothing found" and "error" not in bad and bad["hint"] == "h"


def test_values_are_formatted_for_the_model():
    assert format_for_model(None) == "nil"
    assert format_for_model("text") == "text"
    assert format_for_model({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'


@given(st.text(), st.integers(0, 100))
def test_a_cut_text_is_never_longer_than_its_limit(text, limit):
    shown = format_for_model(text, limit=limit)

    assert len(shown) <= limit
    assert shown == text if len(text) <= limit else shown != text or limit < 20


def test_a_preview_refuses_an_unknown_kind():
    with pytest.raises(ValueError, match="diff, rows, text, none"):
        Preview("x", "picture")  # type: ignore[arg-type]
