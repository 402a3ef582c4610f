"""Graph of a plan: its boxes and arrows, in layers by longest path from left to right, in SVG pixels."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from statistics import fmean
from typing import Protocol

from django.utils.translation import gettext, ngettext

from catalog.text.deceptive_text import split_hidden
from catalog.ui.labels import STATUS_BADGES, Badge

WIDTH, HEIGHT = 148, 64
COLUMN, ROW = 176, 82
LEFT, TOP = 1, 8
BEND = 14
MAX_NODES = 200
MAX_EDGES = 1000
MAX_WAYPOINTS = 4000
COLLAPSE_OVER = 40
SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Node:
    """A box of one step, or of several finished parallel steps in `members`."""

    step_id: int
    x: float
    y: float
    width: int
    height: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A curve from the right side of one box to the left side of another; `d` is the SVG path."""

    source: int
    target: int
    d: str


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    width: int
    height: int


def lay_out(graph: Mapping[int, Sequence[int]], done: Set[int] = frozenset()) -> Graph | None:
    """Return the layout of a mapping from step to needed steps; None if it is too large, empty or cyclic.

    Above 40 steps, finished steps in the same layer are merged into one box.
    """
    needs = {step: sorted({each for each in graph[step] if each in graph and each != step}) for step in graph}
    if not needs or len(needs) > MAX_NODES or sum(map(len, needs.values())) > MAX_EDGES:
        return None
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:
        return None
    layer_of: dict[int, int] = {}  # the length of the longest path to each step
    for step in order:
        layer_of[step] = max((layer_of[each] + 1 for each in needs[step]), default=0)
    members: dict[int, tuple[int, ...]] = {step: (step,) for step in needs}
    if len(needs) > COLLAPSE_OVER:
        members = _collapsed(layer_of, done)
        box_of_step = {step: box for box, steps in members.items() for step in steps}
        needs = {
            box: sorted({box_of_step[needed] for step in steps for needed in needs[step]})
            for box, steps in members.items()
        }
    return _layered_edges(needs, layer_of, members)


def _collapsed(layer_of: Mapping[int, int], done: Set[int]) -> dict[int, tuple[int, ...]]:
    """Return the steps of each box by its first step; steps in one layer never depend on each other."""
    finished: dict[int, list[int]] = {}
    for step in sorted(done & layer_of.keys()):
        finished.setdefault(layer_of[step], []).append(step)
    boxes = {steps[0]: tuple(steps) for steps in finished.values()}
    return boxes | {step: (step,) for step in layer_of if step not in done}


def _layered_edges(
    needs: Mapping[int, Sequence[int]], layer_of: Mapping[int, int], members: Mapping[int, tuple[int, ...]]
) -> Graph:
    routes = _routes(needs, layer_of)
    columns: list[list[Spot]] = [[] for _ in range(1 + max(layer_of[step] for step in needs))]
    for step in sorted(needs):
        columns[layer_of[step]].append((step, -1))
    for waypoint in (spot for route in routes for spot in route[1:-1]):
        columns[waypoint[1]].append(waypoint)
    _sort_columns(columns, routes)
    tallest = max(map(len, columns))
    places = {
        spot: (LEFT + COLUMN * layer, TOP + ROW * (row + (tallest - len(column)) / 2))
        for layer, column in enumerate(columns)
        for row, spot in enumerate(column)
    }
    nodes = (Node(step, *places[step, -1], WIDTH, HEIGHT, members[step]) for step in sorted(needs))
    edges = (Edge(route[0][0], route[-1][0], _curve([places[spot] for spot in route])) for route in routes)
    width = 2 * LEFT + COLUMN * (len(columns) - 1) + WIDTH
    return Graph(tuple(nodes), tuple(edges), width, 2 * TOP + ROW * (tallest - 1) + HEIGHT)


Spot = tuple[int, int]
"""A position in a column: (step, -1) for a box, (number, layer) for a waypoint of a long edge."""


def _routes(needs: Mapping[int, Sequence[int]], layer_of: Mapping[int, int]) -> list[list[Spot]]:
    pairs = [(source, target) for target in sorted(needs) for source in needs[target]]
    through = sum(layer_of[target] - layer_of[source] - 1 for source, target in pairs) <= MAX_WAYPOINTS
    routes = []
    for number, (source, target) in enumerate(pairs):
        between = range(layer_of[source] + 1, layer_of[target]) if through else ()
        routes.append([(source, -1), *((number, layer) for layer in between), (target, -1)])
    return routes


