"""YAML 1.2 documents as JSON values: every scalar is a text except `true`, `false`, `null` and numbers.

PyYAML's own resolver is that of YAML 1.1, where `NO` is false. An alias counts as many values as the part that it
repeats, so that a small text cannot grow without bound.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from catalog.core.canonical_json import MAX_JSON_DEPTH, Json
from catalog.core.json_paths import bounded_member_path
from catalog.errors import MalformedJSON

MAX_ALIASES = 5_000
MAX_VALUES = 1_000_000
"""Values of a document, with those that aliases repeat."""
MAX_HEX_LENGTH = 3_500
"""Characters of an integer in base 8 or 16 that Python can write in base 10."""
_NULL = re.compile(r"|~|null|Null|NULL")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_STANDARD_TAGS = "tag:yaml.org,2002:"
_MERGE_KEY = "<<"
_PARSER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""libyaml, where PyYAML was built with it: ten times as fast."""


def parse_yaml(text: str, *, max_depth: int = MAX_JSON_DEPTH, allow_duplicate_keys: bool = False) -> Json:
    """Return the value of a YAML document. It must not be changed: parts that aliases repeat are the same object.

    With `allow_duplicate_keys`, the last value of a repeated key counts. Raises MalformedJSON with line and column.
    """
    try:
        return _Composer(text, max_depth, allow_duplicate_keys=allow_duplicate_keys).document()
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(filter(None, (error.problem, error.context)))
        raise _malformed(problem, error.problem_mark or error.context_mark) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow; the second line is its position
        raise _malformed(str(error).partition("\n")[0]) from None
    except UnicodeEncodeError:
        raise _malformed("it contains a lone surrogate, which cannot be encoded") from None


_PLAIN = re.compile(r"[A-Za-z_/$(][A-Za-z0-9_./()${}+-]*(?: [A-Za-z0-9_./()${}+-]+)*")
"""Texts that need no quotes, unless they read as another type."""
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "null", "true", "false"})
"""Words that YAML 1.1 reads as booleans or null, in any case."""


