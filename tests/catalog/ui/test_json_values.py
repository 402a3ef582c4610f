"""Values as people read them: paths, pages of members, tables, diffs and searches, all of limited size."""

from typing import Any

import pytest

from catalog.ui import json_values
from catalog.ui.json_values import (
    Place,
    ShownMember,
    diff_rows_of,
    kind_of,
    members_of,
    place_at,
    search,
    table_of,
)

UNIFIED = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -4,3 +4,2 @@ def f():\n same\n-old\n+new\n-gone\n\\ No newline\n"
NAMES = ["plain", "a.b", "~tilde", "", "k" * 1000, "\u202ehidden", "${x}", "é", "~#0", "~e"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", "text"),
        ("NaN", "text"),
        (UNIFIED, "diff"),
        ("--- a\n+++ b\nno hunk", "text"),
        ({"before": None, "after": "x"}, "diff"),
        ({"before": None, "after": None}, "object"),
        ({"before": 1, "after": "x"}, "object"),
        (float("nan"), "number"),
        (True, "boolean"),
        (None, "null"),
        ([{"a": 1}, {"b": []}], "table"),
        ([{"a": 1}, {}], "list"),
        ([], "list"),
    ],
)
def test_kind_is_that_of_the_value(value: Any, kind: str) -> None:
    assert kind_of(value) == kind
    assert json_values.kind_in_words(value)


def test_every_member_has_a_path_that_leads_to_it() -> None:
    value = [{name: {name: number} for number, name in enumerate(NAMES)}]
    found = []

    def collect(member: ShownMember) -> None:
        if member.is_container:
            for each in member.members:
                collect(each)
        else:
            place = place_at(value, member.path)
            assert place is not None
            found.append((place.steps, place.value, len(member.path) < 300))

    collect(members_of(Place(value)))
    assert found == [((0, name, name), number, True) for number, name in enumerate(NAMES)]


@pytest.mark.parametrize(
    "path", ["1", "x", "-1", "0.y", "0.a.0", "0.~#9", "0.~#x", "\u0660", "0." + "9" * 12, "0..", "0.~#" + "9" * 5000]
)
def test_a_path_to_nothing_is_none(path: str) -> None:
    assert place_at([{"a": 1}], path) is None


def test_a_page_of_members_is_limited() -> None:
    value = {"many": list(range(1000)), "few": {"a": 1}, "text": "x" * 5000}
    root = members_of(Place(value))
    many, few, text = root.members
    assert (many.members, many.rest_from, few.rest_from, len(few.members)) == ([], 0, None, 1)
    assert (len(text.text), text.is_cut) == (json_values.MEMBER_TEXT, True)
    page = members_of(Place(value["many"], "many", ("many",)), 900)
    assert ([each.path for each in page.members][:1], len(page.members), page.rest_from) == (["many.900"], 100, None)
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    depth, member = 0, members_of(Place(deep))
    while member.members:
        member, depth = member.members[0], depth + 1
    assert (depth, member.rest_from) == (json_values.TREE_DEPTH, 0)
    wide = members_of(Place([[[1] * 20] * 20] * 100))
    assert count_of(wide) <= json_values.TREE_NODES + 100


def count_of(member: ShownMember) -> int:
    """Return how many members are shown inside one."""
    return len(member.members) + sum(map(count_of, member.members))


def test_a_table_is_sorted_by_a_column_with_empty_cells_last() -> None:
    rows: list[dict[str, Any]] = [{"a": 2}, {"b": [1]}, {"a": "x"}, {"a": 10, "b": None}, {"a": float("nan")}]
    for sort, order in ((1, [0, 3, 2, 4, 1]), (-1, [4, 2, 3, 0, 1]), (0, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])):
        table = table_of(Place(rows, "at", ("at",)), sort=sort)
        assert table is not None
        assert [row.number for row in table.rows] == order, sort
    assert table is not None
    assert (table.rows[1].path, table.rows[1].cells[1].path, table.rows[1].cells[0].text) == ("at.1", "at.1.b", "")
    page = table_of(Place([{f"c{number}": 1 for number in range(50)}] * 250), start=200)
    assert page is not None
    assert (len(page.rows), page.next_start, len(page.columns), page.more_columns) == (50, None, 30, 20)


def test_a_unified_diff_keeps_its_line_numbers() -> None:
    rows = [(row.kind, row.old, row.new, row.segments[0].text) for row in diff_rows_of(UNIFIED)]
    assert rows[4:] == [
        ("same", 4, 4, "same"),
        ("del", 5, None, "old"),
        ("add", None, 5, "new"),
        ("del", 6, None, "gone"),
        ("same", None, None, "\\ No newline"),
    ]
    assert {row.kind for row in diff_rows_of({"before": "a\n", "after": "b\n"})} == {"add", "del"}


def test_search_finds_names_and_values_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"Straße": {"a.b": "x NEEDLE y"}, "needle": [1, None], "n": [{"needle": True}] * 150, "ß": 12.5}
    first = search(Place(value), "needle")
    assert [(hit.path, hit.before, hit.found) for hit in first.hits[:2]] == [
        ("Straße.a~1b", "x ", "NEEDLE"),
        ("needle", json_values.extent_in_words([1, None]), ""),
    ]
    second = search(Place(value), "needle", first.next_start or 0)
    assert (len(first.hits), first.next_start, len(second.hits), second.next_start) == (100, 100, 52, None)
    assert [hit.path for hit in search(Place(value), "STRASSE").hits] == ["Straße"]
    assert [hit.path for hit in search(Place(value), "12.5").hits] == ["ß"]
    assert [hit.found for hit in search(Place("one Line"), "line").hits] == ["Line"]
    monkeypatch.setattr(json_values, "MAX_SEARCHED", 3)
    assert search(Place(list(range(9))), "8").is_partial
