"""Text editor for changing a plan: its unstarted steps as text, and the change that the text describes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from catalog.core.canonical_json import Json
from catalog.errors import Conflict
from plans.actions.change import JudgedChange, PlanChange, judge_change, read_plan_change
from plans.actions.create import PlanProblems
from plans.documents.reading import ParsedPlan, Problem, parse_plan, unknown_name_problem
from plans.models import Plan
from plans.store.plan_documents import Document, step_documents, unstarted_steps
from plans.web.compose.text import PlanEditor

FIELDS: Mapping[str, Any] = {
    "description": "",
    "tool": None,
    "agent": None,
    "parameters": {},
    "dependencies": [],
    "expected_key": None,
    "output_path": None,
    "done_check": None,
}
"""Fields of a step that can be changed, with their defaults."""


def changeable_text(plan: Plan) -> str:
    """Return the goal and the unstarted steps of a plan as JSON text."""
    free = set(unstarted_steps(plan).values_list("step_id", flat=True))
    steps = [document for number, document in step_documents(plan).items() if number in free]
    return json.dumps({"goal": plan.goal, "steps": steps}, indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class ChangeRequest:
    """The change that a text describes: its body, and the position in the text of each part."""

    body: dict[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)

    def place_of(self, path: str) -> str:
        """Return the path in the text for a path in the body."""
        part, _, rest = path.partition(".")
        index, _, inside = rest.partition(".")
        place = self.places.get(f"{part}.{index}")
        if place is None:
            return "steps" if part in ("add", "edit", "remove") else path
        return f"{place}.{inside}" if inside else place


@dataclass(frozen=True)
class ChangeEditor(PlanEditor):
    """Editor of a text that changes a plan; `listed` are the steps that the page offered for change."""

    plan: Plan
    listed: frozenset[int]
    button = "plans/_apply.html"
    all_well = gettext_lazy("This change is valid.")

    @cached_property
    def before(self) -> Mapping[int, Document]:
        """The current steps of the plan."""
        return step_documents(self.plan)

    @cached_property
    def free(self) -> frozenset[int]:
        """The steps that have not started."""
        return frozenset(unstarted_steps(self.plan).values_list("step_id", flat=True))

    @cached_property
    def wish(self) -> ChangeRequest:
        """The change that the text describes; empty if the text is not an object."""
        document = self._read[0]
        return _change_request(document, self) if isinstance(document, dict) else ChangeRequest({})

    def change(self, seen_seq: int | None) -> PlanChange:
        """Return the change. Raises PlanProblems, and Conflict if a step to remove has started."""
        started = sorted((self.listed - self.free - self._named) & self.before.keys())
        if started:
            steps = ", ".join(map(str, started))
            raise Conflict(
                ngettext(
                    "Step %(steps)s has started, so it was not removed. Nothing was changed. Submit again.",
                    "Steps %(steps)s have started, so they were not removed. Nothing was changed. Submit again.",
                    len(started),
                )
                % {"steps": steps}
            )
        return read_plan_change({**self.wish.body, "seen_seq": seen_seq})

    @property
    def changes_nothing(self) -> bool:
        return not self.wish.body

    @property
    def has_begun(self) -> bool:
        """True if the text changes a step that has started in the meantime."""
        return any(problem.code == "step_started" for problem in self.problems)

    @cached_property
    def _named(self) -> frozenset[int]:
        return frozenset(self.numbers.values())

    @cached_property
    def _judged(self) -> JudgedChange | None:
        return None if self.changes_nothing else judge_change(self.plan, read_plan_change(self.wish.body))

    def _judge(self, document: Json) -> Sequence[Problem]:
        try:
            found = self._judged.problems if self._judged else []
        except PlanProblems as refusal:
            found = refusal.problems
        placed = [replace(problem, path=self.wish.place_of(problem.path)) for problem in found]
        begun = []
        for index, edit in enumerate(self.wish.body.get("edit", ())):
            if edit["step_id"] not in self.free:
                message = _("Step %(number)s has started. Undo your edits to it, or remove it from this text.") % {
                    "number": edit["step_id"]
                }
                begun.append(Problem(self.wish.places[f"edit.{index}"], "step_started", "error", message))
        return [*_require_object_shape(document), *begun, *placed]

    @property
    def numbers(self) -> Mapping[int, int]:
        document = self._read[0]
        steps = document.get("steps") if isinstance(document, dict) else None
        places = enumerate(steps if isinstance(steps, list) else [])
        return {index: number for index, step in places for number in _step_numbers([step])}

    @cached_property
    def draft(self) -> ParsedPlan:
        """The resulting plan, as far as it can be parsed."""
        try:
            judged = self._judged
        except PlanProblems:
            judged = None
        steps = judged.document["steps"] if judged else list(self.before.values())
        return parse_plan({"goal": self.plan.goal, "steps": steps})


def _change_request(document: Mapping[str, Any], editor: ChangeEditor) -> ChangeRequest:
    steps, seen = document.get("steps"), set[int]()
    add: list[Any] = []
    edit: list[Any] = []
    places = {}
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        number = next(_step_numbers([step]), None)
        if number is None or number in seen or number not in editor.before:
            places[f"add.{len(add)}"] = f"steps.{index}"
            add.append(step)
        elif full_step_document(step) != full_step_document(editor.before[number]):
            places[f"edit.{len(edit)}"] = f"steps.{index}"
            edit.append({**FIELDS, **step})
        seen |= {number} if number is not None else set()
    remove = sorted((editor.listed & editor.free) - seen) if isinstance(steps, list) else []
    goal = document.get("goal")
    body = {"add": add, "edit": edit, "remove": remove, "goal": None if goal == editor.plan.goal else goal}
    return ChangeRequest({name: said for name, said in body.items() if said not in (None, [])}, places)


def full_step_document(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's document with defaults for missing fields."""
    said = {name: value for name, value in step.items() if value is not None}
    return {**FIELDS, **said}


def _step_numbers(steps: Sequence[Any]) -> Iterator[int]:
    for step in steps:
        if isinstance(step, dict) and type(step.get("step_id")) is int:
            yield step["step_id"]


def _require_object_shape(document: Json) -> Iterator[Problem]:
    if not isinstance(document, dict):
        yield Problem("", "type", "error", _("This must be an object."))
        return
    if not isinstance(document.get("steps"), list):
        yield Problem("steps", "type", "error", _("This must be a list."))
    for name in document.keys() - {"goal", "steps"}:
        problem = Problem(name, "unknown_field", "error", _("Only goal and steps can be changed."))
        yield unknown_name_problem(problem, name, ["goal", "steps"])
