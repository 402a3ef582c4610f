"""Parser of gram: text to syntax tree, with limits on size and nesting."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.tree import Meta

from catalog.core.canonical_json import MAX_SAFE_INTEGER
from catalog.errors import TypeSignatureError


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line and a column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class NameSyntax:
    place: SourceLocation
    text: str


@dataclass(frozen=True, slots=True)
class NamedType:
    """A type by its name, such as `Text`."""

    place: SourceLocation
    name: str


@dataclass(frozen=True, slots=True)
class MaybeType:
    """`Maybe T`."""

    place: SourceLocation
    inner: "TypeSyntax"


@dataclass(frozen=True, slots=True)
class IOType:
    """Haskell's `IO T`."""

    place: SourceLocation
    inner: "TypeSyntax"


@dataclass(frozen=True, slots=True)
class ListType:
    """`[T]`."""

    place: SourceLocation
    inner: "TypeSyntax"


@dataclass(frozen=True, slots=True)
class RecordType:
    """`{name: T, …}`."""

    place: SourceLocation
    fields: tuple[tuple[NameSyntax, "TypeSyntax"], ...]


TypeSyntax = NamedType | MaybeType | IOType | ListType | RecordType


@dataclass(frozen=True, slots=True)
class RecordValue:
    """A value in a record; a list holds further values, a record holds pairs."""

    place: SourceLocation
    content: "str | int | float | bool | list[RecordValue] | RecordSyntax | MaybeType | None"


@dataclass(frozen=True, slots=True)
class RecordSyntax:
    """`{key: value, …}` with unique keys."""

    place: SourceLocation
    pairs: tuple[tuple[NameSyntax, RecordValue], ...]


@dataclass(frozen=True, slots=True)
class ItemSyntax:
    """`name::Label {record}` between parentheses and commas, each part optional."""

    place: SourceLocation
    name: NameSyntax | None = None
    labels: tuple[TypeSyntax, ...] = ()
    record: RecordSyntax | None = None


@dataclass(frozen=True, slots=True)
class GroupSyntax:
    """One pair of parentheses."""

    place: SourceLocation
    items: tuple[ItemSyntax | TypeSyntax, ...]


@dataclass(frozen=True, slots=True)
class SignatureSyntax:
    """Groups with arrows between them; `result` is the type after the last arrow if it has no parentheses."""

    groups: tuple[GroupSyntax, ...]
    result: TypeSyntax | None
    end: SourceLocation
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SpecificationSyntax:
    """`[name:Label {record} | signature]`."""

    name: NameSyntax
    label: TypeSyntax
    record: RecordSyntax | None
    signature: SignatureSyntax


def value_to_json(value: RecordValue) -> object:
    """Return the value as JSON; a type becomes None, so that it is refused as a default."""
    content = value.content
    if isinstance(content, RecordSyntax):
        return {key.text: value_to_json(inner) for key, inner in content.pairs}
    if isinstance(content, Sequence) and not isinstance(content, str):
        return [value_to_json(inner) for inner in content]
    return None if isinstance(content, MaybeType) else content


