"""The parser of gram: from characters to what is written where. Knows the grammar and its limits, no meaning."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.tree import Meta

from catalog.core.canonical_json import MAX_INTEGER
from catalog.errors import TypeSignatureError


@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Word:
    """A name: an identifier, a key, or the name of a field."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Named:
    """A type by its name, such as `Text`."""

    place: Place
    name: str


@dataclass(frozen=True, slots=True)
class Maybe:
    """`Maybe T`."""

    place: Place
    inner: "WrittenType"


@dataclass(frozen=True, slots=True)
class InIO:
    """Haskell's `IO T`."""

    place: Place
    inner: "WrittenType"


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[T]`."""

    place: Place
    inner: "WrittenType"


@dataclass(frozen=True, slots=True)
class Shape:
    """`{name: T, …}`."""

    place: Place
    fields: tuple[tuple[Word, "WrittenType"], ...]


WrittenType = Named | Maybe | InIO | ListOf | Shape


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a record; a list holds values, a record pairs."""

    place: Place
    content: "str | int | float | bool | list[Value] | Record | Maybe | None"


@dataclass(frozen=True, slots=True)
class Record:
    """`{key: value, …}`; no key stands twice."""

    place: Place
    pairs: tuple[tuple[Word, Value], ...]


@dataclass(frozen=True, slots=True)
class Node:
    """What stands between parentheses and commas: `name::Label {record}`, each part optional."""

    place: Place
    name: Word | None = None
    labels: tuple[WrittenType, ...] = ()
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One pair of parentheses."""

    place: Place
    items: tuple[Node | WrittenType, ...]


@dataclass(frozen=True, slots=True)
class WrittenSignature:
    """Groups with arrows between them; `result` is what follows the last arrow without parentheses."""

    groups: tuple[Group, ...]
    result: WrittenType | None
    end: Place
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WrittenSpecification:
    """`[name:Label {record} | signature]`."""

    name: Word
    label: WrittenType
    record: Record | None
    signature: WrittenSignature


def plain(value: Value) -> object:
    """Return the value as JSON; a type among values is None, which no type takes as its default."""
    content = value.content
    if isinstance(content, Record):
        return {key.text: plain(inner) for key, inner in content.pairs}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [plain(inner) for inner in content]
    return None if isinstance(content, Maybe) else content


MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_SIGNS = 8_000
MAX_SHOWN = 60
_ROOM = {"specification": 20}  # for the brackets and words that a specification puts around its signature

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"} | {each: each for each in "\"'`\\/"}
_ESCAPE = re.compile(r"\\(.)")
_OPEN, _CLOSED = frozenset("([{"), frozenset(")]}")
_SIGNS = re.compile(
    r"""//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\\n]|\\.)*`|[\w.@]+(?:-[\w.@]+)*|::|[-=~]{2}>|\S"""
)
_TYPE = frozenset({"STRING", "SYMBOL", "MAYBE", "IO", "LSQB", "LBRACE"})
_THINGS = (
    (frozenset({"NUMBER"}), _TYPE | {"NUMBER", "TRUE", "FALSE", "NULL"}, "a value"),
    (frozenset({"MAYBE", "_BINDER"}), _TYPE | {"_BINDER"}, "a parameter such as '::Text'"),
    (frozenset({"MAYBE"}), _TYPE, "a type such as Text"),
)
_UNSAID = frozenset({"_SINGLE", "_DOUBLE", "_WAVY"})
_WORDS = {
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "COMMA": "','",
    "VBAR": "'|'",
    "_BINDER": "'::'",
    "SYMBOL": "a name",
    "STRING": "a name",
    "IO": "a type such as Text",
    "_ARROW": "an arrow such as '==>'",
    "_SINGLE_END": "']->'",
    "_DOUBLE_END": "']=>'",
    "_WAVY_END": "']~>'",
    "$END": "the end",
}


def read_signature(text: str) -> WrittenSignature:
    """Return what a type signature says; raise TypeSignatureError."""
    return cast(WrittenSignature, _read(text, "signature"))


def read_specification(text: str) -> WrittenSpecification:
    """Return what a specification says; raise TypeSignatureError."""
    return cast(WrittenSpecification, _read(text, "specification"))


