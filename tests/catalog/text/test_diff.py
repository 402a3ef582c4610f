"""Text diffs: completeness, and bounded cost with hostile texts."""

from difflib import Match, SequenceMatcher
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.text.diff import MAX_DIFF_ROWS, MAX_LINE_PAIRS, diff_texts, side_by_side, truncate_rows


def rebuilt(before: str, after: str) -> tuple[list[str], list[str]]:
    """Put both sides together again, leaving out what the gaps skip."""
    change = diff_texts(before, after)
    said = [(row.kind, "".join(segment.text for segment in row.segments)) for row in change.rows]
    return [t for kind, t in said if kind == "del"], [t for kind, t in said if kind == "add"]


def test_new_file_is_all_additions() -> None:
    change = diff_texts(None, "one\ntwo\n")

    assert [(row.kind, row.new) for row in change.rows] == [("add", 1), ("add", 2)]
    assert (change.added, change.removed) == (2, 0)


def test_far_away_lines_are_counted_not_shown() -> None:
    lines = [f"line {n}" for n in range(100)]

    change = diff_texts("\n".join(lines), "\n".join([*lines[:50], "changed", *lines[51:]]))

    assert [row.skipped for row in change.rows if row.kind == "gap"] == [47, 46]
    assert [row.old for row in change.rows if row.kind == "same"] == [48, 49, 50, 52, 53, 54]


def test_missing_newline_at_the_end_is_a_change() -> None:
    change = diff_texts("a\n", "a")

    assert [(row.kind, row.lacks_newline) for row in change.rows] == [("del", False), ("add", True)]


def test_carriage_returns_and_odd_separators_stay_in_their_line() -> None:
    assert rebuilt("a\n", "a\r\n") == (["a"], ["a\r"])
    assert rebuilt("", "x\u2028y\x0bz") == ([], ["x\u2028y\x0bz"])


def test_equal_texts_have_no_change() -> None:
    change = diff_texts("same\n" * 9, "same\n" * 9)

    assert (change.added, change.removed) == (0, 0)


@given(st.text("ab \n", max_size=60), st.text("ab \n", max_size=60))
def test_counts_agree_with_the_lines_of_both_sides(before, after) -> None:
    change = diff_texts(before, after)
    kept = sum(1 for row in change.rows if row.kind == "same") + sum(row.skipped for row in change.rows)

    assert kept + change.removed == len(before.splitlines())
    assert kept + change.added == len(after.splitlines())


def test_hostile_texts_are_compared() -> None:
    repeated = "\n".join("ab"[n % 2] for n in range(60_000))
    shuffled = "\n".join("ba"[n % 3 % 2] for n in range(60_000))
    wordy = "\n".join("x y " * 45 for _ in range(700))
    few = "\n".join("ab"[n % 2] for n in range(999)), "\n".join("ba"[n % 3 % 2] for n in range(999))
    for old, new in ((repeated, shuffled), few, (wordy, wordy.replace("x y x", "y x"))):
        change = diff_texts(old, new)
        assert 0 < change.added == change.removed


def test_of_too_many_rows_the_first_and_the_last_are_drawn() -> None:
    """Rows between them are counted, in lines and bytes."""
    change = diff_texts("same\n" * 10, "same\n" * 10 + "é\n" * 10_000)
    rows = truncate_rows(change.rows)
    [cut] = [row for row in rows if row.kind == "cut"]

    assert (len(rows), rows[-1].new) == (MAX_DIFF_ROWS + 1, 10_010)
    assert (cut.skipped, cut.size) == (len(change.rows) - MAX_DIFF_ROWS, 3 * (len(change.rows) - MAX_DIFF_ROWS))
    assert (change.added, rows.index(cut)) == (10_000, MAX_DIFF_ROWS // 2)


def test_what_can_be_drawn_is_drawn_whole() -> None:
    change = diff_texts("", "x\n" * MAX_DIFF_ROWS)

    assert truncate_rows(change.rows) == list(change.rows)


@given(st.text("ab \n", max_size=60), st.text("ab \n", max_size=60))
def test_side_by_side_contains_every_line_once(before, after) -> None:
    rows = diff_texts(before, after).rows
    pairs = list(side_by_side(rows))
    assert [old for old, _ in pairs if old and old.kind != "add"] == [row for row in rows if row.kind != "add"]
    assert [new for _, new in pairs if new and new.kind != "del"] == [row for row in rows if row.kind != "del"]
    assert all(old is new or {old and old.kind, new and new.kind} <= {"del", "add", None} for old, new in pairs)


def test_lines_without_end_of_matches_are_compared_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    find = SequenceMatcher.find_longest_match

    def counted(self: Any, alo: int, ahi: int, blo: int, bhi: int) -> Match:
        compared.append(sum(len(self.b2j.get(item, ())) for item in self.a[alo:ahi]))
        return find(self, alo, ahi, blo, bhi)

    monkeypatch.setattr(SequenceMatcher, "find_longest_match", counted)
    old, new = (
        "\n".join("a" if n % 2 else f"{side}{n}" for n in range(size)) for side, size in (("x", 5000), ("y", 190))
    )

    change = diff_texts(old, new)

    assert sum(compared) <= MAX_LINE_PAIRS
    assert (change.removed, change.added) >= (2500, 95)
