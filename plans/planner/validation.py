"""What is wrong with a planner's answer: the plan it makes is judged like any other, and for its requester."""

from collections.abc import Iterator, Mapping, Sequence
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
    """The document that an answer makes, None where it makes none, and the errors and warnings in it."""

    document: dict[str, Any] | None
    problems: tuple[Problem, ...]
    wrote: str = ""
    first: int = 0
    """Where in the answer the steps are that the model wrote, and the first of them in the document."""

    @property
    def errors(self) -> list[str]:
        """What keeps the plan from being stored, one line each, for the model."""
        return [self._line(problem) for problem in self.problems if problem.severity == "error"]

    def _line(self, problem: Problem) -> str:
        path = self._written(problem.path)
        hint = f" {problem.suggestion}" if problem.suggestion else ""
        return f"{path}: {problem.message}{hint}" if path else f"{problem.message}{hint}"

    def _written(self, path: str) -> str:
        """Return the path of a problem in what the model wrote."""
        part, _, rest = path.partition(".")
        index, _, inner = rest.partition(".")
        if part != "steps" or not self.wrote or not index.isdigit() or int(index) < self.first:
            return path
        field, _, within = inner.partition(".")
        field = "args" if self.wrote == CALLS and field == "parameters" else field
        return ".".join(each for each in (self.wrote, str(int(index) - self.first), field, within) if each)


def judge_answer(output: PlannerOutput, *, by: Requester) -> JudgedAnswer:
    """Say what plan an answer makes, and what is wrong with it."""
    if output.needs_user_input and not (output.input_request or "").strip():
        return JudgedAnswer(
            None, (Problem("input_request", "required", "error", "A question to the user needs words."),)
        )
    try:
        document = plan_document(output, by=by)
    except ToolError as error:
        return JudgedAnswer(None, (Problem("", "no_plan", "error", error.user_message()),))
    found = [*_uncallable_tools(document, set(_tools_named_in(output)), by), *check_document(document, by=by)]
    kept = tuple(problem for problem in found if problem.severity != "info")
    return JudgedAnswer(document, kept, _steps_path(output))


def judge_steps(output: PlannerOutput, new: int, document: dict[str, Any], *, by: Requester) -> JudgedAnswer:
    """Say what is wrong with the last `new` steps of a plan that goes on, which an answer adds; the rest stands."""
    first = len(document["steps"]) - new
    found = [*_uncallable_tools(document, set(_tools_named_in(output)), by), *check_document(document, by=by)]
    return JudgedAnswer(document, tuple(each for each in found if _is_new(each, first)), _steps_path(output), first)


def without_reply(output: PlannerOutput) -> PlannerOutput:
    """Return an answer without the steps and calls that compose a reply: Toolgate adds its own."""
    calls = [call for call in output.tool_calls if call.tool != COMPOSE_REPLY]
    plan, steps = output.plan, output.plan.get("steps") if output.plan else None
    if plan is not None and isinstance(steps, list):
        replies = [step for step in steps if isinstance(step, Mapping) and step.get("tool") == COMPOSE_REPLY]
        numbers = [step.get("step_id") for step in replies]
        plan = plan | {"steps": [_without_dependencies_on(step, numbers) for step in steps if step not in replies]}
    return output.model_copy(update={"tool_calls": calls, "plan": plan})


def _without_dependencies_on(step: Any, numbers: Sequence[Any]) -> Any:
    """Return a step that depends on none of these numbers."""
    needed = step.get("dependencies") if isinstance(step, Mapping) else None
    if not isinstance(needed, list):
        return step
    return {**step, "dependencies": [each for each in needed if each not in numbers]}


def _steps_path(output: PlannerOutput) -> str:
    """Say where in an answer its steps are; empty where they are made of something else."""
    if has_plan(output):
        return "plan.steps"
    return CALLS if output.tool_calls else ""


def _is_new(problem: Problem, first: int) -> bool:
    """Say whether a problem is one of the steps from this place on, or of the plan as a whole."""
    part, _, rest = problem.path.partition(".")
    index = rest.partition(".")[0]
    return part != "steps" or not index.isdigit() or int(index) >= first


def _uncallable_tools(document: Mapping[str, Any], named: set[str], by: Requester) -> Iterator[Problem]:
    """Name the tools that the model chose, that exist, and that the requester may not call."""
    there, allowed = snapshot.callable_tools(), tools_callable_by(by)
    steps = document.get("steps")
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        tool = step.get("tool") if isinstance(step, Mapping) else None
        if tool in named and tool in there and there[tool].enabled and tool not in allowed:
            yield Problem(f"steps.{index}.tool", "not_allowed", "error", f"The tool '{tool}' may not be called here.")


def _tools_named_in(output: PlannerOutput) -> Iterator[str]:
    yield from (call.tool for call in output.tool_calls)
    steps = output.plan.get("steps") if output.plan else None
    for step in steps if isinstance(steps, list) else ():
        tool = step.get("tool") if isinstance(step, Mapping) else None
        if isinstance(tool, str):
            yield tool
