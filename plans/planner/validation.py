"""Validation of the planner's answer: the plan built from it is checked like any other, for its requester."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.errors import ToolError
from catalog.inventory import snapshot
from plans.actions.create import check_document
from plans.documents.reading import Problem
from plans.llm.tools import tools_callable_by
from plans.planner.output import PlannerOutput
from plans.planner.steps import COMPOSE_REPLY, has_plan, plan_document
from plans.store.requesters import Requester

CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """Plan document built from an answer (None if impossible), with its errors and warnings."""

    document: dict[str, Any] | None
    problems: tuple[Problem, ...]
    wrote: str = ""
    first: int = 0
    """Path of the steps in the model's answer, and the index of the first of them in the document."""

    @property
    def errors(self) -> list[str]:
        """Errors as lines for the model, with paths into its answer."""
        lines = []
        for problem in (each for each in self.problems if each.severity == "error"):
            path = self._path_in_answer(problem.path)
            hint = f" {problem.suggestion}" if problem.suggestion else ""
            lines.append(f"{path}: {problem.message}{hint}" if path else f"{problem.message}{hint}")
        return lines

    def _path_in_answer(self, path: str) -> str:
        part, _, rest = path.partition(".")
        index, _, inner = rest.partition(".")
        if part != "steps" or not self.wrote or not index.isdigit() or int(index) < self.first:
            return path
        field, _, within = inner.partition(".")
        field = "args" if self.wrote == CALLS and field == "parameters" else field
        return ".".join(each for each in (self.wrote, str(int(index) - self.first), field, within) if each)


def judge_answer(output: PlannerOutput, *, by: Requester) -> JudgedAnswer:
    if output.needs_user_input and not (output.input_request or "").strip():
        return JudgedAnswer(
            None, (Problem("input_request", "required", "error", "The question to the user is empty."),)
        )
    try:
        document = plan_document(output, by=by)
    except ToolError as error:
        return JudgedAnswer(None, (Problem("", "no_plan", "error", error.user_message()),))
    found = [*_uncallable_tools(document, set(_tools_named_in(output)), by), *check_document(document, by=by)]
    kept = tuple(problem for problem in found if problem.severity != "info")
    return JudgedAnswer(document, kept, _steps_path(output))


def judge_steps(output: PlannerOutput, new: int, document: dict[str, Any], *, by: Requester) -> JudgedAnswer:
    """Check a continued plan, but report only problems of its last `new` steps, which the answer adds."""
    first = len(document["steps"]) - new
    found = [*_uncallable_tools(document, set(_tools_named_in(output)), by), *check_document(document, by=by)]
    kept = []
    for problem in found:
        part, _, rest = problem.path.partition(".")
        index = rest.partition(".")[0]
        # Of problems in steps, only those in new ones; others are of the plan as a whole.
        if part != "steps" or not index.isdigit() or int(index) >= first:
            kept.append(problem)
    return JudgedAnswer(document, tuple(kept), _steps_path(output), first)


def without_reply(output: PlannerOutput) -> PlannerOutput:
    """Return an answer without calls and steps that compose a reply; Toolgate adds its own."""
    calls = [call for call in output.tool_calls if call.tool != COMPOSE_REPLY]
    plan, steps = output.plan, output.plan.get("steps") if output.plan else None
    if plan is not None and isinstance(steps, list):
        replies = [step for step in steps if isinstance(step, Mapping) and step.get("tool") == COMPOSE_REPLY]
        numbers = [step.get("step_id") for step in replies]
        kept = [step for step in steps if step not in replies]
        for index, step in enumerate(kept):
            needed = step.get("dependencies") if isinstance(step, Mapping) else None
            if isinstance(needed, list):
                kept[index] = {**step, "dependencies": [each for each in needed if each not in numbers]}
        plan = plan | {"steps": kept}
    return output.model_copy(update={"tool_calls": calls, "plan": plan})


def _steps_path(output: PlannerOutput) -> str:
    """Return the path of the steps in an answer; empty if they are built from other fields."""
    if has_plan(output):
        return "plan.steps"
    return CALLS if output.tool_calls else ""


def _uncallable_tools(document: Mapping[str, Any], named: set[str], by: Requester) -> Iterator[Problem]:
    """Yield a problem for each existing tool that the model chose and the requester may not call."""
    there, allowed = snapshot.callable_tools(), tools_callable_by(by)
    steps = document.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        tool = step.get("tool") if isinstance(step, Mapping) else None
        if tool in named and tool in there and there[tool].enabled and tool not in allowed:
            message = f"This requester may not call the tool '{tool}'."
            yield Problem(f"steps.{index}.tool", "not_allowed", "error", message)


def _tools_named_in(output: PlannerOutput) -> Iterator[str]:
    yield from (call.tool for call in output.tool_calls)
    steps = output.plan.get("steps") if output.plan else None
    for step in steps if isinstance(steps, list) else ():
        tool = step.get("tool") if isinstance(step, Mapping) else None
        if isinstance(tool, str):
            yield tool
