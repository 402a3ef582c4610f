"""The four planning tools, for a prompt section (bound to one session) and for the catalog (the caller's session).

A handler validates the command, answers and sends the command to the session, which applies it when the call succeeds.
"""

from collections.abc import Iterator
from typing import Any, cast

from catalog.context import Reducer, Session, ToolContext
from catalog.definitions.binding import ModelBinding
from catalog.definitions.tool import Tool, ToolExample
from catalog.errors import ParameterError, PromptEvaluationError
from catalog.results import ToolResult
from catalog.schemas import ArgumentProblem
from plans.planning_tools.todo_list import (
    AddStep,
    Command,
    Plan,
    PlanStep,
    ReadPlan,
    SetupPlan,
    UpdateStep,
    after,
    carry_out,
    read,
)
from plans.prompts import MarkdownSection, as_template
from plans.strategies import PlanningStrategy, body


class PlanningToolsSection(MarkdownSection[object]):
    """Prompt section with a strategy's guidance and the four tools, bound to one session."""

    def __init__(
        self,
        session: Session,
        *,
        strategy: PlanningStrategy | str = PlanningStrategy.REACT,
        accepts_overrides: bool = False,
    ) -> None:
        prepare(session)
        self.session = session
        self.strategy = PlanningStrategy(strategy)
        tools = planning_tools(session, accepts_overrides=accepts_overrides)
        super().__init__("Planning", "planning", as_template(body(self.strategy)), tools=tools)


_TYPES: dict[str, tuple[type, str]] = {
    "string": (str, "text"),
    "integer": (int, "an integer"),
    "array": (list, "a list"),
}


class Unfit(ParameterError):
    """Arguments that a planning tool refuses; the message already names the field."""

    def user_message(self) -> str:
        return self.message


class PlanningBinding(ModelBinding):
    """Binding of one document: checks the fields in their order, then reports unknown keys."""

    def check(self, arguments: dict[str, Any], tool_name: str) -> None:
        """Raise ParameterError if the arguments do not fit."""
        problems: list[ArgumentProblem] = []
        fields = self.input_schema["properties"]
        for name, schema in fields.items():
            if name in arguments:
                problems += _misfits(name, arguments[name], schema)
            elif name in self.input_schema.get("required", ()):
                problems.append(ArgumentProblem(name, "required", f"Missing required field: {name!r}"))
        unknown = [name for name in arguments if name not in fields]
        if unknown:
            problems.append(ArgumentProblem(unknown[0], "additionalProperties", f"Extra keys not permitted: {unknown}"))
        if problems:
            errors = [{"path": each.path, "code": each.code, "message": each.message} for each in problems]
            raise Unfit(problems[0].message, {"field": problems[0].path or None, "errors": errors})


def _misfits(path: str, value: object, schema: dict[str, Any]) -> Iterator[ArgumentProblem]:
    """Yield the problems of a value: at most one, or one for each entry of a list."""
    choices = schema.get("anyOf", [schema])
    if value is None:
        if all(choice.get("type") != "null" for choice in choices):
            yield ArgumentProblem(path, "type", f"{path}: value cannot be None")
        return
    expected = choices[0]
    if "enum" in expected:
        if value not in expected["enum"]:
            yield ArgumentProblem(path, "enum", f"{path}: expected one of {expected['enum']}")
        return
    kind, name = _TYPES[expected["type"]]
    if not isinstance(value, kind) or isinstance(value, bool):
        yield ArgumentProblem(path, "type", f"{path}: expected {name}")
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _misfits(f"{path}.{number}", entry, expected["items"])


CATEGORY = "planning"
PlanTool = Tool[Any, Plan]

_STARTED = Plan("Resend the badge", "active", (PlanStep(1, "Find the registration", "pending"),))
_LONGER = Plan("Resend the badge", "active", (*_STARTED.steps, PlanStep(2, "Send the e-mail", "pending")))
_ENDED = Plan("Resend the badge", "completed", (PlanStep(1, "Find the registration", "done"),))


def prepare(session: Session) -> None:
    """Register the commands that change a plan with a session."""
    for command in (SetupPlan, AddStep, UpdateStep):
        if not session.takes(command):
            session.register(Plan, command, cast("Reducer[Plan, object]", after))


class Planning:
    """Handlers of the tools. If bound to a session, they refuse calls of other sessions."""

    def __init__(self, session: Session | None = None) -> None:
        self._own = session

    def setup_plan(self, params: SetupPlan, *, context: ToolContext) -> ToolResult[Plan]:
        """Create the plan, or put another in its place."""
        return self._change(params, context)

    def add_step(self, params: AddStep, *, context: ToolContext) -> ToolResult[Plan]:
        """Append steps."""
        return self._change(params, context)

    def update_step(self, params: UpdateStep, *, context: ToolContext) -> ToolResult[Plan]:
        """Change one step."""
        return self._change(params, context)

    def read_plan(self, params: ReadPlan, *, context: ToolContext) -> ToolResult[Plan]:
        """Return the plan."""
        plan, message = read(self._session_of(context)[Plan].latest())
        return ToolResult(message, plan)

    def _change(self, command: Command, context: ToolContext) -> ToolResult[Plan]:
        session = self._session_of(context)
        plan, message = carry_out(session[Plan].latest(), command)
        session.send(command)
        return ToolResult(message, plan)

    def _session_of(self, context: ToolContext) -> Session:
        """Return the session of the call. Raises RuntimeError if the tools are bound to another session."""
        session = context.session
        if self._own is not None and session is not self._own:
            raise RuntimeError("These planning tools are bound to another session.")
        if session is None:
            raise PromptEvaluationError("This call has no session to plan in.")
        prepare(session)
        return session


_DECLARED: tuple[tuple[str, type, str, bool, ToolExample[Any, Plan]], ...] = (
    (
        "setup_plan",
        SetupPlan,
        "Create or replace the session plan with an objective and optional initial steps.",
        False,
        ToolExample("Start a plan", SetupPlan("Resend the badge", ("Find the registration",)), _STARTED),
    ),
    (
        "add_step",
        AddStep,
        "Append one or more steps to the active plan.",
        False,
        ToolExample("Append a step", AddStep(("Send the e-mail",)), _LONGER),
    ),
    (
        "update_step",
        UpdateStep,
        "Update a step's title or status by its ID.",
        True,
        ToolExample("Mark a step as done", UpdateStep(1, status="done"), _ENDED),
    ),
    ("read_plan", ReadPlan, "Return the latest plan snapshot.", True, ToolExample("Read it", ReadPlan(), _STARTED)),
)
"""Name, arguments, description, whether retrying is safe, and an example of each tool."""


def planning_tools(session: Session | None = None, *, accepts_overrides: bool = True) -> tuple[PlanTool, ...]:
    """Return the four tools in order, bound to `session` or, without one, serving the session of each call."""
    serve = Planning(session)
    return tuple(
        Tool(
            name=f"planning_{name}",
            description=description,
            handler=getattr(serve, name),
            bound=PlanningBinding(document),
            categories=(CATEGORY,),
            retry_safe=retry_safe,
            accepts_overrides=accepts_overrides,
            examples=(example,),
        )
        for name, document, description, retry_safe, example in _DECLARED
    )


SETUP_PLAN, ADD_STEP, UPDATE_STEP, READ_PLAN = planning_tools()
