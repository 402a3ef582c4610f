"""MCP results as results of tools: blocks whole and in order, values kept with warnings, errors in their own words."""

import base64
import json
import sys
from typing import Any

import pytest

from catalog.core.content_blocks import MAX_RESULT
from catalog.definitions.levels import SafetyLevel
from catalog.errors import UpstreamError
from catalog.sources.definitions import Definition
from catalog.sources.mcp_client import Connection, run_on_loop
from catalog.sources.mcp_results import to_tool_result
from catalog.sources.settings import UpstreamSettings

PNG = b"\x89PNG\r\n\x1a\n"


def read(**raw):
    """Return the result that a server sent."""
    return to_tool_result("up", raw)


def test_blocks_are_kept_in_order_with_what_accompanies_them():
    text = {"type": "text", "text": "a", "annotations": {"audience": ["user"]}, "_meta": {"k": 1}}
    image = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    broken = {"type": "image", "data": "not base64", "mimeType": "image/png"}
    unknown = {"type": "hologram", "shape": [1, 2]}
    result = read(content=[text, image, broken, unknown, "plain"], structuredContent={"id": 1917043659912705296})
    assert [*result.content] == [
        text,
        {**image, "data": PNG},
        broken,
        unknown,
        {"type": "text", "text": "plain"},
    ]
    assert result.value == {"id": 1917043659912705296}
    assert result.warnings == ()


@pytest.mark.parametrize(
    ("raw", "value", "codes"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb", []),
        ({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}, "[image/png, 3 bytes]", []),
        ({"content": []}, None, []),
        ({}, None, []),
        ({"structuredContent": {"x": float("inf"), "y": "\ud83d"}}, {"x": "Infinity", "y": "\ufffd"}, []),
        ({"content": [{"type": "text", "text": "a" * 2 * MAX_RESULT}]}, "a" * MAX_RESULT, ["cut"]),
    ],
)
def test_value_of_a_result(raw, value, codes):
    result = read(**raw)
    assert result.success
    assert (result.value, [each.code for each in result.warnings]) == (value, codes)


def test_structured_content_that_is_too_deep_is_text():
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"a": deep}
    result = read(structuredContent=deep)
    assert json.loads(result.value) == deep
    assert [each.code for each in result.warnings] == ["not_json"]


def test_error_has_its_own_words():
    told = read(isError=True, content=[], structuredContent={"code": "NO_ROOM", "detail": "disk full"})
    assert not told.success
    assert "disk full" in told.message
    assert json.loads(told.content[0]["text"]) == {"code": "NO_ROOM", "detail": "disk full"}
    shown = read(isError=True, content=[{"type": "image", "data": "AAAA", "mimeType": "image/png"}])
    assert "image/png" in shown.message
    with pytest.raises(UpstreamError):
        read(isError=True, content=[])


PROGRAM = r"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    about = {"serverInfo": {"name": "x", "version": "1"}, "capabilities": {"tools": {}}}
    result = {"protocolVersion": "2025-11-25", **about}
    if asked["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "a\ud83d"}, {"type": "hologram"}], "structuredContent": DEEP}
    elif asked["method"] != "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    text = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    print(text.replace('"DEEP"', "[" * 300 + "7" + "]" * 300), flush=True)
"""


def test_answer_of_a_program_that_the_sdk_does_not_read_is_kept() -> None:
    """It has a lone surrogate, a block of an unknown type, and 300 levels: without this the call would time out."""
    command = (sys.executable, "-c", PROGRAM.replace(": DEEP", ': "DEEP"'))
    settings = UpstreamSettings(pk=71, name="up", kind="mcp", command=command, timeout=20)
    definition = Definition(kind="mcp", upstream="x", description="x", input_schema={}, safety_level="safe")

    async def call() -> Any:
        connection = Connection(settings)
        try:
            return await connection.call(definition, {}, level=SafetyLevel.SAFE)
        finally:
            await connection.end()

    result = run_on_loop(call(), 30)
    assert [*result.content] == [{"type": "text", "text": "a\ufffd"}, {"type": "hologram"}]
    assert result.success
    assert [each.code for each in result.warnings] == ["not_json"]
