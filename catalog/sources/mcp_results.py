"""Results of MCP servers, read as sent: the SDK would refuse a whole result for one block of an unknown type."""

import json
from collections.abc import Mapping
from typing import Any

from catalog.core.canonical_json import json_size
from catalog.core.content_blocks import (
    MAX_RESULT,
    binary_of,
    decode_block,
    holds_json,
    text_of,
    text_of_content,
    with_binary,
    without_binary,
)
from catalog.core.lenient_json import cut_text, storable_json
from catalog.errors import MalformedJSON, UpstreamError
from catalog.results import NO_MESSAGE, ResultWarning, UpstreamResult
from catalog.sources.definitions import visible_text


def to_tool_result(source: str, raw: Mapping[str, Any]) -> UpstreamResult[Any]:
    """Return the raw result of an MCP call as a tool's result. Raises UpstreamError for an error without content."""
    warnings: list[ResultWarning] = []
    structured = _structured(raw.get("structuredContent"), warnings)
    given = raw.get("content")
    blocks = [_block(each) for each in given] if isinstance(given, list) else []
    if raw.get("isError") is not True:
        value = structured
        if value is None and blocks:  # the texts, or a description of the other blocks
            texts = [text for each in blocks if each.get("type") == "text" and (text := text_of(each)) is not None]
            value = _cut_value("\n".join(texts) if texts else text_of_content(blocks), warnings)
        return UpstreamResult(NO_MESSAGE, value, content=tuple(blocks), warnings=tuple(warnings))
    words = visible_text("\n".join(text for each in blocks if (text := text_of(each)) is not None))
    if structured is not None and not holds_json(blocks, structured):
        text = json.dumps(structured, ensure_ascii=False)
        blocks, words = [*blocks, {"type": "text", "text": text}], words or visible_text(text)
    if not words and not blocks:
        raise UpstreamError(f"{source} reported an error without a message.")
    words = words or f"{source} reported an error: {text_of_content(blocks)}"
    return UpstreamResult(words, None, success=False, content=tuple(blocks), error_kind=UpstreamError.kind)


def _structured(value: Any, warnings: list[ResultWarning]) -> Any:
    """Return structured content if it can be stored as JSON, otherwise as text with a warning."""
    if value is None:
        return None
    try:
        plain = storable_json(value)
        size = json_size(plain)
    except MalformedJSON as error:
        warnings.append(ResultWarning("not_json", f"The structured content is kept as text: {error}"))
        return _cut_value(json.dumps(value, ensure_ascii=False), warnings)
    return plain if size <= MAX_RESULT else _cut_value(json.dumps(plain, ensure_ascii=False), warnings)


def _cut_value(text: str, warnings: list[ResultWarning]) -> str:
    kept = cut_text(text, MAX_RESULT)
    if len(kept) < len(text):
        size = len(text.encode("utf-8", "replace"))
        message = f"The result has {size:,} bytes; the first {len(kept.encode()):,} are kept."
        warnings.append(ResultWarning("cut", message))
    return kept


def _block(given: Any) -> dict[str, Any]:
    """Return a content block with its binary data as bytes. An invalid block becomes a text block of JSON."""
    if isinstance(given, dict) and isinstance(given.get("type"), str):
        block = decode_block(given)
        data = binary_of(block)
        try:
            plain = storable_json(block if data is None else without_binary(block))
        except MalformedJSON:
            return {"type": "text", "text": json.dumps(given, ensure_ascii=False)}
        return plain if data is None else with_binary(plain, data)
    return {"type": "text", "text": given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)}
