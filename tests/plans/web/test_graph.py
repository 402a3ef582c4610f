"""Tests of the layout of plan graphs."""

import re
from collections.abc import Iterable
from itertools import combinations, pairwise
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.ui.labels import STATUS_BADGES
from plans.web.graph import (
    COLUMN,
    MAX_WAYPOINTS,
    SWEEPS,
    UNFOLDED,
    BoxStep,
    Fold,
    Graph,
    Node,
    box_of,
    drawing_from,
    fold_named,
    label_lines,
    lay_out,
)

PROTOTYPE = {1: [], 2: [], 3: [], 4: [1, 2], 5: [3, 4], 6: [5], 7: [6]}


@st.composite
def acyclic(draw: st.DrawFn) -> dict[int, list[int]]:
    """Return a random acyclic graph."""
    size = draw(st.integers(1, 60))
    return {step: draw(st.lists(st.integers(1, step), max_size=4)) for step in range(1, size + 1)}


def drawn(graph: dict[int, list[int]], fold: Fold = UNFOLDED, tools: dict[int, str] | None = None) -> Graph:
    """Return a layout, which must exist."""
    drawing = lay_out(graph, fold, tools)
    assert drawing is not None
    return drawing


def test_layout_of_prototype_plan() -> None:
    drawing = drawn(PROTOTYPE)
    assert (drawing.width, drawing.height) == (854, 244)
    assert [(node.x, node.y) for node in drawing.nodes] == [
        (1, 8),
        (1, 90),
        (1, 172),
        (177, 49),
        (353, 90),
        (529, 90),
        (705, 90),
    ]
    paths = {(edge.source, edge.target): edge.d for edge in drawing.edges}
    assert paths[1, 4] == "M149 40 C163 40 161 81 175 81"
    assert paths[3, 5] == "M149 204 C163 204 161 163 175 163 L325 163 C339 163 337 122 351 122"


def test_layout_of_one_step() -> None:
    drawing = drawn({5: []})
    assert (drawing.width, drawing.height, len(drawing.nodes), drawing.edges) == (150, 80, 1, ())


def test_order_avoids_crossings() -> None:
    rows = {node.step_id: node.y for node in drawn({1: [], 2: [], 3: [2], 4: [1]}).nodes}
    assert (rows[1] < rows[2]) == (rows[4] < rows[3])


@given(acyclic())
def test_edges_run_from_left_to_right(graph: dict[int, list[int]]) -> None:
    drawing = drawn(graph)
    columns = {node.step_id: node.x for node in drawing.nodes}
    assert {(edge.source, edge.target) for edge in drawing.edges} == {
        (needed, step) for step, needs in graph.items() for needed in needs if needed != step
    }
    assert all(columns[edge.source] + COLUMN <= columns[edge.target] for edge in drawing.edges)


@given(
    acyclic(),
    st.builds(Fold, st.sampled_from(["", "tool", "branch"]), st.lists(st.integers(0, 61), max_size=5).map(tuple)),
)
def test_boxes_do_not_overlap(graph: dict[int, list[int]], fold: Fold) -> None:
    drawing = drawn(graph, fold, {step: "abc"[step % 3] for step in graph})
    for one, other in combinations(drawing.nodes, 2):
        assert one.x != other.x or abs(one.y - other.y) > one.height
    assert all(node.x + node.width < drawing.width and node.y + node.height < drawing.height for node in drawing.nodes)
    assert sorted(step for node in drawing.nodes for step in node.members) == sorted(graph)


@given(acyclic(), st.randoms())
def test_layout_is_deterministic(graph: dict[int, list[int]], random: Random) -> None:
    shuffled = list(graph.items())
    random.shuffle(shuffled)
    assert lay_out(dict(shuffled)) == lay_out(graph)


LINE = {step: [step - 1] if step > 1 else [] for step in range(1, 501)}
FAN: dict[int, list[int]] = {1: [], **{step: [1] for step in range(2, 500)}, 500: list(range(2, 500))}
READY: dict[int, list[int]] = {step: [] for step in range(1, 501)}
ROWS = {step: [step - 20] if step > 20 else [] for step in range(1, 501)}


