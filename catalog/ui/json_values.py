"""JSON values as people read them: kinds in words, paths, pages of members, tables, diffs and search.

Values may be hostile: a page holds a limited number of members, rows and characters, and each has the path of the rest.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from catalog.text import formats
from catalog.text.diff import DiffRow, Segment, diff_texts

PAGE, TEXT_PAGE = 100, 20_000
"""Members, rows or hits, and characters of a text, on one page."""
TREE_NODES, OPENED_MEMBERS, TREE_DEPTH = 250, 20, 8
"""Members in the tree of one page, members of one value that is unfolded at once, and levels."""
MEMBER_TEXT, NAME_SHOWN = 200, 120
LONGEST_STEP = 100
MAX_COLUMNS = 30
MAX_SEARCHED = 250_000
"""Values that one search looks at."""
MAX_QUERY = 200

Container = dict[str, Any] | list[Any]
_NOT_IN_REFERENCES = frozenset("${}")


def path_step(name: str | int, position: int) -> str:
    """Return a member as one step of a path in a URL: its position if a reference could not hold its name."""
    if isinstance(name, int):
        return str(name)
    if len(name) > LONGEST_STEP or not name.isprintable() or not _NOT_IN_REFERENCES.isdisjoint(name):
        return f"~#{position}"
    return name.replace("~", "~0").replace(".", "~1") or "~e"


def path_of_names(names: Iterable[str]) -> str:
    """Return the path in a URL that leads along the steps of a reference."""
    return ".".join(path_step(name, 0) for name in names)


@dataclass(frozen=True, slots=True)
class Place:
    """A value inside another one. `steps` are names and indexes, `path` the same for URLs."""

    value: Any
    path: str = ""
    steps: tuple[str | int, ...] = ()

    @property
    def trail(self) -> Iterator[tuple[str, str]]:
        """Yield the label and the path of each value on the way."""
        path = self.path.split(".")
        for count, name in enumerate(self.steps, 1):
            yield str(name)[:NAME_SHOWN], ".".join(path[:count])


def place_at(value: Any, path: str) -> Place | None:
    """Return the value at a path of a URL; None if there is none."""
    steps: list[str | int] = []
    for text in path.split(".") if path else ():
        if isinstance(value, list):
            if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < len(value)):
                return None
            steps.append(int(text))
            value = value[int(text)]
            continue
        if not isinstance(value, dict):
            return None
        name: str | None = "" if text == "~e" else text.replace("~1", ".").replace("~0", "~")
        if text.startswith("~#"):
            at = text[2:]
            is_number = at.isascii() and at.isdigit() and len(at) < 10
            name = next(islice(value, int(at), None), None) if is_number else None
        if name is None or name not in value:
            return None
        steps.append(name)
        value = value[name]
    return Place(value, path, tuple(steps))


def kind_of(value: Any) -> str:
    """Return the kind of a value: diff, text, number, boolean, null, table, list or object."""
    if isinstance(value, str):
        return "diff" if is_unified_diff(value) else "text"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "diff" if is_before_and_after(value) else "object"
    return "table" if value and all(type(each) is dict and each for each in value) else "list"


def kind_in_words(value: Any) -> str:
    """Return the kind of a value with its extent, such as `table of 12 rows, 4 columns`; reads all rows of a table."""
    kind = kind_of(value)
    if kind == "diff":
        return _("diff")
    if kind == "table":
        rows, columns = len(value), len(_columns(value))
        return _("table of %(rows)s, %(columns)s") % {
            "rows": ngettext("%(count)s row", "%(count)s rows", rows) % {"count": formats.format_number(rows)},
            "columns": ngettext("%(count)s column", "%(count)s columns", columns)
            % {"count": formats.format_number(columns)},
        }
    return extent_in_words(value)


def extent_in_words(value: Any) -> str:
    """Return the kind of a value with its number of members, lines or characters, without a look at its members."""
    if not isinstance(value, str | dict | list):
        return {"boolean": _("yes or no"), "number": _("number")}.get(kind_of(value), _("empty (null)"))
    count = len(value)
    shown = {"count": formats.format_number(count)}
    if isinstance(value, dict):
        return ngettext("object with %(count)s member", "object with %(count)s members", count) % shown
    if isinstance(value, list):
        return ngettext("list of %(count)s", "list of %(count)s", count) % shown if value else _("empty list")
    lines = value.count("\n") + (not value.endswith("\n"))
    if lines > 1:
        return ngettext("text of %(count)s line", "text of %(count)s lines", lines) % {
            "count": formats.format_number(lines)
        }
    return ngettext("text of %(count)s character", "text of %(count)s characters", count) % shown


@dataclass(slots=True)
class ShownMember:
    """A member of a value: its text, or its own members; `rest_from` is the first of them that is not on the page.

    `text` is empty for objects and lists; `is_cut` if it is the beginning of a longer one.
    """

    name: str
    path: str
    kind: str
    extent: str
    text: str = ""
    is_cut: bool = False
    members: list["ShownMember"] = field(default_factory=list)
    rest_from: int | None = None

    @property
    def is_container(self) -> bool:
        return self.kind in ("list", "object")

    @property
    def anchor(self) -> str:
        """The id of the element in which the members that are not on the page will be shown."""
        return f"m-{hashlib.sha256(self.path.encode()).hexdigest()[:16]}-{self.rest_from or 0}"


def members_of(place: Place, start: int = 0, room: int = TREE_NODES) -> ShownMember:
    """Return a value with a page of its members from `start` on, and the small ones inside them while there is room."""
    root = _member(str(place.steps[-1])[:NAME_SHOWN] if place.steps else "", place.path, place.value)
    waiting: list[tuple[ShownMember, Any]] = [(root, place.value)]
    for _depth in range(TREE_DEPTH):
        later: list[tuple[ShownMember, Any]] = []
        for member, value in waiting:
            most = PAGE if member is root else OPENED_MEMBERS
            begin = start if member is root else 0
            if not member.is_container or (member is not root and (len(value) > most or len(value) > room)):
                continue
            member.rest_from = None
            for position, (name, inner) in enumerate(islice(_items(value), begin, begin + most), begin):
                path = path_step(name, position)
                path = f"{member.path}.{path}" if member.path else path
                child = _member(str(name)[:NAME_SHOWN], path, inner)
                member.members.append(child)
                if child.is_container and inner:
                    later.append((child, inner))
            room -= len(member.members)
        waiting = later
    end = start + len(root.members)
    root.rest_from = end if root.is_container and end < len(place.value) else None
    return root


def _member(name: str, path: str, value: Any) -> ShownMember:
    if isinstance(value, dict | list):
        kind = "object" if isinstance(value, dict) else "list"
        return ShownMember(name, path, kind, extent_in_words(value), rest_from=0 if value else None)
    text = value[: MEMBER_TEXT + 1] if isinstance(value, str) else json.dumps(value)
    is_cut = len(text) > MEMBER_TEXT
    extent = extent_in_words(value) if is_cut else ""
    return ShownMember(name, path, kind_of_scalar(value), extent, text[:MEMBER_TEXT], is_cut)


def kind_of_scalar(value: Any) -> str:
    return "text" if isinstance(value, str) else kind_of(value)


def _items(value: Container) -> Iterable[tuple[str | int, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def value_line(value: Any, limit: int = MEMBER_TEXT) -> tuple[str, bool]:
    """Return the beginning of a value on one line, and whether it was cut. A long value is not written in full."""
    if isinstance(value, str):
        return value[:limit], len(value) > limit
    if isinstance(value, dict | list) and len(value) > limit:
        return extent_in_words(value), True
    text = "".join(islice(_ENCODER.iterencode(value), limit))
    return text[:limit], len(text) > limit


_ENCODER = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell of a table; `path` leads to the whole value if the text is only its beginning."""

    text: str = ""
    path: str = ""
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    number: int
    path: str
    cells: Sequence[TableCell]


