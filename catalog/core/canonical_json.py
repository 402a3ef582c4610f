"""Strict JSON parsing, canonical text and digests: defines which JSON Toolgate accepts."""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite
from typing import Any, NoReturn

import rfc8785
from pydantic_core import to_json

from catalog.errors import MalformedJSON, TooLarge

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

MAX_JSON_BYTES = 1024 * 1024
MAX_JSON_DEPTH = 64
MAX_SAFE_INTEGER = 2**53 - 1
EXPONENT_THRESHOLD = 1e21
"""The least number that canonical text writes with an exponent; smaller whole numbers read as integers."""


def parse_json(text: bytes | str, *, max_bytes: int = MAX_JSON_BYTES, max_depth: int = MAX_JSON_DEPTH) -> Json:
    """Parse one JSON document (RFC 8259, no duplicate keys). Raises MalformedJSON or TooLarge."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > max_bytes:
        raise TooLarge("The JSON document", size=len(raw), limit=max_bytes)
    try:
        value: Json = _decoder.decode(raw.decode("utf-8") if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        message = f"The document is not UTF-8: byte {error.start} is not valid."
        raise MalformedJSON(message, code="invalid_utf8") from None
    except json.JSONDecodeError as error:
        raise malformed_json(error) from None
    except RecursionError:
        raise _too_deep_error(MAX_JSON_DEPTH) from None
    check_json(value, max_depth=max_depth)
    return value


def json_type_of(value: object) -> str:
    if value is None:
        return "null"
    types = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in types if isinstance(value, kind)), "object")


def check_json(value: object, *, max_depth: int = MAX_JSON_DEPTH) -> Any:
    """Return the value if it is plain JSON within the limits. Raises MalformedJSON naming the path."""
    _validate(value, max_depth)
    return value


def normalize_numbers(value: Any) -> Any:
    """Return a JSON value with its numbers in canonical form, such as 2 for 2.0; the same object if nothing changes."""
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < EXPONENT_THRESHOLD else value
    if kind is dict:
        changed = _normalized_items(value.items())
        return value | changed if changed else value
    if kind is list:
        changed = _normalized_items(enumerate(value))
        return [changed.get(index, each) for index, each in enumerate(value)] if changed else value
    return value


_MAY_DIFFER = frozenset({float, dict, list})


def _normalized_items(items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    changed = {}
    for key, each in items:
        if type(each) in _MAY_DIFFER and (read := normalize_numbers(each)) is not each:
            changed[key] = read
    return changed


def canonical_text(value: object) -> str:
    """Return the RFC 8785 text of a JSON value: equal values have equal texts."""
    return rfc8785.dumps(check_json(value)).decode()


def digest(*fields: str | bytes) -> str:
    """Return the SHA-256 (hex) of the fields, each prefixed by its length in 8 bytes to make boundaries unambiguous."""
    sha = hashlib.sha256()
    for field in fields:
        data = field.encode() if isinstance(field, str) else field
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()


def format_utc(moment: datetime) -> str:
    """Return an aware time as ISO 8601 text in UTC, to the microsecond, with Z."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def json_size(value: object) -> int:
    """Return the size in bytes of a JSON value as compact UTF-8 text."""
    try:
        return len(to_json(value))
    except ValueError:  # a lone surrogate: refused later, but its size is still asked for
        return len(_compact.encode(value).encode("utf-8", "surrogatepass"))


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def malformed_json(error: json.JSONDecodeError) -> MalformedJSON:
    """Convert an error of Python's JSON parser; the message has line and column and says how to correct the text."""
    said = next((words for start, words in _SYNTAX_ERRORS if error.msg.startswith(start)), "This is not JSON")
    if error.msg.startswith("Expecting value"):
        rest = error.doc[error.pos :]
        if not rest:
            said = "The text ends where a value is expected"
        elif rest[0] in "]},":
            said = "A value is missing, or a comma is too many"
        else:
            said = "This is not a JSON value. Texts are written in double quotes"
    message = f"{said} (line {error.lineno}, column {error.colno})."
    return MalformedJSON(message, line=error.lineno, column=error.colno)


_SYNTAX_ERRORS = (
    ("Expecting property name", "A name in double quotes is expected"),
    ("Illegal trailing comma", "The last entry is followed by a comma"),
    ("Expecting ':'", "A colon is missing after the name"),
    ("Expecting ','", "A comma or a closing bracket is missing"),
    ("Extra data", "Something follows the end of the JSON value"),
    ("Unterminated string", "The text that begins here has no closing quote"),
    ("Invalid control character", "A text contains a control character. Write \\n for a line break"),
    ("Invalid \\u", "A text contains \\u without four hexadecimal digits"),
    ("Invalid \\", "A backslash has no meaning before this character. Write \\\\ for a backslash"),
)
"""Beginnings of the messages of Python's parser, and what is said instead."""


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        message = f"The key {json.dumps(twice)} appears twice in one object."
        raise MalformedJSON(message, code="duplicate_key")
    return members


def _parse_float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise MalformedJSON(f"The number {text[:20]} is too large.", code="not_finite")
    return number


def _parse_integer(text: str) -> int:
    # Python's int() refuses very long digit strings with an error of its own. `check_json` refuses the replacement, and
    # knows the path.
    return int(text) if len(text) <= 17 else MAX_SAFE_INTEGER + 1


def _reject_constant(name: str) -> NoReturn:
    raise MalformedJSON(f"{name} is not JSON: numbers must be finite.", code="not_finite")


_decoder = json.JSONDecoder(
    object_pairs_hook=_without_duplicates,
    parse_constant=_reject_constant,
    parse_float=_parse_float,
    parse_int=_parse_integer,
)


def _validate(value: object, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _validate_text(value)  # type: ignore[arg-type]
    elif kind is dict:
        _validate_members(value, depth)  # type: ignore[arg-type]
    elif kind is list:
        _validate_each(enumerate(value), depth)  # type: ignore[arg-type]
    elif kind is int:
        if abs(value) > MAX_SAFE_INTEGER:  # type: ignore[arg-type]
            message = f"An integer is beyond ±{MAX_SAFE_INTEGER}. Send it as a string."
            raise MalformedJSON(message, code="integer_range")
    elif kind is float:
        if not isfinite(value):  # type: ignore[arg-type]
            raise MalformedJSON("A number must be finite.", code="not_finite")
    elif value is not None and kind is not bool:
        raise MalformedJSON(f"A value of type {kind.__name__} is not JSON.", code="not_json")


def _validate_members(members: dict[object, object], depth: int) -> None:
    for key in members:
        if type(key) is not str:
            raise MalformedJSON(f"A key of type {type(key).__name__} is not JSON.", code="not_json").inside(
                repr(key)[:64]
            )
        if not key.isascii():
            _validate_text(key)
    _validate_each(members.items(), depth)


def _validate_each(children: Iterable[tuple[Any, Any]], depth: int) -> None:
    if depth <= 0:
        raise _too_deep_error(MAX_JSON_DEPTH)
    for step, value in children:
        kind = type(value)
        if kind is str and value.isascii():  # most values are sound, and a call for each is expensive
            continue
        if kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            continue
        try:
            _validate(value, depth - 1)
        except MalformedJSON as problem:
            raise problem.inside(step) from None


def _validate_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "A string contains a lone surrogate, which cannot be encoded."
        raise MalformedJSON(message, code="lone_surrogate") from None


def _too_deep_error(limit: int) -> MalformedJSON:
    return MalformedJSON(f"The document is nested deeper than {limit} levels.", code="too_deep")
