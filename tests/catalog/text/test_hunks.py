"""Hunks: every subset of a change can be applied, all of them give the text after, none the text before."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.text.diff import HunkedDiff, join_lines, split_lines

LINES = st.lists(st.sampled_from(["a", "b", "", "end"]), max_size=40)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str]:
    """Return a text of distinct lines and the same with some of them changed."""
    lines = [f"line {number}" for number in range(draw(st.integers(1, 60)))]
    changed = {draw(st.integers(0, len(lines) - 1)) for _ in range(draw(st.integers(1, 5)))}
    new = [f"{line}\nmore" if index in changed else line for index, line in enumerate(lines)]
    return "\n".join(lines) + draw(st.sampled_from(["", "\n"])), "\n".join(new) + draw(st.sampled_from(["", "\n"]))


@st.composite
def apart(draw: st.DrawFn) -> tuple[str, str]:
    """Return two texts that differ before, between and after stretches about as long as those that part hunks."""
    some, same = st.lists(st.sampled_from("xyz"), max_size=2), st.integers(0, 9)
    old, new = list(draw(some)), list(draw(some))
    for number in range(draw(st.integers(1, 4))):
        kept = [f"line {number}.{each}" for each in range(draw(same))]
        old += [*kept, *draw(some)]
        new += [*kept, *draw(some)]
    return "\n".join(old) + draw(st.sampled_from(["", "\n"])), "\n".join(new) + draw(st.sampled_from(["", "\n"]))


def patched(before: str, after: str, accepted: Collection[int]) -> str:
    """Apply accepted hunks as they are shown, the way `patch` reads them."""
    lines, done, old = [], 0, split_lines(before)
    for hunk in HunkedDiff(before, after).hunks:
        numbers = [row.old for row in hunk.rows if row.old is not None] or [1]
        kept = ("same", "add" if hunk.index in accepted else "del")
        shown = [row for row in hunk.rows if row.kind in kept]
        lines += old[done : numbers[0] - 1]
        lines += ["".join(part.text for part in row.segments) + "\n" * row.lacks_newline for row in shown]
        done = numbers[-1]
    return join_lines([*lines, *old[done:]])


@given(st.one_of(apart(), st.tuples(TEXTS, TEXTS)), st.data())
def test_accepting_hunks_does_what_they_show_and_nothing_else(texts, data):
    division = HunkedDiff(*texts)
    numbers = range(len(division))
    accepted = data.draw(st.sets(st.sampled_from(numbers)) if numbers else st.just(set()))
    assert [hunk.index for hunk in division.hunks] == list(numbers)
    before, after = texts
    assert division.apply(accepted) == patched(before, after, accepted)


@pytest.mark.parametrize("between", range(4, 9))
def test_lines_appended_after_unchanged_ones_are_applied_only_with_their_own_hunk(between):
    same = "".join(f"line {number}\n" for number in range(between))
    division = HunkedDiff(f"X\n{same}", f"Y\n{same}rm -rf /\n")
    first, *others = division.hunks
    assert len(others) == (between > 7)
    assert ("rm -rf /" in division.apply({0})) == ("rm -rf /" in first.text) == (not others)


@given(TEXTS, TEXTS)
def test_all_hunks_give_the_text_after_and_none_the_text_before(before, after):
    division = HunkedDiff(before, after)
    assert division.apply(range(len(division))) == after
    assert division.apply(()) == before


@given(edits(), st.data())
def test_a_part_of_a_change_is_as_many_hunks_as_were_accepted(texts, data):
    before, after = texts
    total = len(HunkedDiff(before, after))
    accepted = data.draw(st.sets(st.integers(0, total - 1)) if total else st.just(set()))
    part = HunkedDiff(before, after).apply(accepted)
    assert len(HunkedDiff(before, part)) == len(accepted)
    assert HunkedDiff(part, after).apply(range(10)) == after


def test_a_new_file_is_one_hunk():
    (hunk,) = HunkedDiff(None, "a\nb\n").hunks
    assert (hunk.index, hunk.header, hunk.added, hunk.removed) == (0, "@@ -0,0 +1,2 @@", 2, 0)


def test_a_hunk_is_told_as_a_unified_diff():
    before = "".join(f"{number}\n" for number in range(1, 21))
    after = before.replace("2\n", "two\n", 1).replace("20\n", "20")
    first, second = HunkedDiff(before, after).rows
    assert first["text"] == "@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5"
    assert second == {
        "hunk": 1,
        "added": 1,
        "removed": 1,
        "text": "@@ -17,4 +17,4 @@\n 17\n 18\n 19\n-20\n+20\n\\ No newline at end of file",
    }
