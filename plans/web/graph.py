"""Graph of a plan: its boxes and arrows, in layers by longest path from left to right, in SVG pixels."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import ceil, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from django.utils.translation import gettext, gettext_lazy, ngettext

from catalog.text.deceptive_text import split_hidden
from catalog.ui.labels import Badge
from catalog.ui.requests import parse_number

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

WIDTH, HEIGHT = 148, 64
COLUMN, ROW = 176, 82
LEFT, TOP = 1, 8
BEND = 14
MAX_NODES = 2000
MAX_EDGES = 5000
MAX_WAYPOINTS = 4000
MAX_LOOSE_ROWS = 8
"""Steps without any arrow stand in one column up to this number, and in a square of columns above it."""
SWEEPS = 4
LAYOUTS_KEPT = 32

STEP_DIGITS = 9
MAX_OPENED = 5
"""Groups that one page shows unfolded, because each set of them is rendered on its own; the first opened are folded."""

FoldKind = Literal["", "tool", "branch"]
FOLDS: tuple[tuple[FoldKind, "StrOrPromise"], ...] = (
    ("", gettext_lazy("Unfolded")),
    ("tool", gettext_lazy("By tool")),
    ("branch", gettext_lazy("By branch")),
)
"""Foldings of a graph with their labels: parallel and successive steps of one tool, branches without a fork."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Folding of a graph. Groups that have a step of `opened` stay unfolded.

    As a text it is its name in addresses: tool, or tool-3-17 with the groups of the steps 3 and 17 open.
    """

    by: FoldKind = ""
    opened: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.by)

    def __str__(self) -> str:
        return "-".join([self.by, *map(str, self.opened)])

    def opening(self, step: int) -> "Fold":
        return replace(self, opened=(*self.opened, step)[-MAX_OPENED:])

    def closing(self, steps: Iterable[int]) -> "Fold":
        return replace(self, opened=tuple(step for step in self.opened if step not in set(steps)))


UNFOLDED = Fold()


def fold_named(name: str) -> Fold:
    """Return the folding of this name, or none; steps that are no numbers are ignored."""
    by, *opened = name.split("-")
    numbers = (parse_number(each, most_digits=STEP_DIGITS) for each in opened[:MAX_OPENED])
    kept = tuple(dict.fromkeys(number for number in numbers if number is not None))
    return next((Fold(kind, kept) for kind, _ in FOLDS if kind and kind == by), UNFOLDED)


@dataclass(frozen=True, slots=True)
class Node:
    """A box of one step, or of the folded steps in `members`; `step_id` is the one that starts first."""

    step_id: int
    x: int
    y: int
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
    """Boxes and arrows. `opened` has the steps of each group that stays unfolded."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    width: int
    height: int
    opened: tuple[tuple[int, ...], ...] = ()


Needs = Mapping[int, Sequence[int]]


def lay_out(graph: Needs, fold: Fold = UNFOLDED, tools: Mapping[int, str] | None = None) -> Graph | None:
    """Return the layout of a mapping from step to needed steps; None if it is too large, empty or cyclic.

    `tools` maps steps to their tools, for the fold by tool. Layouts are kept, because a plan's arrows rarely change.
    """
    needs = tuple(
        (step, tuple(sorted({each for each in needed if each in graph and each != step})))
        for step, needed in sorted(graph.items())
    )
    if not needs or len(needs) > MAX_NODES or sum(len(needed) for _, needed in needs) > MAX_EDGES:
        return None
    by_tool = tuple((tools or {}).get(step, "") for step, _ in needs) if fold.by == "tool" else None
    return _layout(needs, fold, by_tool)


