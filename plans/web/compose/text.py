"""Editor of a plan as text: parsed content, and problems with their lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from django.utils.translation import gettext, gettext_lazy

from catalog.core.canonical_json import MAX_JSON_BYTES, Json, parse_json
from catalog.errors import MalformedJSON, TooLarge, ToolgateError
from catalog.inventory import snapshot
from catalog.ui.labels import STATUS_BADGES, Badge
from plans.actions.create import check_document
from plans.documents.checking import with_lines
from plans.documents.files import read_yaml
from plans.documents.graphs import without_cycles
from plans.documents.quick_fixes import IS_YAML, Fix, begins_like_json, fixes, yaml_as_json
from plans.documents.reading import ParsedPlan, Problem, parse_plan
from plans.spec import PlanDocument, StepDocument
from plans.store.requesters import Requester
from plans.web.graph import UNFOLDED, BoxStep, Drawing, Fold, arrows_to, box_of, drawing_from, lay_out

MOST_LINES = 2000
MAX_WITH_FIXES = 50
LINE_HEIGHT = 20
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class PlanEditor:
    text: str
    by: Requester | None = field(default=None, kw_only=True)
    button = "plans/_start.html"
    all_well = gettext_lazy("This plan can be started.")

    @cached_property
    def _read(self) -> "tuple[Json, list[Problem]]":
        try:
            return parse_json(self.text, max_bytes=MAX_JSON_BYTES), []
        except MalformedJSON as error:
            problem = Problem(error.path, error.code, "error", error.message, line=error.line or None)
            if yaml_as_json(self.text) is not None:
                problem = Problem("", IS_YAML, "error", gettext("This is YAML. Write the plan as JSON."), line=1)
            elif not begins_like_json(self.text):  # what JSON expects would mislead
                problem = replace(problem, message=_message_about_yaml(self.text), line=problem.line or 1)
            return None, [problem]
        except ToolgateError as error:
            return None, [Problem("", "too_large", "error", error.message)]

    @property
    def is_json(self) -> bool:
        return not self._read[1]

    @cached_property
    def problems(self) -> Sequence[Problem]:
        """All problems with their lines, errors first."""
        document, found = self._read
        if not found:
            found = self._with_lines(self._judge(document))
        return sorted(found, key=lambda problem: (SEVERITIES.index(problem.severity), problem.line or 0))

    @cached_property
    def findings(self) -> Sequence[tuple[Problem, Sequence[Fix]]]:
        """Every problem with its quick fixes, which are computed only for the first MAX_WITH_FIXES."""
        found = self.problems
        is_fixable = self.is_json or any(problem.code == IS_YAML for problem in found)
        offered = [fixes(problem, self.text) for problem in found[:MAX_WITH_FIXES]] if is_fixable else []
        return [(problem, offered[place] if place < len(offered) else ()) for place, problem in enumerate(found)]

    def with_fix(self, name: str) -> Self:
        """Return the editor with the named fix applied, or unchanged if no such fix is offered."""
        found = (fix for _, offers in self.findings for fix in offers if fix.name == name) if name else iter(())
        chosen = next(found, None)
        return replace(self, text=chosen.fixed) if chosen else self

    def _judge(self, document: Json) -> Sequence[Problem]:
        return check_document(document, by=self.by)

    def _with_lines(self, problems: Sequence[Problem]) -> list[Problem]:
        return with_lines(problems, self.text)

    @property
    def errors(self) -> int:
        """Number of errors, which prevent storing the plan."""
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def warnings(self) -> int:
        return sum(problem.severity == "warning" for problem in self.problems)

    @cached_property
    def draft(self) -> ParsedPlan:
        return parse_plan(self._read[0])

    @property
    def numbers(self) -> Mapping[int, int]:
        """The step ids by index in the text."""
        return {index: step.step_id for index, step in self.draft.steps.items()}

    @property
    def steps(self) -> Mapping[int, StepDocument]:
        return {step.step_id: step for step in self.draft.steps.values() if step.step_id > 0}

    @property
    def tools(self) -> Sequence[tuple[str, str]]:
        """The tools used, with their safety levels; the level of an unknown tool is empty."""
        names = dict.fromkeys(step.tool for step in self.steps.values() if step.tool)
        known = snapshot.callable_tools()
        return [(name, str(known[name].tool.safety_level) if name in known else "") for name in names]

    def document(self) -> PlanDocument:
        """Return the document. Raises pydantic's ValidationError if there are errors."""
        return PlanDocument.model_validate(self._read[0])

    @property
    def line_numbers(self) -> Sequence[tuple[int, str]]:
        worst: dict[int, str] = {}
        for problem in self.problems:
            worst.setdefault(problem.line or 1, problem.severity)
        count = min(self.text.count("\n") + 1, MOST_LINES)
        return [(number, worst.get(number, "")) for number in range(1, count + 1)]

    @property
    def marks(self) -> Sequence[tuple[int, str]]:
        """Positions of marks for errors and warnings, in pixels from the top."""
        return [((line - 1) * LINE_HEIGHT, mark) for line, mark in self.line_numbers if mark in ("error", "warning")]

    @property
    def marks_height(self) -> int:
        """Height of the editor's text in pixels."""
        return LINE_HEIGHT * len(self.line_numbers)


def _message_about_yaml(text: str) -> str:
    try:
        read_yaml(text)
    except (MalformedJSON, TooLarge) as error:
        return error.message
    return gettext("A plan is a JSON object with goal and steps.")


WITH_ERROR = Badge(gettext_lazy("has an error"), "fail", "danger")


def sketch_graph(editor: PlanEditor, fold: Fold = UNFOLDED) -> Drawing | None:
    """Return the graph of the parsed steps, without the arrows that close cycles; steps with errors are highlighted.

    It is None if there are no steps, or too many.
    """
    steps = editor.steps
    needs = without_cycles({number: step.dependencies for number, step in steps.items()})
    tools = {number: step.agent or step.tool or "" for number, step in steps.items()}
    graph = lay_out(needs, fold, tools)
    if graph is None:
        return None
    places, wrong = editor.numbers, set()
    for problem in editor.problems:
        part, _, rest = problem.path.partition(".")
        index = rest.partition(".")[0]
        if problem.severity == "error" and part == "steps" and index.isdigit():
            wrong.add(places.get(int(index), 0))
    arrows, boxes = arrows_to(graph), []
    for node in graph.nodes:
        texts = []
        for number in node.members:
            badge = WITH_ERROR if number in wrong else STATUS_BADGES["pending"]
            texts.append(BoxStep(number, steps[number].description, tools[number], badge, badge.label))
        boxes.append(box_of(node, tuple(texts), arrows[node.step_id]))
    return drawing_from(graph, boxes, fold)