def read_type(text: str) -> WrittenType:
    """Return the type that is written, such as `Maybe [Text]`; raise TypeSignatureError."""
    return cast(WrittenType, _read(text, "type"))


def wrong(place: Place, message: str, *expected: str) -> TypeSignatureError:
    """Return the error for something wrong at this place."""
    return TypeSignatureError(message, line=place.line, column=place.column, expected=expected)


def shown(text: str) -> str:
    """Return a piece of someone's text as a message quotes it: on one line, and short."""
    quoted = repr(text[:MAX_SHOWN])
    return quoted if len(text) <= MAX_SHOWN else f"{quoted[:-1]}…{quoted[0]}"


def _read(text: str, start: str) -> object:
    judge_size(text)
    _judge_shape(text, _ROOM.get(start, 0))
    try:
        return _Reading(text).transform(_grammar().parse(text, start=start))
    except VisitError as error:
        raise error.orig_exc from None
    except UnexpectedInput as error:
        raise _explained(error, text) from None


def judge_size(text: object) -> None:
    """Raise TypeSignatureError unless this is text, encodable, and of no more than MAX_BYTES."""
    if not isinstance(text, str):
        raise wrong(Place(1, 1), f"gram is text, not {type(text).__name__}.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        place = _place_in(text, error.start)
        raise wrong(place, "The text holds half of a surrogate pair, which no encoding can carry.") from None
    if size > MAX_BYTES:
        raise wrong(Place(1, 1), f"The text has {size:,} bytes; at most {MAX_BYTES:,} are accepted.")


def _judge_shape(text: str, room: int) -> None:
    """Refuse what nests too deep or goes on too long before it is parsed: that costs a hundred times as much."""
    depth = 0
    for count, sign in enumerate(_SIGNS.finditer(text), start=1):
        depth += (sign[0] in _OPEN) - (sign[0] in _CLOSED)
        if depth > MAX_DEPTH + room:
            raise wrong(_place_in(text, sign.start()), f"Brackets nest deeper than {MAX_DEPTH} levels; nest less.")
        if count > MAX_SIGNS + room:
            message = f"The text has more than {MAX_SIGNS:,} words and signs; shorten it."
            raise wrong(_place_in(text, sign.start()), message)


@cache
def _grammar() -> Lark:
    return Lark(
        Path(__file__).with_name("gram.lark").read_text(encoding="utf-8"),
        parser="lalr",
        start=["signature", "specification", "type"],
        propagate_positions=True,
    )


@v_args(meta=True)
class _Reading(Transformer[Token, Any]):
    """Turns lark's tree into ours, rule by rule; the methods are named after the rules."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def specification(self, meta: Meta, parts: list[Any]) -> WrittenSpecification:
        record = parts[2] if isinstance(parts[2], Record) else None
        return WrittenSpecification(parts[0], parts[1], record, parts[-1])

    def signature(self, meta: Meta, parts: list[Any]) -> WrittenSignature:
        groups = tuple(part for part in parts if isinstance(part, Group))
        result = parts[-1] if not isinstance(parts[-1], Group) else None
        text = self._text[meta.start_pos : meta.end_pos]
        return WrittenSignature(groups, result, Place(meta.end_line, meta.end_column), text)

    def group(self, meta: Meta, items: list[Any]) -> Group:
        return Group(_start(meta), tuple(items))

    def node(self, meta: Meta, parts: list[Any]) -> Node:
        name = next((part for part in parts if isinstance(part, Word)), None)
        record = next((part for part in parts if isinstance(part, Record)), None)
        labels = tuple(part for part in parts if not isinstance(part, Word | Record))
        return Node(_start(meta), name, labels, record)

    def decoration(self, meta: Meta, parts: list[Any]) -> None:
        """An arrow's own name, labels and record say nothing about a tool."""

    def keyword(self, meta: Meta, tokens: list[Token]) -> Word:
        return Word(_start(meta), str(tokens[0]))

    def name(self, meta: Meta, tokens: list[Token]) -> Word:
        return Word(_start(meta), _unquoted(tokens[0]))

    def label(self, meta: Meta, types: list[WrittenType]) -> WrittenType:
        return types[0]

    def type(self, meta: Meta, types: list[WrittenType]) -> WrittenType:
        return types[0]

    def maybe(self, meta: Meta, parts: list[Any]) -> Maybe:
        return Maybe(_start(meta), parts[-1])

    def io(self, meta: Meta, parts: list[Any]) -> InIO:
        return InIO(_start(meta), parts[-1])

    def named(self, meta: Meta, tokens: list[Token]) -> Named:
        return Named(_start(meta), _unquoted(tokens[0]))

    def sequence(self, meta: Meta, types: list[WrittenType]) -> ListOf:
        return ListOf(_start(meta), types[0])

    def shape(self, meta: Meta, fields: list[Any]) -> Shape:
        return Shape(_start(meta), tuple(fields))

    def field(self, meta: Meta, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    def record(self, meta: Meta, pairs: list[Any]) -> Record:
        seen = set()
        for key, _ in pairs:
            if key.text in seen:
                raise wrong(key.place, f"The key {shown(key.text)} stands twice in one record; leave one out.")
            seen.add(key.text)
        return Record(_start(meta), tuple(pairs))

    def pair(self, meta: Meta, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    def text(self, meta: Meta, tokens: list[Token]) -> Value:
        return Value(_start(meta), _unquoted(tokens[0]))

    symbol = text

    def number(self, meta: Meta, tokens: list[Token]) -> Value:
        return Value(_start(meta), _number(tokens[0]))

    def true(self, meta: Meta, tokens: list[Token]) -> Value:
        return Value(_start(meta), content=True)

    def false(self, meta: Meta, tokens: list[Token]) -> Value:
        return Value(_start(meta), content=False)

    def null(self, meta: Meta, tokens: list[Token]) -> Value:
        return Value(_start(meta), None)

    def array(self, meta: Meta, values: list[Value]) -> Value:
        return Value(_start(meta), values)

    def members(self, meta: Meta, records: list[Record]) -> Value:
        return Value(_start(meta), records[0])

    def type_value(self, meta: Meta, types: list[Maybe]) -> Value:
        return Value(_start(meta), types[0])


def _start(meta: Meta) -> Place:
    return Place(meta.line, meta.column)


def _place_of(token: Token) -> Place:
    return Place(token.line or 1, token.column or 1)


def _place_in(text: str, index: int) -> Place:
    return Place(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _unquoted(token: Token) -> str:
    if token.type != "STRING":
        return str(token)

    def character(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPES:
            place = Place(_place_of(token).line, _place_of(token).column + escape.start() + 1)
            raise wrong(place, f"There is no escape {shown(escape[0])}.", *(f"\\{each}" for each in _ESCAPES))
        return _ESCAPES[escape[1]]

    return _ESCAPE.sub(character, token[1:-1])


def _number(token: Token) -> int | float:
    whole = token.lstrip("-").isdecimal()
    # Long runs of digits never reach int(): Python refuses them with an error of its own.
    number = (int(token) if len(token) <= 17 else MAX_INTEGER + 1) if whole else float(token)
    if abs(number) > MAX_INTEGER:  # of a float too: canonical JSON writes it as the integer that it is
        raise wrong(_place_of(token), f"The number {shown(token)} is too large; numbers go to ±{MAX_INTEGER}.")
    return number


def _explained(error: UnexpectedInput, text: str) -> TypeSignatureError:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        place, found = _place_in(text, len(text.rstrip())), "the text ends here"
    else:
        place = Place(error.line, error.column)
        found = f"found {_found(error, text)}"
    expected = _expected(error)
    return wrong(place, f"Expected {_any_of(expected)}, {found}.", *expected)


def _found(error: UnexpectedInput, text: str) -> str:
    if isinstance(error, UnexpectedToken):
        return shown(str(error.token))
    position = cast("int", error.pos_in_stream)
    character = text[position]
    if character in "\"'`":
        return f"a text that does not end on its line: {shown(text[position:].partition(chr(10))[0])}"
    return shown(character)


def _expected(error: UnexpectedInput) -> list[str]:
    """Return what could have stood there, in words; many signs that begin one thing are that thing."""
    names = set(cast("Any", error.interactive_parser).accepts()) - _UNSAID
    words = []
    for sign, begins, word in _THINGS:
        if sign <= names:
            names -= begins
            words.append(word)
    return words + sorted({_WORDS.get(name, name) for name in names})


def _any_of(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