MAX_GRAM_BYTES = 64 * 1024
MAX_GRAM_DEPTH = 32
MAX_LEXEMES = 8_000
MAX_QUOTED_TEXT = 60
_EXTRA_LEXEMES = {"specification": 20}  # for the brackets and words of a specification around its signature

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"} | {each: each for each in "\"'`\\/"}
_ESCAPE = re.compile(r"\\(.)")
_OPEN, _CLOSED = frozenset("([{"), frozenset(")]}")
_LEXEME_PATTERN = re.compile(
    r"""//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\\n]|\\.)*`|[\w.@]+(?:-[\w.@]+)*|::|[-=~]{2}>|\S"""
)
_TYPE_TERMINALS = frozenset({"STRING", "SYMBOL", "MAYBE", "IO", "LSQB", "LBRACE"})
_EXPECTED_PHRASES = (
    (frozenset({"NUMBER"}), _TYPE_TERMINALS | {"NUMBER", "TRUE", "FALSE", "NULL"}, "a value"),
    (frozenset({"MAYBE", "_BINDER"}), _TYPE_TERMINALS | {"_BINDER"}, "a parameter such as '::Text'"),
    (frozenset({"MAYBE"}), _TYPE_TERMINALS, "a type such as Text"),
)
_UNNAMED_TERMINALS = frozenset({"_SINGLE", "_DOUBLE", "_WAVY"})
_TERMINAL_NAMES = {
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


def parse_signature(text: str) -> SignatureSyntax:
    """Parse a type signature. Raises TypeSignatureError."""
    return cast(SignatureSyntax, _parse(text, "signature"))


def parse_specification(text: str) -> SpecificationSyntax:
    """Parse a specification. Raises TypeSignatureError."""
    return cast(SpecificationSyntax, _parse(text, "specification"))


def parse_type(text: str) -> TypeSyntax:
    """Parse a type such as `Maybe [Text]`. Raises TypeSignatureError."""
    return cast(TypeSyntax, _parse(text, "type"))


def syntax_error(location: SourceLocation, message: str, *expected: str) -> TypeSignatureError:
    return TypeSignatureError(message, line=location.line, column=location.column, expected=expected)


def quote_text(text: str) -> str:
    """Return a user's text quoted for a message: on one line and truncated."""
    quoted = repr(text[:MAX_QUOTED_TEXT])
    return quoted if len(text) <= MAX_QUOTED_TEXT else f"{quoted[:-1]}…{quoted[0]}"


def _parse(text: str, start: str) -> object:
    check_gram_size(text)
    room = _EXTRA_LEXEMES.get(start, 0)
    depth = 0
    for count, sign in enumerate(_LEXEME_PATTERN.finditer(text), start=1):
        depth += (sign[0] in _OPEN) - (sign[0] in _CLOSED)
        if depth > MAX_GRAM_DEPTH + room:
            raise syntax_error(
                _location_at(text, sign.start()), f"Brackets are nested deeper than {MAX_GRAM_DEPTH} levels."
            )
        if count > MAX_LEXEMES + room:
            message = f"The text has more than {MAX_LEXEMES:,} words and signs."
            raise syntax_error(_location_at(text, sign.start()), message)
    try:
        return _SyntaxTransformer(text).transform(_grammar().parse(text, start=start))
    except VisitError as error:
        raise error.orig_exc from None
    except UnexpectedInput as error:
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            place, found = _location_at(text, len(text.rstrip())), "the text ends here"
        else:
            place = SourceLocation(error.line, error.column)
            found = f"found {_found_text(error, text)}"
        expected = _expected_phrases(error)
        listed = " or ".join(filter(None, [", ".join(expected[:-1]), *expected[-1:]]))
        raise syntax_error(place, f"Expected {listed}, {found}.", *expected) from None


def check_gram_size(text: object) -> None:
    """Raise TypeSignatureError unless this is encodable text of at most MAX_BYTES."""
    if not isinstance(text, str):
        raise syntax_error(SourceLocation(1, 1), f"gram is text, not {type(text).__name__}.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        place = _location_at(text, error.start)
        raise syntax_error(place, "The text contains a lone surrogate, which cannot be encoded.") from None
    if size > MAX_GRAM_BYTES:
        raise syntax_error(
            SourceLocation(1, 1), f"The text has {size:,} bytes. At most {MAX_GRAM_BYTES:,} are accepted."
        )


@cache
def _grammar() -> Lark:
    return Lark(
        Path(__file__).with_name("gram.lark").read_text(encoding="utf-8"),
        parser="lalr",
        start=["signature", "specification", "type"],
        propagate_positions=True,
    )


@v_args(meta=True)
class _SyntaxTransformer(Transformer[Token, Any]):
    """Transforms lark's tree into syntax nodes; methods are named after grammar rules."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def specification(self, meta: Meta, parts: list[Any]) -> SpecificationSyntax:
        record = parts[2] if isinstance(parts[2], RecordSyntax) else None
        return SpecificationSyntax(parts[0], parts[1], record, parts[-1])

    def signature(self, meta: Meta, parts: list[Any]) -> SignatureSyntax:
        groups = tuple(part for part in parts if isinstance(part, GroupSyntax))
        result = parts[-1] if not isinstance(parts[-1], GroupSyntax) else None
        text = self._text[meta.start_pos : meta.end_pos]
        return SignatureSyntax(groups, result, SourceLocation(meta.end_line, meta.end_column), text)

    def group(self, meta: Meta, items: list[Any]) -> GroupSyntax:
        return GroupSyntax(_start_location(meta), tuple(items))

    def node(self, meta: Meta, parts: list[Any]) -> ItemSyntax:
        name = next((part for part in parts if isinstance(part, NameSyntax)), None)
        record = next((part for part in parts if isinstance(part, RecordSyntax)), None)
        labels = tuple(part for part in parts if not isinstance(part, NameSyntax | RecordSyntax))
        return ItemSyntax(_start_location(meta), name, labels, record)

    def decoration(self, meta: Meta, parts: list[Any]) -> None:
        """Ignore an arrow's own name, labels and record."""

    def keyword(self, meta: Meta, tokens: list[Token]) -> NameSyntax:
        return NameSyntax(_start_location(meta), str(tokens[0]))

    def name(self, meta: Meta, tokens: list[Token]) -> NameSyntax:
        return NameSyntax(_start_location(meta), _unquote(tokens[0]))

    def label(self, meta: Meta, types: list[TypeSyntax]) -> TypeSyntax:
        return types[0]

    def type(self, meta: Meta, types: list[TypeSyntax]) -> TypeSyntax:
        return types[0]

    def maybe(self, meta: Meta, parts: list[Any]) -> MaybeType:
        return MaybeType(_start_location(meta), parts[-1])

    def io(self, meta: Meta, parts: list[Any]) -> IOType:
        return IOType(_start_location(meta), parts[-1])

    def named(self, meta: Meta, tokens: list[Token]) -> NamedType:
        return NamedType(_start_location(meta), _unquote(tokens[0]))

    def sequence(self, meta: Meta, types: list[TypeSyntax]) -> ListType:
        return ListType(_start_location(meta), types[0])

    def shape(self, meta: Meta, fields: list[Any]) -> RecordType:
        return RecordType(_start_location(meta), tuple(fields))

    def field(self, meta: Meta, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    def record(self, meta: Meta, pairs: list[Any]) -> RecordSyntax:
        seen = set()
        for key, _ in pairs:
            if key.text in seen:
                raise syntax_error(key.place, f"The key {quote_text(key.text)} appears twice in one record.")
            seen.add(key.text)
        return RecordSyntax(_start_location(meta), tuple(pairs))

    def pair(self, meta: Meta, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    def text(self, meta: Meta, tokens: list[Token]) -> RecordValue:
        return RecordValue(_start_location(meta), _unquote(tokens[0]))

    symbol = text

    def number(self, meta: Meta, tokens: list[Token]) -> RecordValue:
        token = tokens[0]
        whole = token.lstrip("-").isdecimal()
        # Python's int() refuses very long digit strings with an error of its own.
        number = (int(token) if len(token) <= 17 else MAX_SAFE_INTEGER + 1) if whole else float(token)
        if abs(number) > MAX_SAFE_INTEGER:  # floats too: canonical JSON writes such a float as an integer
            raise syntax_error(
                _token_location(token),
                f"The number {quote_text(token)} is too large. The limit is ±{MAX_SAFE_INTEGER}.",
            )
        return RecordValue(_start_location(meta), number)

    def true(self, meta: Meta, tokens: list[Token]) -> RecordValue:
        return RecordValue(_start_location(meta), content=True)

    def false(self, meta: Meta, tokens: list[Token]) -> RecordValue:
        return RecordValue(_start_location(meta), content=False)

    def null(self, meta: Meta, tokens: list[Token]) -> RecordValue:
        return RecordValue(_start_location(meta), None)

    def array(self, meta: Meta, values: list[RecordValue]) -> RecordValue:
        return RecordValue(_start_location(meta), values)

    def members(self, meta: Meta, records: list[RecordSyntax]) -> RecordValue:
        return RecordValue(_start_location(meta), records[0])

    def type_value(self, meta: Meta, types: list[MaybeType]) -> RecordValue:
        return RecordValue(_start_location(meta), types[0])


def _start_location(meta: Meta) -> SourceLocation:
    return SourceLocation(meta.line, meta.column)


def _token_location(token: Token) -> SourceLocation:
    return SourceLocation(token.line or 1, token.column or 1)


def _location_at(text: str, index: int) -> SourceLocation:
    return SourceLocation(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _unquote(token: Token) -> str:
    if token.type != "STRING":
        return str(token)

    def character(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPES:
            place = SourceLocation(_token_location(token).line, _token_location(token).column + escape.start() + 1)
            raise syntax_error(place, f"Unknown escape {quote_text(escape[0])}.", *(f"\\{each}" for each in _ESCAPES))
        return _ESCAPES[escape[1]]

    return _ESCAPE.sub(character, token[1:-1])


def _found_text(error: UnexpectedInput, text: str) -> str:
    if isinstance(error, UnexpectedToken):
        return quote_text(str(error.token))
    position = cast("int", error.pos_in_stream)
    character = text[position]
    if character in "\"'`":
        return f"a text that does not end on its line: {quote_text(text[position:].partition(chr(10))[0])}"
    return quote_text(character)


def _expected_phrases(error: UnexpectedInput) -> list[str]:
    """Describe the acceptable tokens; if all first tokens of a construct are acceptable, name the construct."""
    names = set(cast("Any", error.interactive_parser).accepts()) - _UNNAMED_TERMINALS
    words = []
    for sign, begins, word in _EXPECTED_PHRASES:
        if sign <= names:
            names -= begins
            words.append(word)
    return words + sorted({_TERMINAL_NAMES.get(name, name) for name in names})
