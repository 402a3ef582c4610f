"""Tolerant parser for submitted plans: reports every problem of shape and keeps the steps that can be checked."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from catalog.core.canonical_json import check_json
from catalog.errors import MalformedJSON
from plans.spec import RUN_TIME_FIELDS, PlanDocument, StepDocument

MAX_PROBLEMS = 500

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a plan: its dotted path, code, severity and message; `line` counts from 1.

    The fields after `line` are for quick fixes and are not part of the JSON. The first step of `cycle_edge` should not
    depend on the second.
    """

    path: str
    code: str
    severity: Severity
    message: str
    suggestion: str | None = None
    line: int | None = None
    unknown_name: str = ""
    candidates: tuple[str, ...] = ()
    missing_dependency: int | None = None
    cycle_edge: tuple[int, int] | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("path", "code", "severity", "message", "suggestion", "line")}


@dataclass(frozen=True, slots=True)
class ParsedPlan:
    """The readable part of a plan: steps by index in the document, problems, and the broken fields of each step."""

    steps: Mapping[int, StepDocument]
    memory: Mapping[str, Any]
    problems: Sequence[Problem] = ()
    broken: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def reads(self, index: int, name: str) -> bool:
        """Return whether this field could be read in the step at `index`."""
        return name not in self.broken.get(index, ())

    def reads_all(self, name: str) -> bool:
        """Return whether this field could be read in every step; False if any step is not an object."""
        return not any(name in fields or not fields for fields in self.broken.values())


def parse_plan(document: object) -> ParsedPlan:
    """Return the readable part of a document. Never raises, whatever the document contains."""
    if isinstance(document, PlanDocument):
        return ParsedPlan(dict(enumerate(document.steps)), document.memory)
    try:
        check_json(document)
        plan = PlanDocument.model_validate(document)
    except MalformedJSON as malformed:
        return ParsedPlan({}, {}, [Problem(malformed.path, malformed.code, "error", malformed.message)])
    except ValidationError as error:
        return _parse_broken(document, error.errors(include_url=False))
    return ParsedPlan(dict(enumerate(plan.steps)), plan.memory)


def _parse_broken(document: object, errors: Sequence[ErrorDetails]) -> ParsedPlan:
    problems = [problem_from_error(error) for error in errors[:MAX_PROBLEMS]]
    if not isinstance(document, dict) or any(error["loc"] == ("steps",) for error in errors):
        return ParsedPlan({}, {}, problems)
    broken: dict[int, set[str]] = {}
    for error in errors:
        if error["loc"][0] == "steps" and isinstance(error["loc"][1], int):
            broken.setdefault(error["loc"][1], set()).update(str(step) for step in error["loc"][2:3])
    steps = document.get("steps", [])
    whole = {index: step for index, step in enumerate(steps) if isinstance(step, dict)}
    memory = document.get("memory")
    readable: dict[int, StepDocument] = {}
    for index, step in whole.items():
        # Without its broken fields; an unreadable step number becomes 0, which no valid step has.
        sound = {name: value for name, value in step.items() if name not in broken.get(index, set())}
        readable[index] = StepDocument.model_construct(**{"step_id": 0, "description": "", **sound})
    fields = {index: frozenset(names) for index, names in broken.items()}
    return ParsedPlan(readable, memory if isinstance(memory, dict) else {}, problems, fields)


def problem_from_error(error: ErrorDetails, whole: type[BaseModel] = PlanDocument) -> Problem:
    """Return a validation error of pydantic as a problem; `whole` is the model of the whole document."""
    place = [str(step) for step in error["loc"] if step != "[key]"]
    code, message = error["type"], error["msg"]
    if code == "extra_forbidden" and place[-1] in RUN_TIME_FIELDS:
        code, message = "run_time_field", "Toolgate sets this field while the plan runs. Leave it out."
    elif code == "extra_forbidden":
        document: type[BaseModel] = StepDocument if len(place) > 2 else whole
        problem = Problem(".".join(place), "unknown_field", "error", "There is no field with this name.")
        return unknown_name_problem(problem, place[-1], document.model_fields)
    if code in _MESSAGES:
        code, template = _MESSAGES[code]
        message = template.format(**error.get("ctx", {}))
    if code in ("minLength", "minItems", "blank") and place:
        message = _WHAT_IS_MISSING.get(place[-1], message)
    return Problem(".".join(place), code, "error", message)


def unknown_name_problem(problem: Problem, name: str, known: Iterable[str]) -> Problem:
    candidates = similar_names(name, known)
    return replace(problem, unknown_name=name, candidates=candidates, suggestion=suggestion_text(candidates))


def similar_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names most similar to this one, at most two."""
    return tuple(difflib.get_close_matches(name, list(known), n=2))


def suggestion_text(candidates: Sequence[str]) -> str | None:
    return f"Did you mean {' or '.join(candidates)}?" if candidates else None


_WHAT_IS_MISSING: Mapping[str, str] = {
    "goal": "The plan needs a goal: write what it should reach.",
    "steps": "The plan needs a step: add the first one.",
    "description": "The step needs a description: write a few words.",
    "tool": "Choose a tool for this step. A step without the field tool is a note.",
    "agent": "Choose an agent for this step. A step without the field agent is a note.",
}
"""Messages that say what to do about a field that is there but empty."""

_MESSAGES: Mapping[str, tuple[str, str]] = {
    "missing": ("required", "This is required."),
    "string_type": ("type", "This must be a string."),
    "int_type": ("type", "This must be an integer."),
    "bool_type": ("type", "This must be true or false."),
    "list_type": ("type", "This must be a list."),
    "dict_type": ("type", "This must be an object."),
    "model_type": ("type", "This must be an object."),
    "string_too_short": ("minLength", "This must not be empty."),
    "string_too_long": ("maxLength", "This may have at most {max_length} characters."),
    "too_short": ("minItems", "This needs at least {min_length} entry."),
    "too_long": ("maxItems", "This may have at most {max_length} entries."),
    "greater_than_equal": ("minimum", "This must be at least {ge}."),
    "less_than_equal": ("maximum", "This must be at most {le}."),
    "string_pattern_mismatch": (
        "pattern",
        "A key has 1 to 128 letters, digits or '_' and does not begin with a digit.",
    ),
}
