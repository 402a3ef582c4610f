"""The change between two texts in hunks that can be accepted one by one. Pure; hunks are counted from 0."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import Any

from catalog.diffs import Code, Comparison, Row, joined

UNCHANGED = frozenset({"equal", "gap"})
NO_HUNK = -1


@dataclass(frozen=True)
class Hunk:
    """One stretch of changed lines with what stands around it; `header` says where, as unified diffs do."""

    index: int
    header: str
    added: int
    removed: int
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        """The lines of the hunk as a unified diff shows them."""
        return "\n".join([self.header, *(line for row in self.rows for line in _unified(row))])


class Division:
    """A change in its hunks. What is shown of a hunk and what accepting it does come of one numbering."""

    def __init__(self, before: str | None, after: str | None) -> None:
        self._compared = Comparison(before, after)
        self._numbers = tuple(_numbered(self._compared.stretches))

    def __len__(self) -> int:
        return max(self._numbers, default=NO_HUNK) + 1

    @cached_property
    def hunks(self) -> tuple[Hunk, ...]:
        """The hunks that lead from one text to the other, from the top."""
        numbered = zip(self._numbers, self._compared.rows, strict=True)
        groups = (
            (number, [rows for _, rows in group]) for number, group in groupby(numbered, key=lambda each: each[0])
        )
        return tuple(_hunk(number, tuple(chain(*parts))) for number, parts in groups if number != NO_HUNK)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The hunks as the rows of a preview: index, counts and the unified text."""
        return [
            {"hunk": each.index, "added": each.added, "removed": each.removed, "text": each.text} for each in self.hunks
        ]

    def apply(self, accepted: Collection[int]) -> str:
        """Return the text before with only the accepted hunks applied; indices that do not exist are left aside."""
        lines: list[str] = []
        for number, (_, i1, i2, j1, j2) in zip(self._numbers, self._compared.stretches, strict=True):
            lines += self._compared.new[j1:j2] if number in accepted else self._compared.old[i1:i2]
        return joined(lines)


def _numbered(stretches: Iterable[Code]) -> Iterator[int]:
    """Yield the hunk of every stretch: gaps part them, and between two gaps is one if anything changes there."""
    number = 0
    for _, group in groupby(stretches, key=lambda code: code[0] == "gap"):
        tags = [code[0] for code in group]
        is_hunk = not UNCHANGED.issuperset(tags)
        yield from [number if is_hunk else NO_HUNK] * len(tags)
        number += is_hunk


def _hunk(index: int, rows: tuple[Row, ...]) -> Hunk:
    added, removed = (sum(row.kind == kind for row in rows) for kind in ("add", "del"))
    same = len(rows) - added - removed
    old, new = (next((getattr(row, side) for row in rows if getattr(row, side)), 0) for side in ("old", "new"))
    return Hunk(index, f"@@ -{old},{same + removed} +{new},{same + added} @@", added, removed, rows)


_SIGNS = {"same": " ", "add": "+", "del": "-"}


def _unified(row: Row) -> Iterator[str]:
    yield _SIGNS[row.kind] + "".join(segment.text for segment in row.segments)
    if row.unended:
        yield "\\ No newline at end of file"