@dataclass(frozen=True, slots=True)
class ValueTable:
    """A page of rows. `sort` is the number of a column counted from 1, negative for descending order, 0 for none."""

    columns: Sequence[str]
    rows: Sequence[TableRow]
    start: int
    count: int
    sort: int = 0
    more_columns: int = 0

    @property
    def descending(self) -> int:
        return -self.sort

    @property
    def first(self) -> int:
        return self.start + 1

    @property
    def last(self) -> int:
        return self.start + len(self.rows)

    @property
    def next_start(self) -> int | None:
        return self.last if self.last < self.count else None


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def table_of(place: Place, start: int = 0, sort: int = 0) -> ValueTable | None:
    """Return a page of a list of objects as a table; None for any other value."""
    if kind_of(place.value) != "table":
        return None
    rows, columns = place.value, _columns(place.value)
    sort = sort if 0 < abs(sort) <= min(len(columns), MAX_COLUMNS) else 0
    order: Sequence[int] = range(len(rows))
    if sort:
        name = columns[abs(sort) - 1]
        order = sorted(order, key=lambda number: _sort_key(rows[number].get(name)), reverse=sort < 0)
        # Rows without a value come last in both orders.
        order = sorted(order, key=lambda number: rows[number].get(name) is None)
    shown = columns[:MAX_COLUMNS]
    page = []
    for number in order[start : start + PAGE]:
        path = f"{place.path}.{number}" if place.path else str(number)
        positions = {name: position for position, name in enumerate(rows[number])}
        cells = [
            _cell(rows[number][name], f"{path}.{path_step(name, positions[name])}")
            if name in positions
            else TableCell()
            for name in shown
        ]
        page.append(TableRow(number, path, cells))
    return ValueTable(shown, page, start, len(rows), sort, len(columns) - len(shown))


