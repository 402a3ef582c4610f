"""What is written in a gram text, with the places where it stands; says nothing of what it means."""

from collections.abc import Sequence
from dataclasses import dataclass, field


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
