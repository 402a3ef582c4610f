"""What is wrong with a planner's answer: the plan it makes is judged like any other, and for its requester."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catalog import snapshot
from catalog.errors import ToolError
from plans.planner.offered import callable_by
from plans.planner.output import PlannerOutput
from plans.planner.routing import document_of
from plans.problems import Problem
from plans.services import Requester, problems_of


@dataclass(frozen=True, slots=True)
class Judged:
    """The document that an answer makes, None where it makes none, and the errors and warnings in it."""

    document: dict[str, Any] | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> list[str]:
        """What keeps the plan from being stored, one line each, for the model."""
        return [_line(problem) for problem in self.problems if problem.severity == "error"]


def judge(output: PlannerOutput, request: str, *, by: Requester) -> Judged:
    """Say what plan an answer makes, and what is wrong with it."""
    if output.needs_user_input and not (output.input_request or "").strip():
        return Judged(None, (Problem("input_request", "required", "error", "A question to the user needs words."),))
    try:
        document = document_of(output, request, by=by)
    except ToolError as error:
        return Judged(None, (Problem("", "no_plan", "error", error.user_message()),))
    found = [*_refused(document, set(_named_in(output)), by), *problems_of(document)]
    return Judged(document, tuple(problem for problem in found if problem.severity != "info"))


def judge_steps(output: PlannerOutput, new: int, document: dict[str, Any], *, by: Requester) -> Judged:
    """Say what is wrong with the last `new` steps of a plan that goes on, which an answer adds; the rest stands."""
    first = len(document["steps"]) - new
    found = [*_refused(document, set(_named_in(output)), by), *problems_of(document)]
    return Judged(document, tuple(each for each in found if _is_new(each, first)))


def _is_new(problem: Problem, first: int) -> bool:
    """Say whether a problem is one of the steps from this place on, or of the plan as a whole."""
    part, _, rest = problem.path.partition(".")
    index = rest.partition(".")[0]
    return part != "steps" or not index.isdigit() or int(index) >= first


def _refused(document: Mapping[str, Any], named: set[str], by: Requester) -> Iterator[Problem]:
    """Name the tools that the model chose, that exist, and that the requester may not call."""
    there, allowed = snapshot.all_current(), callable_by(by)
    steps = document.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        tool = step.get("tool") if isinstance(step, Mapping) else None
        if tool in named and tool in there and there[tool].enabled and tool not in allowed:
            yield Problem(f"steps.{index}.tool", "not_allowed", "error", f"The tool '{tool}' may not be called here.")


def _named_in(output: PlannerOutput) -> Iterator[str]:
    yield from (call.tool for call in output.tool_calls)
    steps = output.plan.get("steps") if output.plan else None
    for step in steps if isinstance(steps, list) else ():
        tool = step.get("tool") if isinstance(step, Mapping) else None
        if isinstance(tool, str):
            yield tool


def _line(problem: Problem) -> str:
    where = f"{problem.path}: " if problem.path else ""
    hint = f" {problem.suggestion}" if problem.suggestion else ""
    return f"{where}{problem.message}{hint}"
