"""Differences of two texts: by lines, words and hunks (counted from 0); bounded for hostile input."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from functools import cached_property
from itertools import chain, groupby, islice, zip_longest
from typing import Any, NamedTuple

CONTEXT_LINES = 3
# The comparison is cubic in an agent's text. Beyond these costs, old and new follow unmarked.
MAX_LINE_PAIRS = 1_000_000
MAX_WORD_PAIRS = 10_000
MAX_TOTAL_WORD_PAIRS = 200_000
LINE_COST = 50
MAX_DIFF_ROWS = 600
"""Maximum rows rendered of a diff at once; the others are loaded on request."""
MIN_SIMILARITY = 0.4
_WORD_PATTERN = re.compile(r"\w+|\s+|[^\w\s]")
Opcode = tuple[str, int, int, int, int]
"""An opcode: equal, gap, replace, delete or insert; start and end in the old lines, start and end in the new ones.

A gap is an equal stretch too far from every change to be displayed.
"""
# Only "\n" ends a line: every other separator must stay visible. This mark can't occur inside a line.
_NO_NEWLINE_MARK = "\n"


# Named tuples, for there are thousands of them: they are made in a quarter of the time of frozen dataclasses.
class Segment(NamedTuple):
    text: str
    changed: bool = False


class DiffRow(NamedTuple):
    """One line of a diff: kind is same, add, del, gap (`skipped` unchanged lines) or cut.

    A cut replaces rows that are not rendered at once, from the row `start` on. They contain `skipped` lines, changed or
    not, of `size` bytes.
    """

    kind: str
    old: int | None = None
    new: int | None = None
    segments: tuple[Segment, ...] = ()
    lacks_newline: bool = False
    skipped: int = 0
    size: int = 0
    start: int = 0


@dataclass(frozen=True)
class TextDiff:
    rows: tuple[DiffRow, ...]
    added: int
    removed: int


class TextComparison:
    """Two texts and the opcodes that turn one into the other; None in place of a text means that there is no file."""

    def __init__(self, before: str | None, after: str | None) -> None:
        self.old, self.new = split_lines(before), split_lines(after)
        self.stretches = tuple(_grouped_opcodes(self.old, self.new))

    @cached_property
    def rows(self) -> tuple[tuple[DiffRow, ...], ...]:
        budget = _Budget(MAX_TOTAL_WORD_PAIRS)
        return tuple(tuple(self._rows(stretch, budget)) for stretch in self.stretches)

    def _rows(self, stretch: Opcode, budget: "_Budget") -> Iterator[DiffRow]:
        tag, i1, i2, j1, j2 = stretch
        if tag == "gap":
            yield DiffRow("gap", skipped=i2 - i1)
        elif tag == "equal":
            for number, line in enumerate(self.old[i1:i2], start=1):
                yield DiffRow("same", i1 + number, j1 + number, _unmarked_segment(line), _lacks_newline(line))
        else:
            # The lines of a replaced block are paired in order; the words that differ are marked.
            old, new = self.old[i1:i2], self.new[j1:j2]
            pairs = [_word_segments(*lines, budget) for lines in zip(old, new, strict=False)]
            for number, line in enumerate(old):
                segments = pairs[number][0] if number < len(pairs) else _unmarked_segment(line)
                yield DiffRow("del", old=i1 + number + 1, segments=segments, lacks_newline=_lacks_newline(line))
            for number, line in enumerate(new):
                segments = pairs[number][1] if number < len(pairs) else _unmarked_segment(line)
                yield DiffRow("add", new=j1 + number + 1, segments=segments, lacks_newline=_lacks_newline(line))


def diff_texts(before: str | None, after: str | None) -> TextDiff:
    """Compare two texts; None means that there was no file before, or will be none after."""
    rows = tuple(chain.from_iterable(TextComparison(before, after).rows))
    kinds = [row.kind for row in rows]
    return TextDiff(rows, kinds.count("add"), kinds.count("del"))


def truncate_rows(rows: Sequence[DiffRow]) -> list[DiffRow]:
    """Return the rows to render; if there are too many, only the first and last, with a cut between them."""
    if len(rows) <= MAX_DIFF_ROWS:
        return list(rows)
    half = MAX_DIFF_ROWS // 2
    return [*rows[:half], _cut_row(rows, half), *rows[-half:]]


def rows_from(rows: Sequence[DiffRow], start: int) -> list[DiffRow]:
    """Return the rows that a cut replaces, from `start` on; if there are too many, a further cut replaces the rest."""
    end = start + MAX_DIFF_ROWS
    if end >= len(rows) - MAX_DIFF_ROWS // 2:
        return list(rows[start : len(rows) - MAX_DIFF_ROWS // 2])
    return [*rows[start:end], _cut_row(rows, end)]


def unshown_lines(rows: Sequence[DiffRow]) -> int:
    half = MAX_DIFF_ROWS // 2
    return sum(row.skipped or 1 for row in rows[half:-half]) if len(rows) > MAX_DIFF_ROWS else 0


def _cut_row(rows: Sequence[DiffRow], start: int) -> DiffRow:
    left_out = rows[start : len(rows) - MAX_DIFF_ROWS // 2]
    size = sum(1 + sum(len(each.text.encode(errors="replace")) for each in row.segments) for row in left_out)
    return DiffRow("cut", skipped=sum(row.skipped or 1 for row in left_out), size=size, start=start)


def side_by_side(rows: Iterable[DiffRow]) -> Iterator[tuple[DiffRow | None, DiffRow | None]]:
    """Yield the old and the new line of each row; unchanged lines, gaps and cuts appear on both sides."""
    for is_same, block in groupby(rows, lambda row: row.kind not in ("add", "del")):
        lines = list(block)
        if is_same:
            yield from ((row, row) for row in lines)
        else:
            yield from zip_longest(*([row for row in lines if row.kind == kind] for kind in ("del", "add")))


def split_lines(text: str | None) -> list[str]:
    """Return the lines of a text; a last line that has no newline gets a mark."""
    if not text:
        return []
    if text.endswith("\n"):
        return text[:-1].split("\n")
    lines = text.split("\n")
    lines[-1] += _NO_NEWLINE_MARK
    return lines


def join_lines(lines: list[str]) -> str:
    return "".join(line.removesuffix(_NO_NEWLINE_MARK) if _lacks_newline(line) else f"{line}\n" for line in lines)


@dataclass
class _Budget:
    """Remaining number of word comparisons."""

    left: int

    @property
    def is_used_up(self) -> bool:
        return self.left < LINE_COST

    def takes(self, cost: int) -> bool:
        affordable = cost <= min(MAX_WORD_PAIRS, self.left)
        self.left -= cost if affordable else 0
        return affordable


def _grouped_opcodes(old: list[str], new: list[str]) -> Iterator[Opcode]:
    """Yield the opcodes from one list of lines to the other; a gap replaces unchanged lines far from any change."""
    ends = (0, 0), (len(old), len(new))
    for code in _opcodes(old, new):
        tag, i1, i2, j1, j2 = code
        first = 0 if (i1, j1) == ends[0] else CONTEXT_LINES
        last = i2 - i1 - (0 if (i2, j2) == ends[1] else CONTEXT_LINES)
        if tag != "equal" or last - first <= 1:
            yield code
            continue
        parts = ("equal", 0, first), ("gap", first, last), ("equal", last, i2 - i1)
        yield from ((part, i1 + a, i1 + b, j1 + a, j1 + b) for part, a, b in parts if b > a)


def _opcodes(old: list[str], new: list[str]) -> Iterator[Opcode]:
    """Yield the opcodes from one list of lines to the other; equal lines at both ends are matched first, cheaply."""
    head = _common_length(old, new)
    tail = _common_length(old[head:][::-1], new[head:][::-1])
    i2, j2 = len(old) - tail, len(new) - tail
    if head:
        yield "equal", 0, head, 0, head
    if head in (i2, j2):  # only one side has lines left
        if i2 != j2:
            yield "insert" if head == i2 else "delete", head, i2, head, j2
    elif (i2 - head) * (j2 - head) <= MAX_LINE_PAIRS:
        matcher = _BoundedMatcher(old[head:i2], new[head:j2], MAX_LINE_PAIRS)
        for tag, a, b, c, d in matcher.get_opcodes():
            yield tag, a + head, b + head, c + head, d + head
    else:
        yield "replace", head, i2, head, j2
    if tail:
        yield "equal", i2, len(old), j2, len(new)


class _BoundedMatcher(SequenceMatcher[str]):
    """A SequenceMatcher that finds nothing more once it has compared `left` pairs of items."""

    def __init__(self, old: list[str], new: list[str], left: int, *, autojunk: bool = True) -> None:
        self._old, self._left = old, left
        super().__init__(None, old, new, autojunk)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        places: Mapping[str, Sequence[int]] = self.b2j  # type: ignore[attr-defined]
        if self._left >= 0:
            self._left -= sum(1 + len(places.get(item, ())) for item in self._old[alo:ahi])
        if self._left < 0:
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def _common_length(old: list[str], new: list[str]) -> int:
    length = 0
    for a, b in zip(old, new, strict=False):
        if a != b:
            break
        length += 1
    return length


_Segments = tuple[Segment, ...]


def _word_segments(old: str, new: str, budget: _Budget) -> tuple[_Segments, _Segments]:
    if budget.is_used_up:
        return _unmarked_segment(old), _unmarked_segment(new)
    a, b = (
        [match[0] for match in islice(_WORD_PATTERN.finditer(_visible_line(line)), MAX_WORD_PAIRS + 1)]
        for line in (old, new)
    )
    if not budget.takes(LINE_COST + len(a) * len(b)):
        return _unmarked_segment(old), _unmarked_segment(new)
    matcher = _BoundedMatcher(a, b, LINE_COST + MAX_WORD_PAIRS, autojunk=False)
    if matcher.ratio() < MIN_SIMILARITY:
        return _unmarked_segment(old), _unmarked_segment(new)
    codes = matcher.get_opcodes()
    left = (Segment("".join(a[i1:i2]), tag != "equal") for tag, i1, i2, _, _ in codes if i2 > i1)
    right = (Segment("".join(b[j1:j2]), tag != "equal") for tag, _, _, j1, j2 in codes if j2 > j1)
    return tuple(left), tuple(right)


def _unmarked_segment(line: str) -> _Segments:
    return (Segment(_visible_line(line)),)


def _lacks_newline(line: str) -> bool:
    return line.endswith(_NO_NEWLINE_MARK)


def _visible_line(line: str) -> str:
    return line.removesuffix(_NO_NEWLINE_MARK)


UNCHANGED = frozenset({"equal", "gap"})
NO_HUNK = -1


@dataclass(frozen=True)
class Hunk:
    """Neighbouring changed lines with unchanged lines around them; `header` gives the position as in unified diffs."""

    index: int
    header: str
    added: int
    removed: int
    rows: tuple[DiffRow, ...]

    @property
    def text(self) -> str:
        lines = [self.header]
        for row in self.rows:
            lines.append(_LINE_PREFIXES[row.kind] + "".join(segment.text for segment in row.segments))
            if row.lacks_newline:
                lines.append("\\ No newline at end of file")
        return "\n".join(lines)


class HunkedDiff:
    """A change as hunks that can be accepted one by one. `hunks` and `apply` number them in the same way."""

    def __init__(self, before: str | None, after: str | None) -> None:
        self._compared = TextComparison(before, after)
        self._numbers = tuple(_number_hunks(self._compared.stretches))

    def __len__(self) -> int:
        return max(self._numbers, default=NO_HUNK) + 1

    @cached_property
    def hunks(self) -> tuple[Hunk, ...]:
        numbered = zip(self._numbers, self._compared.rows, strict=True)
        groups = (
            (number, [rows for _, rows in group]) for number, group in groupby(numbered, key=lambda each: each[0])
        )
        hunks = []
        for index, parts in groups:
            if index == NO_HUNK:
                continue
            rows = tuple(chain(*parts))
            added, removed = (sum(row.kind == kind for row in rows) for kind in ("add", "del"))
            same = len(rows) - added - removed
            old, new = (next((getattr(row, side) for row in rows if getattr(row, side)), 0) for side in ("old", "new"))
            header = f"@@ -{old},{same + removed} +{new},{same + added} @@"
            hunks.append(Hunk(index, header, added, removed, rows))
        return tuple(hunks)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [
            {"hunk": each.index, "added": each.added, "removed": each.removed, "text": each.text} for each in self.hunks
        ]

    def apply(self, accepted: Collection[int]) -> str:
        """Return the old text with only the accepted hunks applied; unknown indices are ignored."""
        lines: list[str] = []
        for number, (_, i1, i2, j1, j2) in zip(self._numbers, self._compared.stretches, strict=True):
            lines += self._compared.new[j1:j2] if number in accepted else self._compared.old[i1:i2]
        return join_lines(lines)


def _number_hunks(stretches: Iterable[Opcode]) -> Iterator[int]:
    """Yield for every opcode the number of the hunk to which it belongs; gaps separate hunks."""
    number = 0
    for _, group in groupby(stretches, key=lambda code: code[0] == "gap"):
        tags = [code[0] for code in group]
        is_hunk = not UNCHANGED.issuperset(tags)
        yield from [number if is_hunk else NO_HUNK] * len(tags)
        number += is_hunk


_LINE_PREFIXES = {"same": " ", "add": "+", "del": "-"}