@pytest.mark.parametrize(
    ("graph", "boxes", "by_tool", "by_branch"),
    [(LINE, 500, 1, 1), (FAN, 500, 3, 500), (READY, 500, 2, 500), (ROWS, 500, 1, 20)],
    ids=["one line", "one column", "all ready", "rows"],
)
def test_five_hundred_steps_are_drawn_and_folded(
    graph: dict[int, list[int]], boxes: int, by_tool: int, by_branch: int
) -> None:
    tools = dict.fromkeys(graph, "a")
    if graph is READY:
        tools = {step: "ab"[step % 2] for step in graph}
    elif graph is FAN:
        tools |= {1: "first", 500: "last"}
    assert len(drawn(graph).nodes) == boxes
    assert len(drawn(graph, Fold("tool"), tools).nodes) == by_tool
    assert len(drawn(graph, Fold("branch"), tools).nodes) == by_branch


@pytest.mark.parametrize("graph", [LINE, FAN, READY, ROWS], ids=["one line", "one column", "all ready", "rows"])
def test_five_hundred_boxes_are_within_bounds_and_apart(graph: dict[int, list[int]]) -> None:
    """However long their labels: a box has room for two lines, and cuts off what is left."""
    drawing = drawn(graph)
    labels = ("x" * 1000, "שלום לכולם " * 90, "👩‍👩‍👧 " * 250, "日本語" * 333)
    for node in drawing.nodes:
        box = box_of(node, (BoxStep(node.step_id, labels[node.step_id % 4], "t" * 999, STATUS_BADGES["pending"], ""),))
        assert len(box.title) <= 2 and all(len(line) <= 120 for line in (*box.title, box.tool)) and len(box.says) < 200
        assert node.x >= 0 and node.y >= 0
        assert node.x + node.width < drawing.width and node.y + node.height < drawing.height
    rows: dict[int, list[int]] = {}
    for node in sorted(drawing.nodes, key=lambda node: node.y):
        rows.setdefault(node.x, []).append(node.y)
    assert all(below - above > 64 for column in rows.values() for above, below in pairwise(column))
    assert sum(map(len, rows.values())) == 500


def test_the_work_of_a_layout_grows_with_boxes_and_arrows(monkeypatch) -> None:
    """Not with their square: a mean is taken for each place of a column in each sweep, and no more."""
    means: list[int] = []

    def counted(heights: Iterable[float]) -> float:
        known = list(heights)
        means.append(len(known))
        return fmean(known)

    monkeypatch.setattr("plans.web.graph.fmean", counted)
    for number, graph in enumerate((LINE, FAN, READY, ROWS, {step: [1, step - 1] for step in range(2, 500)} | {1: []})):
        means.clear()
        drawing = drawn({step + 1000 * number: [each + 1000 * number for each in graph[step]] for step in graph})
        assert sum(means) <= 2 * SWEEPS * (MAX_WAYPOINTS + 2 * (len(drawing.nodes) + len(drawing.edges)))


def test_steps_without_arrows_stand_in_a_square() -> None:
    drawing = drawn(READY)
    assert 0.5 < drawing.width / drawing.height < 2


def test_chain_of_one_tool_ends_where_the_tool_changes() -> None:
    drawing = drawn({1: [], 2: [1], 3: [2], 4: [3]}, Fold("tool"), {1: "a", 2: "a", 3: "b", 4: "a"})
    assert [node.members for node in drawing.nodes] == [(1, 2), (3,), (4,)]
    assert [(edge.source, edge.target) for edge in drawing.edges] == [(1, 3), (3, 4)]


def test_branch_ends_at_a_fork_and_at_a_join() -> None:
    drawing = drawn({1: [], 2: [1], 3: [2], 4: [2], 5: [3], 6: [4, 5]}, Fold("branch"))
    assert [node.members for node in drawing.nodes] == [(1, 2), (3, 5), (4,), (6,)]


