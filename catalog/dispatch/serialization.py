"""What of a call can be kept: results as plain JSON of a size that fits, texts that every database takes."""

from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from catalog.core.canonical_json import check_json, json_size
from catalog.errors import MalformedJSON, ToolError
from catalog.results import custom_rendering, format_for_model

MAX_RESULT = 1024 * 1024
AMBIGUOUS_TYPES = (set, frozenset, bytes, bytearray, memoryview)


class UnserializableResult(ToolError):
    """A result that cannot be kept."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def serialize_result(name: str, value: object) -> Any:
    """Return the value as plain JSON, models and dataclasses dumped; raise Unstorable."""
    try:
        plain = value if type(value) in (str, int, bool) else to_jsonable_python(value)
        if plain != value:  # models and dates say how they are written; sets and bytes would be guessed at
            _reject_ambiguous(value)
        check_json(plain)
    except (PydanticSerializationError, MalformedJSON, ValueError, RecursionError) as error:
        message = f"Tool '{name}' returned a {type(value).__name__} that is not JSON: {exception_summary(error)}"
        raise UnserializableResult(message, "result_not_json") from error
    size = json_size(plain)
    if size > MAX_RESULT:
        message = f"Tool '{name}' returned {size:,} bytes; at most {MAX_RESULT:,} can be kept."
        raise UnserializableResult(message, "result_too_large")
    return plain


def _reject_ambiguous(value: object) -> None:
    """Raise MalformedJSON for what has no one form in JSON, in lists and objects too."""
    if isinstance(value, AMBIGUOUS_TYPES):
        raise MalformedJSON(f"A value of type {type(value).__name__} is not JSON; return text or a list.")
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for step, each in members:
        try:
            _reject_ambiguous(each)
        except MalformedJSON as problem:
            raise problem.inside(str(step)[:64]) from None


def serialize_message(name: str, message: object) -> str:
    """Return the message of a result as it can be kept; raise Unstorable."""
    if not isinstance(message, str):
        kind = type(message).__name__
        raise UnserializableResult(f"Tool '{name}' returned a {kind} as its message, not text.", "result_not_json")
    if len(message) > MAX_RESULT:
        size = f"{len(message):,} characters; at most {MAX_RESULT:,} can be kept"
        raise UnserializableResult(f"Tool '{name}' returned a message of {size}.", "result_too_large")
    return storable_text(message)


def serialize_rendering(value: object) -> str | None:
    """Return the text of a value's own `render()` as it can be kept, cut where it is too long; None without one."""
    text = custom_rendering(value)
    return None if text is None else format_for_model(storable_text(text), MAX_RESULT)


def storable_text(text: str) -> str:
    """Return text that every database takes: no NUL, no half characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def storable_error_text(text: str) -> str:
    """Return what went wrong as it is kept: clean, and no longer than anyone reads."""
    return format_for_model(storable_text(text))


def exception_summary(error: BaseException) -> str:
    """Return what an exception says in one line, or else its class."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
