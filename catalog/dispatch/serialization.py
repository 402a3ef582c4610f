"""Serialization of tool results for storage: plain JSON of limited size, without NUL bytes and lone surrogates."""

from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from catalog.core.canonical_json import check_json, json_size
from catalog.core.content_blocks import (
    MAX_RESULT,
    Block,
    binary_of,
    decode_block,
    media_type_of,
    stored_content,
    text_of,
)
from catalog.errors import MalformedJSON, ToolError
from catalog.results import custom_rendering, format_for_model

BLOCK_TYPES = ("text", "image", "audio", "resource", "resource_link")
AMBIGUOUS_TYPES = (set, frozenset, bytes, bytearray, memoryview)


class UnserializableResult(ToolError):
    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def serialize_result(name: str, value: object) -> Any:
    """Return the value as plain JSON, models and dataclasses dumped. Raises UnserializableResult."""
    try:
        plain = value if type(value) in (str, int, bool) else to_jsonable_python(value)
        if plain != value:  # models and dates define their JSON form; sets and bytes do not
            _reject_ambiguous(value)
        check_json(plain)
    except (PydanticSerializationError, MalformedJSON, ValueError, RecursionError) as error:
        message = f"Tool '{name}' returned a {type(value).__name__} that is not JSON: {exception_summary(error)}"
        raise UnserializableResult(message, "result_not_json") from error
    size = json_size(plain)
    if size > MAX_RESULT:
        message = f"Tool '{name}' returned {size:,} bytes. At most {MAX_RESULT:,} can be stored."
        raise UnserializableResult(message, "result_too_large")
    return plain


def _reject_ambiguous(value: object) -> None:
    """Raise MalformedJSON for values without a single JSON form, also inside lists and objects."""
    if isinstance(value, AMBIGUOUS_TYPES):
        raise MalformedJSON(f"A value of type {type(value).__name__} is not JSON. Return text or a list.")
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for step, each in members:
        try:
            _reject_ambiguous(each)
        except MalformedJSON as problem:
            raise problem.inside(str(step)[:64]) from None


def serialize_content(name: str, content: object) -> tuple[Block, ...]:
    """Return the content blocks of a handler's result. Raises UnserializableResult."""
    if not isinstance(content, list | tuple):
        raise UnserializableResult(f"Tool '{name}' returned content that is not a list of blocks.", "result_not_json")
    blocks = []
    for number, given in enumerate(content):
        block = decode_block(given) if isinstance(given, dict) else {}
        binary = binary_of(block)
        try:
            check_json(_without_bytes(block))
        except MalformedJSON as error:
            raise UnserializableResult(
                f"Tool '{name}' returned a content block {number} that is not JSON: {error}", "result_not_json"
            ) from None
        is_binary = block.get("type") in ("image", "audio")
        if block.get("type") not in BLOCK_TYPES or (is_binary and (binary is None or not media_type_of(block))):
            message = (
                f"Tool '{name}' returned a content block {number} that is none: give it one of the types "
                f"{', '.join(BLOCK_TYPES)}, and to an image or audio `data` and `mimeType`."
            )
            raise UnserializableResult(message, "result_not_json")
        if block["type"] == "text" and text_of(block) is None:
            raise UnserializableResult(f"Tool '{name}' returned a text block {number} without text.", "result_not_json")
        blocks.append(block)
    if blocks and stored_content(blocks).is_cut:
        message = f"Tool '{name}' returned content of more than {MAX_RESULT:,} bytes, which cannot be stored."
        raise UnserializableResult(message, "result_too_large")
    return tuple(blocks)


def _without_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_bytes(each) for key, each in value.items()}
    return "" if isinstance(value, bytes) else value


def serialize_message(name: str, message: object) -> str:
    if not isinstance(message, str):
        kind = type(message).__name__
        raise UnserializableResult(f"Tool '{name}' returned a {kind} as its message, not text.", "result_not_json")
    if len(message) > MAX_RESULT:
        size = f"{len(message):,} characters. At most {MAX_RESULT:,} can be stored"
        raise UnserializableResult(f"Tool '{name}' returned a message of {size}.", "result_too_large")
    return storable_text(message)


def serialize_rendering(value: object) -> str | None:
    """Return the text of a value's own `render()`, storable and truncated; None if it has no such method."""
    text = custom_rendering(value)
    return None if text is None else format_for_model(storable_text(text), MAX_RESULT)


def storable_text(text: str) -> str:
    """Return text without NUL and lone surrogates, which databases refuse."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def storable_error_text(text: str) -> str:
    return format_for_model(storable_text(text))


def exception_summary(error: BaseException) -> str:
    """Return an exception's message on one line, or its class if it has none."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
