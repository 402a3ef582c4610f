"""Results as people see them: the value as a value, images by their bytes, arguments never."""

from typing import Any

import pytest

from catalog.models import Call
from catalog.results import ResultWarning, ToolResult, UpstreamResult
from catalog.ui.results import shown_result, value_text
from tests.builders import act, call_of, make_plan, work_off

PNG = b"\x89PNG\r\n\x1a\n"
TEXT = {"type": "text", "text": "It says so"}
FILE = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "contents"}}


def called(stage: Any, user: Any, returned: object) -> Call:
    """Return the ended call, with a long argument, of a tool that returned this."""
    stage.acts["safe"] = lambda value, context: returned
    return call_of(work_off(make_plan(user, act(1, "argument" * 1_000))))


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (42, {"scalar": "42"}),
        (False, {"scalar": "false"}),
        ("two\nlines", {"text": "two\nlines"}),
        (None, {"is_empty": True}),
        ([], {"is_empty": True}),
        ({"path": "a/b.txt", "bytes": 7}, {"path": "a/b.txt", "path_size": 7}),
        ({"path": "a/b.txt", "found": True}, {"fields": [["path", "a/b.txt"], ["found", "true"]]}),
        ([{"a": 1, "b": "x"}, {"b": None}], {"table": [["1", "x"], ["", "null"]]}),
        (["a", 2], {"items": ["a", "2"]}),
        ([[1], [2]], {"text": "[\n  [\n    1\n  ],\n  [\n    2\n  ]\n]"}),
        ({"results": [1], "total": 9}, {"fields": [["results", "[1]"], ["total", "9"]]}),
    ],
)
def test_value_is_shown_as_a_value(stage: Any, ada: Any, returned: Any, shown: dict[str, Any]) -> None:
    result = shown_result(called(stage, ada, returned))
    found: dict[str, Any] = {}
    for name in shown:
        value = getattr(result, name)
        if name in ("table", "fields"):
            value = [[cell.head for cell in row] for row in value.rows]
        elif name == "items":
            value = [each.head for each in value]
        elif name == "text":
            value = value.head
        found[name] = value
    assert found == shown
    assert "argument" not in str(result)


def test_long_values_are_cut(stage: Any, ada: Any) -> None:
    text = shown_result(called(stage, ada, "é" * 30_000)).text
    assert text is not None
    assert (len(text.head), text.size) == (20_000, 60_000)
    table = shown_result(called(stage, ada, [{"a": 1}] * 60)).table
    assert table is not None
    assert (len(table.rows), table.more) == (50, 10)


@pytest.mark.parametrize(
    ("returned", "blocks", "has_text"),
    [
        (UpstreamResult("OK", "It says so", content=[TEXT]), [], True),
        (UpstreamResult("OK", {"a": 1}, content=[{"type": "text", "text": '{"a": 1}'}]), [], False),
        (UpstreamResult("OK", {"a": 1}, content=[TEXT]), ["It says so"], False),
        (UpstreamResult("OK", {"a": 1}, content=[TEXT, {"type": "text", "text": '{"a":1}'}]), ["It says so"], False),
        (UpstreamResult("OK", "It says so", content=[TEXT, FILE]), ["contents"], True),
        (UpstreamResult("OK", {"a": 1}, content=[TEXT] * 60), ["It says so"] * 50, False),
        (
            UpstreamResult(
                "OK",
                "[image/png, 8 bytes]",
                content=[{"type": "image", "data": PNG, "mimeType": "image/png"}],
            ),
            ["image"],
            False,
        ),
        (ToolResult.ok("It rises", content=[{"type": "image", "data": PNG, "mimeType": "image/png"}]), ["image"], True),
        (ToolResult.ok(None, content=[{"type": "image", "data": b"<svg/>", "mimeType": "image/png"}]), ["file"], False),
    ],
)
def test_blocks_are_shown_unless_the_value_is_their_text(
    stage: Any, ada: Any, returned: Any, blocks: list[str], has_text: bool
) -> None:
    result = shown_result(called(stage, ada, returned))
    found = [each.text.head if each.text else "image" if each.is_image else "file" for each in result.blocks]
    assert (found, result.text is not None) == (blocks, has_text)


def test_warnings_are_shown(stage: Any, ada: Any) -> None:
    returned = UpstreamResult("OK", 1, warnings=[ResultWarning("cut", "It was cut.")])
    assert shown_result(called(stage, ada, returned)).warnings == ["It was cut."]


def test_value_in_memory_is_one_line() -> None:
    response = {"query_type": None, "parameters": {"a": 1}, "results": [{"x": 1}], "output_key": "t", "success": True}
    assert value_text(response) == '{"x": 1}'
    assert value_text({**response, "results": ["text"]}) == "text"
