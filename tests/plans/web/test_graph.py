"""Tests of the layout of plan graphs."""

import re
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans.web.graph import COLUMN, Graph, lay_out

PROTOTYPE = {1: [], 2: [], 3: [], 4: [1, 2], 5: [3, 4], 6: [5], 7: [6]}


@st.composite
def acyclic(draw: st.DrawFn) -> dict[int, list[int]]:
    """Return a random acyclic graph."""
    size = draw(st.integers(1, 60))
    return {step: draw(st.lists(st.integers(1, step), max_size=4)) for step in range(1, size + 1)}


def drawn(graph: dict[int, list[int]], done: frozenset[int] = frozenset()) -> Graph:
    """Return a layout, which must exist."""
    drawing = lay_out(graph, done)
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


@given(acyclic(), st.sets(st.integers(1, 60)))
def test_boxes_do_not_overlap(graph: dict[int, list[int]], done: set[int]) -> None:
    drawing = drawn(graph, frozenset(done))
    for one, other in combinations(drawing.nodes, 2):
        assert one.x != other.x or abs(one.y - other.y) > one.height
    assert all(node.x + node.width < drawing.width and node.y + node.height < drawing.height for node in drawing.nodes)
    assert sorted(step for node in drawing.nodes for step in node.members) == sorted(graph)


@given(acyclic(), st.randoms())
def test_layout_is_deterministic(graph: dict[int, list[int]], random: Random) -> None:
    shuffled = list(graph.items())
    random.shuffle(shuffled)
    assert lay_out(dict(shuffled)) == lay_out(graph)


def test_finished_steps_are_merged_above_forty() -> None:
    graph = {1: [], **{step: [1] for step in range(2, 42)}, 42: list(range(2, 42))}
    drawing = drawn(graph, frozenset(range(1, 14)))
    together = next(node for node in drawing.nodes if node.step_id == 2)
    assert together.members == tuple(range(2, 14))
    assert len(drawing.nodes) == 42 - 11
    assert sum(edge.target == 2 for edge in drawing.edges) == 1


def test_nothing_is_merged_up_to_forty() -> None:
    graph: dict[int, list[int]] = {step: [] for step in range(1, 41)}
    assert len(drawn(graph, frozenset(graph)).nodes) == 40


@pytest.mark.parametrize(
    "graph",
    [
        {},
        {1: [2], 2: [1]},
        {step: [] for step in range(201)},
        {step: list(range(step)) for step in range(50)},
    ],
)
def test_invalid_graph_has_no_layout(graph: dict[int, list[int]]) -> None:
    assert lay_out(graph) is None


def test_unknown_steps_are_ignored() -> None:
    assert drawn({1: [9], 2: [1, 1, 2]}) == drawn({1: [], 2: [1]})


def test_largest_graph_has_layout() -> None:
    drawing = drawn({step: list(range(max(1, step - 4), step)) for step in range(1, 201)})
    assert all(re.fullmatch(r"M[\d. ]+(?: [CL][\d. ]+)+", edge.d) for edge in drawing.edges)


def test_graph_of_long_edges_has_layout() -> None:
    drawing = drawn({step: [1, step - 1] for step in range(2, 201)} | {1: []})
    assert len(drawing.edges) == 2 * 199 - 1