class _Writer(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # libyaml, where it is built in
    """Writes JSON values, so that YAML 1.1 and 1.2 read the same ones; repeated parts are written out."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _write_text(writer: Any, text: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    is_block = "\n" in text and all(map(str.isprintable, text.split("\n")))
    style = None if is_plain else "|" if is_block else '"'
    node: yaml.ScalarNode = writer.represent_scalar(f"{_STANDARD_TAGS}str", text, style=style)
    return node


def _write_number(writer: Any, number: float) -> yaml.ScalarNode:
    node: yaml.ScalarNode = writer.represent_scalar(f"{_STANDARD_TAGS}float", json.dumps(number))
    return node


_Writer.add_representer(str, _write_text)
_Writer.add_representer(float, _write_number)


def write_yaml(value: Json) -> str:
    """Return a JSON value as a YAML document that `parse_yaml` reads as the same value, with keys in their order."""
    text: str = yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100)
    return text


def yaml_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield the dotted path of each value in a readable YAML document and its line, from 1; of a member, its key's."""
    root = yaml.compose(text, Loader=_PARSER)
    waiting: list[tuple[str, Any, int]] = [("", root, 1)] if root is not None else []
    for _ in range(MAX_VALUES):
        if not waiting:
            return
        path, node, line = waiting.pop()
        yield path, line
        if isinstance(node, yaml.MappingNode):
            members = [(str(key.value), value, key) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            members = [(str(index), each, each) for index, each in enumerate(node.value)]
        else:
            continue
        waiting += [(bounded_member_path(path, name), each, at.start_mark.line + 1) for name, each, at in members]


class _Composer:
    """Composes values from the events of a parser, each with its height: the number of container levels in it."""

    def __init__(self, text: str, max_depth: int, *, allow_duplicate_keys: bool) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_PARSER))
        self._max_depth = max_depth
        self._allow_duplicate_keys = allow_duplicate_keys
        self._anchors: dict[str, tuple[Any, int, int] | None] = {}
        """Value, height and number of values by anchor; None while the value is being composed."""
        self._aliases = self._values = 0

    def document(self) -> Json:
        """Return the value of the only document; None for an empty text."""
        next(self._events)  # StreamStartEvent
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value, _ = self._compose(next(self._events), 0)
        next(self._events)  # DocumentEndEvent
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise _malformed("a second document begins here, and only one is accepted", following.start_mark)
        result: Json = value
        return result

    def _compose(self, event: Any, depth: int) -> tuple[Any, int]:
        if isinstance(event, yaml.AliasEvent):
            return self._repeated(event, depth)
        before = self._values
        self._count(1, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value, height = _scalar(event), 0
        else:
            _check_tag(event)
            self._check_depth(depth + 1, event)
            compose = self._mapping if isinstance(event, yaml.MappingStartEvent) else self._sequence
            value, height = compose(depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, height, self._values - before
        return value, height

    def _repeated(self, event: Any, depth: int) -> tuple[Any, int]:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise _malformed(f"it has more than {MAX_ALIASES:,} aliases (*name)", event.start_mark)
        known = self._anchors.get(event.anchor)
        if known is None:
            inside = event.anchor in self._anchors
            problem = "stands inside the value that it repeats" if inside else "has no anchor before it"
            raise _malformed(f"the alias *{event.anchor} {problem}", event.start_mark)
        value, height, size = known
        self._count(size, event)
        self._check_depth(depth + height, event)
        return value, height

    def _sequence(self, depth: int) -> tuple[list[Any], int]:
        items, highest = [], 0
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            value, height = self._compose(event, depth)
            items.append(value)
            highest = max(highest, height)
        return items, highest + 1

    def _mapping(self, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        highest = 0
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key: Any = None
            if isinstance(event, yaml.ScalarEvent):
                self._compose(event, depth)  # a key may have an anchor
                key = event.value
            elif isinstance(event, yaml.AliasEvent):
                key, _ = self._repeated(event, depth)
            if not isinstance(key, str):
                raise _malformed("a key is not a text", event.start_mark)
            value, height = self._compose(next(self._events), depth)
            highest = max(highest, height)
            if key == _MERGE_KEY and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                mappings = value if isinstance(value, list) else [value]
                if not all(isinstance(each, dict) for each in mappings):
                    message = f"a merge key ({_MERGE_KEY}) needs a mapping or a list of mappings"
                    raise _malformed(message, event.start_mark)  # type: ignore[arg-type]
                merged += mappings
            elif key in members and not self._allow_duplicate_keys:
                raise _malformed(f"the key {key[:80]!r} appears twice", event.start_mark)
            else:
                members[key] = value
        if not merged:
            return members, highest + 1
        together: dict[str, Any] = {}
        for each in [*merged[::-1], members]:  # an own member counts first, then the first mapping that has it
            together.update(each)
        return together, highest + 1

    def _count(self, values: int, event: Any) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            problem = f"it has more than {MAX_VALUES:,} values, including those that aliases (*name) repeat"
            raise _malformed(problem, event.start_mark)

    def _check_depth(self, depth: int, event: Any) -> None:
        if depth > self._max_depth:
            raise _malformed(f"it is nested deeper than {self._max_depth} levels", event.start_mark)


def _scalar(event: Any) -> str | int | float | bool | None:
    tag = _check_tag(event)
    if not event.implicit[0] and tag not in _TYPES:
        return str(event.value)
    for name in (tag,) if tag in _TYPES else _TYPES:
        pattern, convert = _TYPES[name]
        if pattern.fullmatch(event.value):
            return convert(event.value)
    if tag in _TYPES:
        raise _malformed(f"{event.value[:80]!r} is no value of the tag !!{tag}", event.start_mark)
    return str(event.value)


def _integer(text: str) -> int | str:
    if text.startswith(("0o", "0x")):
        return int(text, 0) if len(text) <= MAX_HEX_LENGTH else text
    try:
        return int(text)
    except ValueError:  # more than 4,300 digits
        return text


_TYPES: dict[str, tuple[re.Pattern[str], Callable[[str], str | int | float | bool | None]]] = {
    "null": (_NULL, lambda text: None),
    "bool": (_BOOLEAN, lambda text: text.lower() == "true"),
    "int": (_INTEGER, _integer),
    "float": (
        _FLOAT,
        lambda text: float(text.replace(".", "", 1) if text.lstrip("-+.")[:1] in "iInN" else text),
    ),
}
"""The types of the core schema that are not texts, in the order in which they are tried."""
_KNOWN_TAGS = frozenset({*_TYPES, "str", "seq", "map", "timestamp"})


def _check_tag(event: Any) -> str:
    """Return the name of a scalar's or container's tag; empty without one. Raises MalformedJSON for unknown tags."""
    tag: str = event.tag or ""
    name = tag.removeprefix(_STANDARD_TAGS)
    if tag and (name == tag or name not in _KNOWN_TAGS):
        shown = tag if name == tag else f"!!{name}"
        raise _malformed(f"the tag {shown[:80]} has no meaning in JSON: remove it", event.start_mark)
    return name


def _malformed(problem: str, mark: yaml.Mark | None = None) -> MalformedJSON:
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return MalformedJSON(f"This YAML cannot be read: {problem}.", code="invalid_yaml", line=line, column=column)
