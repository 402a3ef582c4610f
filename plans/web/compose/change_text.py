"""A plan as it is changed on a page: the steps that nobody has begun, as text, and the change that it asks for."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

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
"""What may be said of a step, with what it is when nothing is said."""


def changeable_text(plan: Plan) -> str:
    """Return what may be changed of a plan, as text."""
    free = set(unstarted_steps(plan).values_list("step_id", flat=True))
    steps = [document for number, document in step_documents(plan).items() if number in free]
    return json.dumps({"goal": plan.goal, "steps": steps}, indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class ChangeRequest:
    """What a text asks for: the body of a change, and where in the text each part of it stands."""

    body: dict[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)

    def place_of(self, path: str) -> str:
        """Return where in the text a problem of the body is to be looked for."""
        part, _, rest = path.partition(".")
        index, _, inside = rest.partition(".")
        place = self.places.get(f"{part}.{index}")
        if place is None:
            return "steps" if part in ("add", "edit", "remove") else path
        return f"{place}.{inside}" if inside else place


@dataclass(frozen=True)
class ChangeEditor(PlanEditor):
    """A text that is to change a plan; `listed` are the steps that the page offered for change."""

    plan: Plan
    listed: frozenset[int]
    button = "plans/_apply.html"
    aim = "change the plan"
    all_well = "The plan can be changed like this."

    @cached_property
    def before(self) -> Mapping[int, Document]:
        """The steps of the plan as they are."""
        return step_documents(self.plan)

    @cached_property
    def free(self) -> frozenset[int]:
        """The steps that nobody has begun."""
        return frozenset(unstarted_steps(self.plan).values_list("step_id", flat=True))

    @cached_property
    def wish(self) -> ChangeRequest:
        """What the text asks for; a text that is no object asks for nothing."""
        document = self._read[0]
        return _change_request(document, self) if isinstance(document, dict) else ChangeRequest({})

    def change(self, seen_seq: int | None) -> PlanChange:
        """Return the change. Raises PlanProblems, and Conflict when a step to be removed has started."""
        started = sorted((self.listed - self.free - self._named) & self.before.keys())
        if started:
            steps = ", ".join(map(str, started))
            raise Conflict(f"Started meanwhile, so not removed: step {steps}. Nothing was changed; send it again.")
        return read_plan_change({**self.wish.body, "seen_seq": seen_seq})

    @property
    def changes_nothing(self) -> bool:
        """Whether the text says what is there already."""
        return not self.wish.body

    @property
    def has_begun(self) -> bool:
        """Whether the text changes a step that has started meanwhile."""
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
        return [*_require_object_shape(document), *self._begun(), *placed]

    def _begun(self) -> Iterator[Problem]:
        """Say which steps of the text cannot be changed any more."""
        for index, edit in enumerate(self.wish.body.get("edit", ())):
            if edit["step_id"] not in self.free:
                message = f"Step {edit['step_id']} has started. Leave it as it was, or out of this text."
                yield Problem(self.wish.places[f"edit.{index}"], "step_started", "error", message)

    @property
    def numbers(self) -> Mapping[int, int]:
        """The steps of the text by their place in it."""
        document = self._read[0]
        steps = document.get("steps") if isinstance(document, dict) else None
        places = enumerate(steps if isinstance(steps, list) else [])
        return {index: number for index, step in places for number in _step_numbers([step])}

    @cached_property
    def draft(self) -> ParsedPlan:
        """The whole plan as it would be, as far as it can be read."""
        try:
            judged = self._judged
        except PlanProblems:
            judged = None
        steps = judged.document["steps"] if judged else list(self.before.values())
        return parse_plan({"goal": self.plan.goal, "steps": steps})


def _change_request(document: Mapping[str, Any], writing: ChangeEditor) -> ChangeRequest:
    """Tell what is to be added, edited and removed by comparing the text with the plan."""
    steps, seen = document.get("steps"), set[int]()
    add: list[Any] = []
    edit: list[Any] = []
    places = {}
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        number = next(_step_numbers([step]), None)
        if number is None or number in seen or number not in writing.before:
            places[f"add.{len(add)}"] = f"steps.{index}"
            add.append(step)
        elif full_step_document(step) != full_step_document(writing.before[number]):
            places[f"edit.{len(edit)}"] = f"steps.{index}"
            edit.append({**FIELDS, **step})
        seen |= {number} if number is not None else set()
    remove = sorted((writing.listed & writing.free) - seen) if isinstance(steps, list) else []
    goal = document.get("goal")
    body = {"add": add, "edit": edit, "remove": remove, "goal": None if goal == writing.plan.goal else goal}
    return ChangeRequest({name: said for name, said in body.items() if said not in (None, [])}, places)


def full_step_document(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's document with what it leaves out."""
    said = {name: value for name, value in step.items() if value is not None}
    return {**FIELDS, **said}


def _step_numbers(steps: Sequence[Any]) -> Iterator[int]:
    for step in steps:
        if isinstance(step, dict) and type(step.get("step_id")) is int:
            yield step["step_id"]


def _require_object_shape(document: Json) -> Iterator[Problem]:
    """Say what the text as a whole must be."""
    if not isinstance(document, dict):
        yield Problem("", "type", "error", "This must be an object.")
        return
    if not isinstance(document.get("steps"), list):
        yield Problem("steps", "type", "error", "This must be a list.")
    for name in document.keys() - {"goal", "steps"}:
        problem = Problem(name, "unknown_field", "error", "Only goal and steps can be changed.")
        yield unknown_name_problem(problem, name, ["goal", "steps"])
