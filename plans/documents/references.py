"""References between steps: `${key}` and `${key.path.0}` in parameters are replaced by values of the plan's memory.

A string that is exactly one reference becomes the JSON value; inside other text the value is interpolated. `$${`
stands for `${`. Resolving takes one pass, linear in input and output, without the database.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.core.canonical_json import json_size
from catalog.core.json_paths import bounded_member_path, follow
from catalog.errors import field_error

MAX_BYTES = 256 * 1024

_REFERENCE_MARKS = re.compile(r"\$\$\{|\$\{(?P<inside>[^{}]*)\}|\$\{")
_REFERENCE_BODY = re.compile(r"(?P<key>[A-Za-z0-9_-]{1,128})(?P<path>(?:\.[^.${}\x00-\x1f]{1,200}){0,32})")


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to memory[key], or to the value at `path` in it; `whole` is true if nothing else is in the string."""

    key: str
    path: tuple[str, ...]
    where: str
    whole: bool = False

    def __str__(self) -> str:
        return "${" + ".".join((self.key, *self.path)) + "}"


def find(value: object) -> list[Reference]:
    """Return every reference in a JSON value. Raises ParameterError for a malformed one."""
    return [reference for where, text in texts(value) for reference in find_in(text, where)]


def find_in(text: str, where: str) -> list[Reference]:
    """Return the references in one string. Raises ParameterError for a malformed one."""
    return [piece for piece in _pieces(text, where) if isinstance(piece, Reference)]


def keys_in(text: str) -> set[str]:
    """Return the keys of the references in the JSON text of parameters, without reading it as JSON."""
    bodies = (mark["inside"] for mark in _REFERENCE_MARKS.finditer(text) if mark["inside"])
    return {body["key"] for body in map(_REFERENCE_BODY.fullmatch, bodies) if body}


def texts(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted path and the text of each string that may contain references."""
    if isinstance(value, str):
        if "${" in value:
            yield where, value
    elif isinstance(value, dict | list):
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, str | dict | list):
                yield from texts(child, bounded_member_path(where, step))


def escape_references(value: Any) -> Any:
    """Return the value escaped, so that `resolve` returns the original."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: escape_references(each) for key, each in value.items()}
    return [escape_references(each) for each in value] if isinstance(value, list) else value


def replace_references(value: Any, instead: Mapping[str, str]) -> Any:
    """Return the value with each reference whose text is in `instead` replaced by the text that it has there."""

    def put(mark: re.Match[str]) -> str:
        return instead.get(mark[0], mark[0])

    if isinstance(value, str):
        return _REFERENCE_MARKS.sub(put, value) if "${" in value else value
    if isinstance(value, dict):
        return {key: replace_references(each, instead) for key, each in value.items()}
    return [replace_references(each, instead) for each in value] if isinstance(value, list) else value


def resolve(value: Any, memory: Mapping[str, Any], *, instead: Mapping[str, str] | None = None) -> Any:
    """Return the value with its references replaced. Raises ParameterError for a missing or too large value.

    A reference to a key in `instead` is replaced by the text that `instead` has for the key, whatever its path.
    """
    return _Resolver(memory, instead or {}).resolve(value, "")


class _Resolver:
    """One resolution, with the number of bytes that it may still insert."""

    def __init__(self, memory: Mapping[str, Any], instead: Mapping[str, str]) -> None:
        self.memory = memory
        self.instead = instead
        self.left = MAX_BYTES

    def resolve(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            return self.fill(value, where) if "${" in value else value
        if isinstance(value, dict):
            return {key: self.resolve(child, bounded_member_path(where, key)) for key, child in value.items()}
        if isinstance(value, list):
            return [self.resolve(child, bounded_member_path(where, index)) for index, child in enumerate(value)]
        return value

    def fill(self, text: str, where: str) -> Any:
        pieces = list(_pieces(text, where))
        if isinstance(pieces[0], Reference) and pieces[0].whole:
            return self.look_up(pieces[0])
        values = (piece if isinstance(piece, str) else self.look_up(piece) for piece in pieces)
        return "".join(
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            for value in values
        )

    def look_up(self, reference: Reference) -> Any:
        if reference.key in self.instead:
            found: Any = self.instead[reference.key]
        elif reference.key not in self.memory:
            raise field_error(reference.where, "missing_key", f"{reference}: there is no such key in memory.")
        else:
            try:
                found = follow(self.memory[reference.key], reference.path)
            except LookupError:
                message = f"{reference}: '{reference.key}' has no value at that path."
                raise field_error(reference.where, "missing_path", message) from None
        self.left -= json_size(found)
        if self.left < 0:
            message = f"{reference}: the values exceed {MAX_BYTES:,} bytes. Refer to a smaller part."
            raise field_error(reference.where, "too_large", message)
        return found


def _pieces(text: str, where: str) -> Iterator[str | Reference]:
    end = 0
    for mark in _REFERENCE_MARKS.finditer(text):
        if mark.start() > end:
            yield text[end : mark.start()]
        end = mark.end()
        whole = mark.start() == 0 and end == len(text)
        if mark[0] == "$${":
            yield "${"
            continue
        parts = _REFERENCE_BODY.fullmatch(mark["inside"] or "")
        if parts is None:
            message = "'${' begins a reference such as ${key} or ${key.path.0}. Write '$${' for a literal '${'."
            raise field_error(where, "reference_malformed", message)
        yield Reference(parts["key"], tuple(parts["path"].split(".")[1:]), where, whole)
    if end < len(text):
        yield text[end:]
