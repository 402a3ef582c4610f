"""Compares two texts by lines, and by words where a line was changed. Pure; bounded for hostile input."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

CONTEXT = 3
# The comparison is quadratic in an agent's text. Beyond these products of lengths: old, then new, unmarked.
MOST_LINE_PAIRS = 1_000_000
MOST_WORD_PAIRS = 10_000
MOST_WORD_PAIRS_IN_ALL = 200_000
COST_OF_A_LINE = 50
ALIKE = 0.4
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
# Only "\n" ends a line: every other separator must stay visible. This mark cannot occur inside a line.
_UNENDED = "\n"


@dataclass(frozen=True)
class Segment:
    """Part of a line: changed or not."""

    text: str
    changed: bool = False


@dataclass(frozen=True)
class Row:
    """One line of a diff: kind is same, add, del or gap (then `skipped` lines are not shown)."""

    kind: str
    old: int | None = None
    new: int | None = None
    segments: tuple[Segment, ...] = ()
    unended: bool = False
    skipped: int = 0


@dataclass(frozen=True)
class Change:
    """A whole diff with its counts."""

    rows: tuple[Row, ...]
    added: int
    removed: int


def diff_texts(before: str | None, after: str | None) -> Change:
    """Compare two texts; None means there was, or will be, no file."""
    old, new = _lines(before), _lines(after)
    rows = tuple(_rows(old, new))
    return Change(rows, sum(row.kind == "add" for row in rows), sum(row.kind == "del" for row in rows))


def _lines(text: str | None) -> list[str]:
    if not text:
        return []
    if text.endswith("\n"):
        return text[:-1].split("\n")
    lines = text.split("\n")
    lines[-1] += _UNENDED
    return lines


def _rows(old: list[str], new: list[str]) -> Iterator[Row]:
    budget = _Budget(MOST_WORD_PAIRS_IN_ALL)
    for tag, i1, i2, j1, j2 in _opcodes(old, new):
        if tag == "equal":
            yield from _unchanged(old[i1:i2], (i1, j1), at_end=i2 == len(old))
            continue
        removed, added = _mark_words(old[i1:i2], new[j1:j2], budget)
        for number, segments in enumerate(removed, start=i1 + 1):
            yield Row("del", old=number, segments=segments, unended=_is_unended(old[number - 1]))
        for number, segments in enumerate(added, start=j1 + 1):
            yield Row("add", new=number, segments=segments, unended=_is_unended(new[number - 1]))


@dataclass
class _Budget:
    """Comparisons of words that may still be made."""

    left: int

    def takes(self, cost: int) -> bool:
        affordable = cost <= min(MOST_WORD_PAIRS, self.left)
        self.left -= cost if affordable else 0
        return affordable


def _opcodes(old: list[str], new: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Compare what is left between the common head and tail."""
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    i2, j2 = len(old) - tail, len(new) - tail
    if head:
        yield "equal", 0, head, 0, head
    if (i2 - head) * (j2 - head) <= MOST_LINE_PAIRS:
        matcher = SequenceMatcher(None, old[head:i2], new[head:j2])
        for tag, a, b, c, d in matcher.get_opcodes():
            yield tag, a + head, b + head, c + head, d + head
    else:
        yield "replace", head, i2, head, j2
    if tail:
        yield "equal", i2, len(old), j2, len(new)


def _common(old: list[str], new: list[str]) -> int:
    length = 0
    for a, b in zip(old, new, strict=False):
        if a != b:
            break
        length += 1
    return length


def _unchanged(lines: list[str], start: tuple[int, int], *, at_end: bool) -> Iterator[Row]:
    """Show the unchanged lines next to a change, and how many lie between."""
    first = 0 if start == (0, 0) else CONTEXT
    last = len(lines) if at_end else len(lines) - CONTEXT
    between = range(first, last) if last - first > 1 else range(0)
    for index, line in enumerate(lines):
        if index not in between:
            numbers = start[0] + index + 1, start[1] + index + 1
            yield Row("same", *numbers, _whole(line), _is_unended(line))
        elif index == between.start:
            yield Row("gap", skipped=len(between))


_Segments = tuple[Segment, ...]


def _mark_words(old: list[str], new: list[str], budget: _Budget) -> tuple[list[_Segments], list[_Segments]]:
    """Pair the lines of a replaced block in order and mark the words that differ."""
    pairs = [_word_segments(a, b, budget) for a, b in zip(old, new, strict=False)]
    removed = [left for left, _ in pairs] + [_whole(line) for line in old[len(pairs) :]]
    added = [right for _, right in pairs] + [_whole(line) for line in new[len(pairs) :]]
    return removed, added


def _word_segments(old: str, new: str, budget: _Budget) -> tuple[_Segments, _Segments]:
    a, b = _WORDS.findall(_shown(old)), _WORDS.findall(_shown(new))
    if not budget.takes(COST_OF_A_LINE + len(a) * len(b)):
        return _whole(old), _whole(new)
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if matcher.ratio() < ALIKE:
        return _whole(old), _whole(new)
    codes = matcher.get_opcodes()
    left = (Segment("".join(a[i1:i2]), tag != "equal") for tag, i1, i2, _, _ in codes if i2 > i1)
    right = (Segment("".join(b[j1:j2]), tag != "equal") for tag, _, _, j1, j2 in codes if j2 > j1)
    return tuple(left), tuple(right)


def _whole(line: str) -> _Segments:
    return (Segment(_shown(line)),)


def _is_unended(line: str) -> bool:
    return line.endswith(_UNENDED)


def _shown(line: str) -> str:
    return line.removesuffix(_UNENDED)
