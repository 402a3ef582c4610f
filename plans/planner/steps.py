"""Conversion of the planner's answer to steps of a plan: parallel calls, a question, searches, or a complete plan.

Text written by the model is taken literally. `${key}` is a reference only in a complete plan and in arguments of calls.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from catalog.definitions.tool import Tool
from catalog.errors import ParameterError
from plans.documents import references
from plans.engine.questions import ASK_USER, MAX_QUESTION
from plans.llm.tools import tools_callable_by
from plans.planner.output import PlannerOutput, should_execute_tools
from plans.spec import extract_value
from plans.store.requesters import Requester

PLAN_ON, COMPOSE_REPLY = "plan_on", "compose_reply"
SEARCH = "search"
MOST_QUERIES = 5
FIRST_RESULT = ["results", "0"]
LONGEST_DESCRIPTION = 200
FOLLOW_UP_QUESTION = "What else do I need to know to do this?"

StepDict = dict[str, Any]


@dataclass(slots=True)
class StepPlacement:
    """Position of new steps in a plan: first step id, dependencies of the first steps, and used keys."""

    first: int = 1
    needs: tuple[int, ...] = ()
    taken: set[str] = field(default_factory=set)

    def key(self, wish: str) -> str:
        """Reserve and return an unused key similar to `wish`."""
        name = re.sub(r"\W", "_", wish, flags=re.ASCII)[:100] or "result"
        name = f"_{name}" if name[0].isdigit() else name
        number, found = 1, name
        while found in self.taken:
            number += 1
            found = f"{name}_{number}"
        self.taken.add(found)
        return found


def has_plan(output: PlannerOutput) -> bool:
    """Return whether the planner wrote a complete plan that needs no answer first."""
    asks_first = output.needs_user_input and not output.tool_calls
    return bool(output.plan) and not asks_first


def steps_of_plan(plan: Mapping[str, Any], placement: StepPlacement) -> list[Any]:
    """Return the steps of a complete plan, renumbered, with a reply step at the end; malformed parts stay."""
    listed = plan.get("steps")
    steps = [deepcopy(each) for each in listed] if isinstance(listed, list) else []
    shift = placement.first - 1
    for step in (each for each in steps if isinstance(each, dict)):
        number, needed = step.get("step_id"), step.get("dependencies") or []
        if type(number) is int:
            step["step_id"] = number + shift
        if isinstance(needed, list):  # without dependencies of its own, it depends on the steps of the placement
            moved = [each + shift if type(each) is int else each for each in needed]
            if moved or placement.needs:
                step["dependencies"] = moved or list(placement.needs)
    if any(isinstance(step, dict) and step.get("tool") == COMPOSE_REPLY for step in steps):
        return steps
    return [*steps, reply_after(steps, placement)]


def steps_of_calls(output: PlannerOutput, placement: StepPlacement) -> list[StepDict]:
    """Return a step for each call, storing its result under the tool's name.

    A call depends only on earlier calls whose results it refers to, so that a failure does not stop unrelated calls.
    """
    steps: list[StepDict] = []
    made: dict[str, int] = {}
    for number, call in enumerate(output.tool_calls, placement.first):
        try:
            referenced = {reference.key for reference in references.find(call.args)}
        except ParameterError:  # a malformed reference, which validation reports
            referenced = set()
        needs = sorted({made[key] for key in referenced if key in made})
        key = placement.key(call.tool)
        steps.append({
            "step_id": number,
            "description": _line(call.reason) or f"Call {_line(call.tool) or 'a tool'}",
            "tool": call.tool,
            "parameters": deepcopy(call.args),
            "dependencies": needs or list(placement.needs),
            "expected_key": key,
        })  # fmt: skip
        made[key] = number
    return [*steps, reply_after(steps, placement)]


def steps_of_question(output: PlannerOutput, placement: StepPlacement) -> list[StepDict]:
    """Return the step that asks the user, and the step that continues planning after the answer."""
    question = (output.input_request or "").strip() or FOLLOW_UP_QUESTION
    asks = {
        "step_id": placement.first,
        "description": "Ask for what is missing",
        "tool": ASK_USER,
        "parameters": {"question": references.escape_references(question)[:MAX_QUESTION]},
        "dependencies": list(placement.needs),
        "expected_key": placement.key("answer"),
        "output_path": FIRST_RESULT,
    }
    plans_on = {
        "step_id": placement.first + 1,
        "description": "Continue planning with the answer",
        "tool": PLAN_ON,
        "parameters": {},
        "dependencies": [placement.first],
    }
    return [asks, plans_on]


def steps_of_queries(
    queries: Iterable[str], tools: Sequence[tuple[str, str]], placement: StepPlacement
) -> list[StepDict]:
    """Return a parallel step for each of the first queries and each search tool (its name and parameter)."""
    limited = [query for query in queries if query.strip()][:MOST_QUERIES]
    searches = [(query, *each) for query in limited for each in tools]
    steps = [
        {
            "step_id": number,
            "description": _line(f"Search for {query}"),
            "tool": tool,
            "parameters": {parameter: references.escape_references(query)},
            "dependencies": list(placement.needs),
            "expected_key": placement.key(SEARCH),
        }
        for number, (query, tool, parameter) in enumerate(searches, placement.first)
    ]
    return [*steps, reply_after(steps, placement)]


def reply_after(steps: Sequence[Any], placement: StepPlacement) -> StepDict:
    """Return the step that composes the reply once all of `steps` have ended."""
    whole = [step for step in steps if isinstance(step, dict) and type(step.get("step_id")) is int]
    numbers = [step["step_id"] for step in whole]
    listed = (step.get("dependencies") for step in whole)
    needed = {each for needs in listed if isinstance(needs, list) for each in needs if type(each) is int}
    last = [number for number in numbers if number not in needed]
    return {
        "step_id": max(numbers, default=placement.first - 1) + 1,
        "description": "Compose the reply",
        "tool": COMPOSE_REPLY,
        "parameters": {},
        "dependencies": last or list(placement.needs),
    }


def search_parameter(tool: Tool[Any, Any]) -> str | None:
    """Return the parameter for the query of a search tool; None if the tool is not a search tool.

    A search tool has category `search` and exactly one required parameter, a string.
    """
    required = tool.input_schema.get("required", [])
    if SEARCH not in tool.categories or len(required) != 1:
        return None
    kind = extract_value(tool.input_schema, ["properties", required[0], "type"])
    return str(required[0]) if kind == "string" else None


def _line(text: str) -> str:
    line = " ".join(text.replace("\0", " ").split())
    return line if len(line) <= LONGEST_DESCRIPTION else f"{line[: LONGEST_DESCRIPTION - 1]}…"


LONGEST_GOAL = 200


def plan_document(output: PlannerOutput, *, by: Requester) -> dict[str, Any]:
    """Return the plan document built from the planner's answer; it is not validated yet."""
    return {"goal": goal_of(output), "steps": steps_for(output, by, StepPlacement())}


def steps_for(output: PlannerOutput, by: Requester, placement: StepPlacement) -> list[Any]:
    """Return the steps built from the planner's answer, at their position in a plan."""
    if has_plan(output):
        return steps_of_plan(output.plan or {}, placement)
    route = should_execute_tools(output.model_dump())
    if route == "execute_tools":
        return steps_of_calls(output, placement)
    if route == "generate_response":
        return steps_of_question(output, placement)
    callable_tools = sorted(tools_callable_by(by).items()) if output.queries else ()
    parameters = ((name, search_parameter(each.tool)) for name, each in callable_tools)
    search_tools = [(name, parameter) for name, parameter in parameters if parameter is not None]
    return steps_of_queries(output.queries, search_tools, placement)


def goal_of(output: PlannerOutput) -> str:
    """Return the goal of the plan: the one the planner wrote, or the intent in words.

    Never the request itself: everyone who may read the plan reads its goal, and a request may name the user.
    """
    goal = extract_value(output.plan, ["goal"]) if has_plan(output) else None
    text = goal if isinstance(goal, str) and goal.strip() else output.intent.replace("_", " ")
    line = " ".join(text.replace("\0", " ").split())[:LONGEST_GOAL] or "Answer a request"
    return line[0].upper() + line[1:]
