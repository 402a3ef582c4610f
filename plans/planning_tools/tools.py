"""The four planning tools: bound to one session in a prompt, or of the catalog and so of whichever session calls.

A handler checks and answers; the change itself is sent to the session, which takes it in when the call has worked.
"""

from typing import Any, cast

from catalog.context import Reducer, Session, ToolContext
from catalog.definitions.tool import Tool, ToolExample
from catalog.errors import PromptEvaluationError
from catalog.results import ToolResult
from plans.planning_tools.binding import PlanningBinding
from plans.planning_tools.documents import AddStep, Command, Plan, PlanStep, ReadPlan, SetupPlan, UpdateStep
from plans.planning_tools.rules import after, carry_out, read

CATEGORY = "planning"
PlanTool = Tool[Any, Plan]

_STARTED = Plan("Resend the badge", "active", (PlanStep(1, "Find the registration", "pending"),))
_LONGER = Plan("Resend the badge", "active", (*_STARTED.steps, PlanStep(2, "Send the e-mail", "pending")))
_ENDED = Plan("Resend the badge", "completed", (PlanStep(1, "Find the registration", "done"),))


def prepare(session: Session) -> None:
    """Let a session take in what changes its plan."""
    for command in (SetupPlan, AddStep, UpdateStep):
        if not session.takes(command):
            session.register(Plan, command, cast("Reducer[Plan, object]", after))


class Planning:
    """The handlers; with a session of their own they serve that one only."""

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
        """Return the session of the call. Raises RuntimeError for a call of a session that these are not bound to."""
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
"""What each tool is called, takes and says of itself; whether calling it twice is as calling it once; an example."""


def planning_tools(session: Session | None = None, *, accepts_overrides: bool = True) -> tuple[PlanTool, ...]:
    """Return the four tools in their order, for this session only or, without one, for the session of each call."""
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