def test_a_group_opens_in_place_while_the_others_stay_folded() -> None:
    rows = {step: [step - 2] if step > 2 else [] for step in range(1, 9)}
    fold = Fold("branch").opening(1)
    drawing = drawn(rows, fold)
    assert [node.members for node in drawing.nodes] == [(1,), (2, 4, 6, 8), (3,), (5,), (7,)]
    assert [(edge.source, edge.target) for edge in drawing.edges] == [(1, 3), (3, 5), (5, 7)]
    boxes = [
        box_of(node, tuple(BoxStep(step, "", "send", STATUS_BADGES["pending"], "") for step in node.members))
        for node in drawing.nodes
    ]
    [group] = drawing_from(drawing, boxes, fold).opened
    assert (group.says, group.first, group.folded) == ("4 steps of send", 1, Fold("branch"))


@pytest.mark.parametrize(
    ("name", "fold"),
    [
        ("tool-3-17", Fold("tool", (3, 17))),
        ("tool-3-3-x--9999999999-٣", Fold("tool", (3,))),
        ("branch-" + "-".join(map(str, range(9))), Fold("branch", (0, 1, 2, 3, 4))),
        ("-3", UNFOLDED),
        ("none-3", UNFOLDED),
    ],
)
def test_a_fold_is_read_from_its_name(name: str, fold: Fold) -> None:
    assert fold_named(name) == fold == fold_named(str(fold))


def test_a_sixth_group_folds_the_first() -> None:
    assert Fold("tool", (1, 2, 3, 4, 5)).opening(6).opened == (2, 3, 4, 5, 6)


def test_folded_box_shows_the_most_urgent_status() -> None:
    steps = [
        BoxStep(number, "", "send", STATUS_BADGES[status], "")
        for number, status in enumerate(("completed", "completed", "waiting", "pending"), 1)
    ]
    box = box_of(Node(1, 0, 0, 148, 64, (1, 2, 3, 4)), tuple(steps))
    assert (box.look, box.title[0], box.tool) == ("human", "4 steps", "send")
    assert box.says == "Open 4 steps of send: 2 done, 1 waiting for approval, 1 not started (1 to 4)"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        ("Send report", ("Send report",)),
        ("Send the report to everyone now", ("Send the report", "to everyone now")),
        ("x" * 1000, ("x" * 16, "x" * 15 + "…")),
        ("שלום עולם זה שלב", ("שלום עולם זה שלב",)),
        ("日本語の長いラベルがここに", ("日本語の長いラベ", "ルがここに")),
        ("e\u0301" * 20, ("e\u0301" * 16, "e\u0301" * 4)),
        ("👍🏽" * 9, ("👍🏽" * 8, "👍🏽")),
    ],
)
def test_label_takes_two_lines_of_equal_room(text: str, lines: tuple[str, ...]) -> None:
    assert label_lines(text) == lines


@pytest.mark.parametrize(
    "graph",
    [
        {},
        {1: [2], 2: [1]},
        {step: [] for step in range(2001)},
        {step: list(range(step)) for step in range(101)},
    ],
)
def test_invalid_graph_has_no_layout(graph: dict[int, list[int]]) -> None:
    assert lay_out(graph) is None


def test_unknown_steps_are_ignored() -> None:
    assert drawn({1: [9], 2: [1, 1, 2]}) == drawn({1: [], 2: [1]})


def test_largest_graph_has_layout() -> None:
    drawing = drawn({step: list(range(max(1, step - 4), step)) for step in range(1, 501)})
    assert all(re.fullmatch(r"M[\d. ]+(?: [CL][\d. ]+)+", edge.d) for edge in drawing.edges)


def test_graph_of_long_edges_has_layout() -> None:
    drawing = drawn({step: [1, step - 1] for step in range(2, 501)} | {1: []})
    assert len(drawing.edges) == 2 * 499 - 1
