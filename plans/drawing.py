"""The graph of a plan as a page shows it: boxes with their words, arrows with their look. Positions come laid out."""

import textwrap
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from catalog.text.safety import split_hidden
from catalog.ui.labels import STATUSES, Word
from plans.drafting import Writing
from plans.graph import Edge, Graph, Node
from plans.picture import Picture, StepPicture
from plans.states import StepStatus

TITLE_ROOM, TITLE_LINES = 16, 2
TOOL_ROOM = 20
SAID_ROOM = 120
LOOKS = {"ok": "ok", "human": "human", "danger": "bad", "run": "run", "warn": "run"}
WITH_ERROR = Word("has an error", "fail", "danger")


@dataclass(frozen=True, slots=True)
class Box:
    """One box: where it stands, how it looks, what it says, and the step to which it leads.

    `title` has its lines, at most TITLE_LINES.
    """

    node: Node
    word: Word
    look: str
    title: Sequence[str]
    tool: str
    says: str

    @property
    def step_id(self) -> int:
        """The step to which it leads."""
        return self.node.step_id


@dataclass(frozen=True, slots=True)
class Arrow:
    """One arrow: its path and its look."""

    d: str
    look: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A whole graph."""

    width: int
    height: int
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    says: str


def drawing_of(picture: Picture) -> Drawing | None:
    """Draw the graph of a plan, None when it is too large for one."""
    graph = picture.graph
    if graph is None:
        return None
    steps = picture.by_number
    done = {number for number, step in steps.items() if step.step.status == StepStatus.COMPLETED}
    started = {number for number, step in steps.items() if step.started}
    boxes = [_box(node, steps[node.step_id].word, _described(steps[node.step_id])) for node in graph.nodes]
    return _drawing(graph, boxes, [Arrow(edge.d, _look_of(edge, done, started)) for edge in graph.edges])


@dataclass(frozen=True, slots=True)
class AgentsStep:
    """An agent's step as its box says it: in place of a tool, who works and how many calls that took so far."""

    step_id: int
    description: str
    tool: str | None


def _described(step: StepPicture) -> "Described":
    if not step.step.agent:
        return step.step
    calls = f", {step.calls} call{'' if step.calls == 1 else 's'}" if step.calls else ""
    return AgentsStep(step.number, step.step.description, _cut(step.step.agent, TOOL_ROOM - len(calls)) + calls)


def sketch_of(writing: Writing) -> Drawing | None:
    """Draw what could be read of a plan that is being written; steps with an error stand out."""
    graph, steps = writing.graph, writing.steps
    if graph is None:
        return None
    wrong = set(_with_errors(writing))
    boxes = [
        _box(node, WITH_ERROR if node.step_id in wrong else STATUSES["pending"], steps[node.step_id])
        for node in graph.nodes
    ]
    return _drawing(graph, boxes, [Arrow(edge.d, "") for edge in graph.edges])


def _with_errors(writing: Writing) -> Iterator[int]:
    places = writing.numbers
    for problem in writing.problems:
        part, _, rest = problem.path.partition(".")
        index = rest.partition(".")[0]
        if problem.severity == "error" and part == "steps" and index.isdigit():
            yield places.get(int(index), 0)


def _drawing(graph: Graph, boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Drawing:
    count = sum(len(node.members) for node in graph.nodes)
    return Drawing(graph.width, graph.height, boxes, arrows, f"Plan graph, {count} step{'' if count == 1 else 's'}")


def _box(node: Node, word: Word, step: "Described") -> Box:
    if len(node.members) > 1:
        title = f"{len(node.members)} done"
        says = f"Steps {', '.join(map(str, node.members))}, done"
        return Box(node, STATUSES["completed"], "ok", [title], "", says)
    look = "skip" if word.icon == "skip" else LOOKS.get(word.hue, "idle")
    says = f"Step {step.step_id}, {_cut(step.description, SAID_ROOM)}, {word.label.lower()}"
    return Box(node, word, look, _wrapped(step.description), _cut(step.tool or "", TOOL_ROOM), says)


class Described(Protocol):
    """A step, stored or submitted."""

    @property
    def step_id(self) -> int: ...

    @property
    def description(self) -> str: ...

    @property
    def tool(self) -> str | None: ...


def _wrapped(text: str) -> list[str]:
    """Return the beginning of a text in lines that fit into a box."""
    shown = _cut(text, SAID_ROOM)
    return textwrap.wrap(shown, TITLE_ROOM, max_lines=TITLE_LINES, placeholder="…")


def _cut(text: str, room: int) -> str:
    shown = "".join(piece.text for piece in split_hidden(text[: room + 1]))
    return shown if len(shown) <= room else f"{shown[: room - 1].rstrip()}…"


def _look_of(edge: Edge, done: Set[int], started: Set[int]) -> str:
    """Return the look of an arrow: dashed until its target starts, green where what it needs is done."""
    if edge.target not in started:
        return "next"
    return "done" if edge.source in done else ""