def _cell(value: Any, path: str) -> TableCell:
    text, is_cut = value_line(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return TableCell(
        f"{text}…" if is_cut else text, path if is_cut or isinstance(value, dict | list) else "", is_number
    )


def _sort_key(value: Any) -> tuple[int, Any]:
    if isinstance(value, int | float):
        return (0, value) if value == value else (3, 0)
    if isinstance(value, str):
        return (1, value[:MEMBER_TEXT].casefold())
    return (2, len(value)) if isinstance(value, dict | list) else (4, 0)


_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@", re.MULTILINE)
DIFF_READ = 1_000_000
"""Characters of a text that is read as a diff."""


def is_unified_diff(text: str) -> bool:
    """Return whether a text is a unified diff: it begins as one and has a hunk near its beginning."""
    head = text[:4000]
    return head.startswith(("--- ", "diff ", "Index: ", "@@ -")) and _HUNK.search(head) is not None


def is_before_and_after(value: Mapping[str, Any]) -> bool:
    """Return whether an object holds a text before and after a change, or None for no text."""
    if "before" not in value or "after" not in value:
        return False
    texts = (value["before"], value["after"])
    return all(isinstance(each, str | None) for each in texts) and any(texts)


def diff_rows_of(value: Any) -> Sequence[DiffRow]:
    """Return the rows of a value that is a diff, as a unified one or by its texts before and after."""
    if isinstance(value, Mapping):
        before, after = (each if each is None else each[:DIFF_READ] for each in (value["before"], value["after"]))
        return diff_texts(before, after).rows
    return list(_unified_rows(value[:DIFF_READ]))


def _unified_rows(text: str) -> Iterator[DiffRow]:
    old = new = None
    for line in text.removesuffix("\n").split("\n"):
        begin = _HUNK.match(line)
        if begin is not None:
            old, new = int(begin[1]), int(begin[2])
            yield DiffRow("same", segments=(Segment(line),))
        elif old is None or new is None or line.startswith(("diff ", "Index: ")):
            old = new = None
            yield DiffRow("same", segments=(Segment(line),))
        elif line.startswith("+"):
            yield DiffRow("add", None, new, (Segment(line[1:]),))
            new += 1
        elif line.startswith("-"):
            yield DiffRow("del", old, None, (Segment(line[1:]),))
            old += 1
        elif line.startswith("\\"):
            yield DiffRow("same", segments=(Segment(line),))
        else:
            yield DiffRow("same", old, new, (Segment(line[1:]),))
            old, new = old + 1, new + 1


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a search found its text: in the member's name or in its value, whose text around it is given."""

    name: str
    path: str
    before: str = ""
    found: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Hits:
    """A page of hits; `is_partial` if the value has more members than one search looks at."""

    hits: Sequence[Hit]
    next_start: int | None
    is_partial: bool


AROUND = 60


def search(place: Place, query: str, start: int = 0) -> Hits:
    """Find a text in names and values, without regard to case, in the order of the document."""
    wanted, found, looked = query.casefold(), list[Hit](), 0
    skipped = 0
    for path, name, value in _walk(place):
        looked += 1
        if looked > MAX_SEARCHED:
            return Hits(found, None, is_partial=True)
        hit = _hit(name, path, value, wanted)
        if hit is None:
            continue
        if skipped < start:
            skipped += 1
        elif len(found) == PAGE:
            return Hits(found, start + PAGE, is_partial=False)
        else:
            found.append(hit)
    return Hits(found, None, is_partial=False)


def _walk(place: Place) -> Iterator[tuple[list[str], str | int, Any]]:
    """Yield every value inside one with its path, which is the same list each time, and its name."""
    path = place.path.split(".") if place.path else []
    if not isinstance(place.value, dict | list):
        yield path, "", place.value
        return
    stack = [enumerate(_items(place.value))]
    path.append("")
    while stack:
        for position, (name, value) in stack[-1]:
            path[-1] = path_step(name, position)
            yield path, name, value
            if isinstance(value, dict | list) and value:
                stack.append(enumerate(_items(value)))
                path.append("")
                break
        else:
            stack.pop()
            path.pop()


def _hit(name: str | int, path: Sequence[str], value: Any, wanted: str) -> Hit | None:
    label = str(name)[:NAME_SHOWN]
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict | list):
        text = ""
    else:
        text = json.dumps(value)
    folded = text.casefold()
    at = folded.find(wanted)
    if at < 0:
        if isinstance(name, str) and wanted in name.casefold():
            is_container = isinstance(value, dict | list)
            return Hit(label, ".".join(path), extent_in_words(value) if is_container else text[: 2 * AROUND])
        return None
    if len(folded) != len(text):  # folding changed the length, and places with it
        exact = re.search(re.escape(wanted), text, re.IGNORECASE)
        at = exact.start() if exact else 0
    end = at + len(wanted)
    return Hit(label, ".".join(path), text[max(0, at - AROUND) : at], text[at:end], text[end : end + AROUND])