@lru_cache(maxsize=LAYOUTS_KEPT)
def _layout(
    steps: tuple[tuple[int, tuple[int, ...]], ...], fold: Fold, by_tool: tuple[str, ...] | None
) -> Graph | None:
    needs: Needs = dict(steps)
    try:
        layer_of = _layers(needs)
    except CycleError:
        return None
    groups = {step: step for step in needs}
    if by_tool is not None:
        tools = dict(zip(needs, by_tool, strict=True))
        first: dict[tuple[int, str], int] = {}
        # Steps of one layer never need each other, so that together they cannot close a circle.
        layers = {step: first.setdefault((layer_of[step], tools[step]), step) for step in needs}
        chains = _chains(_grouped(needs, layers), tools)
        groups = {step: chains[layers[step]] for step in needs}
    elif fold:
        groups = _chains(needs)
    members = _members(groups)
    named = [groups[step] for step in fold.opened if step in groups]
    opened = {group: members[group] for group in named if members[group][1:]}
    if fold:
        groups = {step: step if group in opened else group for step, group in groups.items()}
        needs = _grouped(needs, groups)
        layer_of = _layers(needs)
    return replace(_layered_edges(needs, layer_of, _members(groups)), opened=tuple(opened.values()))


def _members(groups: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    members: dict[int, list[int]] = {}
    for step, group in groups.items():
        members.setdefault(group, []).append(step)
    return {group: tuple(steps) for group, steps in members.items()}


def _layers(needs: Needs) -> dict[int, int]:
    """Return the length of the longest path to each step. Raises CycleError."""
    layer_of: dict[int, int] = {}
    for step in TopologicalSorter(needs).static_order():
        layer_of[step] = max((layer_of[each] + 1 for each in needs[step]), default=0)
    return layer_of


def _grouped(needs: Needs, group_of: Mapping[int, int]) -> Needs:
    """Return the graph of groups."""
    grouped: dict[int, set[int]] = {}
    for step, needed in needs.items():
        grouped.setdefault(group_of[step], set()).update(group_of[each] for each in needed)
    return {group: sorted(needed - {group}) for group, needed in grouped.items()}


def _chains(needs: Needs, tools: Mapping[int, str] | None = None) -> dict[int, int]:
    """Return the first step of each step's chain: steps that only need the one before, which only they need.

    With `tools`, a chain ends where the tool changes.
    """
    followers = Counter(each for needed in needs.values() for each in needed)
    first: dict[int, int] = {}
    for step in TopologicalSorter(needs).static_order():
        needed = needs[step]
        goes_on = len(needed) == 1 and followers[needed[0]] == 1
        if goes_on and (tools is None or tools[needed[0]] == tools[step]):
            first[step] = first[needed[0]]
        else:
            first[step] = step
    return first


def _layered_edges(needs: Needs, layer_of: Mapping[int, int], members: Mapping[int, tuple[int, ...]]) -> Graph:
    joined = {step for step, needed in needs.items() if needed} | {each for needed in needs.values() for each in needed}
    loose = [step for step in sorted(needs) if step not in joined]
    if len(loose) <= MAX_LOOSE_ROWS:
        loose = []
    routes = _routes(needs, layer_of)
    columns: list[list[Spot]] = [[] for _ in range(1 + max(layer_of[step] for step in needs))]
    for step in sorted(needs.keys() - set(loose)):
        columns[layer_of[step]].append((step, -1))
    for waypoint in (spot for route in routes for spot in route[1:-1]):
        columns[waypoint[1]].append(waypoint)
    _sort_columns(columns, routes)
    tallest = max(map(len, columns))
    places = {
        spot: (LEFT + COLUMN * layer, TOP + ROW * row + ROW * (tallest - len(column)) // 2)
        for layer, column in enumerate(columns)
        for row, spot in enumerate(column)
    }
    across = max(len(columns), ceil(sqrt(len(loose) * ROW / COLUMN))) if loose else len(columns)
    for place, step in enumerate(loose):
        places[step, -1] = (LEFT + COLUMN * (place % across), TOP + ROW * (tallest + place // across))
    rows = tallest + ceil(len(loose) / across)
    nodes = (Node(step, *places[step, -1], WIDTH, HEIGHT, members[step]) for step in sorted(needs))
    edges = (Edge(route[0][0], route[-1][0], _curve([places[spot] for spot in route])) for route in routes)
    width = 2 * LEFT + COLUMN * (across - 1) + WIDTH
    return Graph(tuple(nodes), tuple(edges), width, 2 * TOP + ROW * (rows - 1) + HEIGHT)


Spot = tuple[int, int]
"""A position in a column: (step, -1) for a box, (number, layer) for a waypoint of a long edge."""


def _routes(needs: Needs, layer_of: Mapping[int, int]) -> list[list[Spot]]:
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


def _curve(places: Sequence[tuple[int, int]]) -> str:
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
STRIP_WIDTH = 128
BOX_CLASSES = {"ok": "ok", "human": "human", "danger": "bad", "run": "run", "warn": "run"}
URGENCY = ("human", "danger", "warn", "run", "idle", "ok")
"""Hues of statuses; folded steps have the first that one of them has."""
LABELS_KEPT = 8192


@dataclass(frozen=True, slots=True)
class Stroke:
    """A part of the strip at the foot of a box: a wait, a failed attempt or work, in pixels."""

    x: int
    width: int
    look: str


@dataclass(frozen=True, slots=True)
class Box:
    """One box with the arrows that lead to it: position, style, text and the step it links to.

    `needs` has the boxes from which the arrows come, `arrows` their SVG path.
    `title` has at most TITLE_LINES lines; `strip` shows waits and retries, if there were any.
    """

    node: Node
    word: Badge
    look: str
    title: tuple[str, ...]
    tool: str
    says: str
    strip: tuple[Stroke, ...] = ()
    needs: tuple[int, ...] = ()
    arrows: str = ""
    arrow_look: str = ""

    @property
    def step_id(self) -> int:
        return self.node.step_id


@dataclass(frozen=True, slots=True)
class OpenedGroup:
    """A group that stays unfolded, in words and by its first step; with the fold `folded` it is one box again."""

    says: str
    first: int
    folded: Fold


@dataclass(frozen=True, slots=True)
class Drawing:
    width: int
    height: int
    boxes: Sequence[Box]
    says: str
    fold: Fold = UNFOLDED
    opened: Sequence[OpenedGroup] = ()


def drawing_from(graph: Graph, boxes: Sequence[Box], fold: Fold = UNFOLDED) -> Drawing:
    count = sum(len(node.members) for node in graph.nodes)
    label = ngettext("Plan graph, %(count)s step", "Plan graph, %(count)s steps", count) % {"count": count}
    tools = {box.step_id: box.tool for box in boxes}
    opened = [
        OpenedGroup(_steps_of_tools(len(steps), {tools[step] for step in steps}), steps[0], fold.closing(steps))
        for steps in graph.opened
    ]
    return Drawing(graph.width, graph.height, boxes, label, fold, opened)


def _steps_of_tools(count: int, tools: Set[str]) -> str:
    """Return what folded steps are: 12 steps of read_file, 5 steps of 3 tools."""
    steps = ngettext("%(count)s step", "%(count)s steps", count) % {"count": count}
    named = _named_tools(tools)
    return gettext("%(steps)s of %(tools)s") % {"steps": steps, "tools": named} if named else steps


def _named_tools(tools: Set[str]) -> str:
    many = ngettext("%(count)s tool", "%(count)s tools", len(tools)) % {"count": len(tools)}
    return fit_text(next(iter(tools)), TOOL_ROOM) if len(tools) == 1 else many


def arrows_to(graph: Graph) -> Mapping[int, tuple[Edge, ...]]:
    """Return the arrows that lead to each box."""
    found: dict[int, list[Edge]] = {node.step_id: [] for node in graph.nodes}
    for edge in graph.edges:
        found[edge.target].append(edge)
    return {number: tuple(edges) for number, edges in found.items()}


@dataclass(frozen=True, slots=True)
class BoxStep:
    """A step as its box shows it: `tool` is the tool or agent, `status` its status in words."""

    step_id: int
    description: str
    tool: str
    badge: Badge
    status: str
    strip: tuple[Stroke, ...] = ()


@lru_cache(maxsize=LABELS_KEPT)
def box_of(node: Node, steps: tuple[BoxStep, ...], edges: tuple[Edge, ...] = (), arrow_look: str = "") -> Box:
    """Return the box of the steps of a node, in their order."""
    leads = (tuple(edge.source for edge in edges), "".join(edge.d for edge in edges), arrow_look)
    badge = min((step.badge for step in steps), key=_urgency)
    look = "skip" if badge.icon == "skip" else BOX_CLASSES.get(badge.hue, "idle")
    if len(steps) == 1:
        [step] = steps
        label = fit_text(step.description, LABEL_ROOM)
        says = gettext("Step %(number)s, %(description)s, %(status)s") % {
            "number": step.step_id,
            "description": label,
            "status": step.status.lower(),
        }
        tool = fit_text(step.tool, TOOL_ROOM)
        return Box(node, badge, look, label_lines(label), tool, says, step.strip, *leads)
    counts = Counter(step.badge.label.lower() for step in steps)
    tally = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    tools = {step.tool for step in steps}
    says = gettext("Open %(steps)s: %(tally)s (%(numbers)s)") % {
        "steps": _steps_of_tools(len(steps), tools),
        "numbers": _ranges(node.members),
        "tally": tally,
    }
    title = ngettext("%(count)s step", "%(count)s steps", len(steps)) % {"count": len(steps)}
    return Box(node, badge, look, (title, fit_text(tally, TITLE_ROOM)), _named_tools(tools), says, (), *leads)


def _urgency(badge: Badge) -> int:
    return URGENCY.index(badge.hue) if badge.hue in URGENCY else URGENCY.index("idle")


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers with successive ones joined: 1, 3 to 5."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(
        f"{low}" if low == high else gettext("%(low)s to %(high)s") % {"low": low, "high": high} for low, high in ranges
    )


@lru_cache(maxsize=LABELS_KEPT)
def label_lines(text: str) -> tuple[str, ...]:
    """Return a text in at most TITLE_LINES lines of TITLE_ROOM columns; wide characters take two, marks none.

    Lines break at spaces. A longer word is cut, never inside a character that is drawn from several code points.
    """
    lines = [""]
    for word in text.split():
        if lines[-1] and _columns(lines[-1]) + 1 + _columns(word) <= TITLE_ROOM:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for cluster in _clusters(word):
            if _columns(lines[-1]) + _columns(cluster) > TITLE_ROOM:
                lines.append("")
            lines[-1] += cluster
        if len(lines) > TITLE_LINES:
            break
    if len(lines) <= TITLE_LINES:
        return tuple(filter(None, lines))
    last = list(_clusters(lines[TITLE_LINES - 1]))
    while _columns("".join(last)) >= TITLE_ROOM:
        last.pop()
    return (*lines[: TITLE_LINES - 1], "".join(last).rstrip() + "…")


JOINER = "\u200d"
SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


def _clusters(text: str) -> Iterator[str]:
    """Yield the characters of a text with their marks and with what a joiner joins to them."""
    cluster = ""
    for character in text:
        if cluster and _columns(character) and not cluster.endswith(JOINER):
            yield cluster
            cluster = ""
        cluster += character
    if cluster:
        yield cluster


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(each) in ("Mn", "Me", "Cf") or each in SKIN_TONES
        else 2
        if unicodedata.east_asian_width(each) in "WF"
        else 1
        for each in text
    )


@lru_cache(maxsize=LABELS_KEPT)
def fit_text(text: str, room: int) -> str:
    shown = "".join(piece.text for piece in split_hidden(text[: room + 1]))
    return shown if len(shown) <= room else f"{shown[: room - 1].rstrip()}…"