def _sort_columns(columns: list[list[Spot]], routes: Sequence[Sequence[Spot]]) -> None:
    """Sort the columns by the mean height of neighbours, sweeping from both sides in turn."""
    before: dict[Spot, list[Spot]] = {}
    after: dict[Spot, list[Spot]] = {}
    for route in routes:
        for left, right in pairwise(route):
            before.setdefault(right, []).append(left)
            after.setdefault(left, []).append(right)
    for _ in range(SWEEPS):
        _sweep(columns, after, reversed(range(len(columns))))
        _sweep(columns, before, range(len(columns)))


def _sweep(columns: list[list[Spot]], neighbours: Mapping[Spot, Sequence[Spot]], layers: Iterator[int] | range) -> None:
    heights = {spot: row - (len(column) - 1) / 2 for column in columns for row, spot in enumerate(column)}
    for layer in layers:
        column = columns[layer]
        column.sort(key=lambda spot: fmean(heights[each] for each in neighbours.get(spot, (spot,))))
        heights |= {spot: row - (len(column) - 1) / 2 for row, spot in enumerate(column)}


def _curve(places: Sequence[tuple[float, float]]) -> str:
    steps = [f"M{places[0][0] + WIDTH:g} {places[0][1] + HEIGHT / 2:g}"]
    for (left, upper), (right, lower) in pairwise(places):
        start, end = left + WIDTH, right - 2
        bend = max(BEND, (end - start) / 2)
        y_start, y_end = upper + HEIGHT / 2, lower + HEIGHT / 2
        steps.append(f"C{start + bend:g} {y_start:g} {end - bend:g} {y_end:g} {end:g} {y_end:g}")
        if (right, lower) != places[-1]:
            steps.append(f"L{right + WIDTH:g} {y_end:g}")
    return " ".join(steps)


TITLE_ROOM, TITLE_LINES = 16, 2
TOOL_ROOM = 20
LABEL_ROOM = 120
BOX_CLASSES = {"ok": "ok", "human": "human", "danger": "bad", "run": "run", "warn": "run"}


@dataclass(frozen=True, slots=True)
class Box:
    """One box: position, style, text and the step it links to; `title` has at most TITLE_LINES lines."""

    node: Node
    word: Badge
    look: str
    title: Sequence[str]
    tool: str
    says: str

    @property
    def step_id(self) -> int:
        return self.node.step_id


@dataclass(frozen=True, slots=True)
class Arrow:
    d: str
    look: str


@dataclass(frozen=True, slots=True)
class Drawing:
    width: int
    height: int
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    says: str


def drawing_from(graph: Graph, boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Drawing:
    count = sum(len(node.members) for node in graph.nodes)
    label = ngettext("Plan graph, %(count)s step", "Plan graph, %(count)s steps", count) % {"count": count}
    return Drawing(graph.width, graph.height, boxes, arrows, label)


def box_of(node: Node, badge: Badge, step: "DescribedStep") -> Box:
    if len(node.members) > 1:
        title = gettext("%(count)s done") % {"count": len(node.members)}
        says = gettext("Steps %(numbers)s, done") % {"numbers": ", ".join(map(str, node.members))}
        return Box(node, STATUS_BADGES["completed"], "ok", [title], "", says)
    look = "skip" if badge.icon == "skip" else BOX_CLASSES.get(badge.hue, "idle")
    says = gettext("Step %(number)s, %(description)s, %(status)s") % {
        "number": step.step_id,
        "description": fit_text(step.description, LABEL_ROOM),
        "status": badge.label.lower(),
    }
    title = fit_text(step.description, LABEL_ROOM)
    lines = textwrap.wrap(title, TITLE_ROOM, max_lines=TITLE_LINES, placeholder="…")
    return Box(node, badge, look, lines, fit_text(step.tool or "", TOOL_ROOM), says)


class DescribedStep(Protocol):
    """A stored or submitted step."""

    @property
    def step_id(self) -> int: ...

    @property
    def description(self) -> str: ...

    @property
    def tool(self) -> str | None: ...


def fit_text(text: str, room: int) -> str:
    shown = "".join(piece.text for piece in split_hidden(text[: room + 1]))
    return shown if len(shown) <= room else f"{shown[: room - 1].rstrip()}…"
