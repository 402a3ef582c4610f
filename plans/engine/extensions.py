"""Extension points of the engine, registered by `plans/apps.py` when the application starts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from plans.engine.work import PlanSnapshot
from plans.models import AGENT_TURN, AgentRun
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction

CALL_WITHOUT_TEXT = "Call {tool}"
"""Step description of an agent's call that came without text from the model."""


class AgentLoop(Protocol):
    """Interface of the code that advances an agent's claimed step."""

    def begin(self, tx: PlanTransaction, plan: PlanSnapshot, step: ClaimedStep) -> None:
        """Begin the step, or begin it again after a retry. Raises ToolError if the agent may not be used."""

    def go_on(self, tx: PlanTransaction, plan: PlanSnapshot, step: ClaimedStep) -> bool:
        """Continue a step that has begun; return False if it has not begun."""

    def surroundings(self, parent_pk: int) -> Mapping[str, Any]:
        """Return the parts of the agent's prompt for the `ToolContext` of its calls."""

    def require_enabled(self, parent_pk: int) -> None:
        """Raise ToolError if the step's agent is switched off or the plan's author may no longer use it."""

    def give_up(self, tx: PlanTransaction, step: ClaimedStep) -> None:
        """End the run of a step that failed unexpectedly."""


_loops: list[AgentLoop] = []


def register_agent_loop(loop: AgentLoop) -> None:
    """Register the loop that continues the steps of agents, replacing an earlier one."""
    _loops[:] = [loop]


def agent_loop() -> AgentLoop:
    return _loops[0]


def agent_context(step: ClaimedStep) -> Mapping[str, Any]:
    """Return the context fields from the agent's prompt for a step's call; empty if no agent made the call."""
    return _loops[0].surroundings(step.parent_pk) if step.parent_pk is not None else {}


def require_agent_enabled(step: ClaimedStep) -> None:
    """Raise ToolError for a step whose agent may no longer make calls."""
    if step.parent_pk is not None:
        _loops[0].require_enabled(step.parent_pk)


def abandon_agent_step(tx: PlanTransaction, step: ClaimedStep) -> None:
    if step.agent:
        _loops[0].give_up(tx, step)


def model_text_with_call(step: ClaimedStep) -> str:
    """Return the text that an agent's model wrote with a call; empty if it wrote none or no agent made the call."""
    is_call = step.parent_pk is not None and step.tool != AGENT_TURN
    return step.description if is_call and step.description != CALL_WITHOUT_TEXT.format(tool=step.tool) else ""


ResultHandler = Callable[[PlanTransaction, ClaimedStep, dict[str, Any]], str]
_result_handlers: dict[str, ResultHandler] = {}


def register_result_handler(tool: str, handler: ResultHandler) -> None:
    """Register a handler that applies this tool's results to the plan, in the transaction that completes the step.

    The handler returns an empty string, or the reason why it cannot apply the result and has changed nothing.
    """
    _result_handlers[tool] = handler


def has_result_handler(tool: str) -> bool:
    return tool in _result_handlers


def handle_result(tx: PlanTransaction, step: ClaimedStep, response: dict[str, Any]) -> str:
    """Apply a step's result to its plan; return an empty string, or the reason why it cannot be applied."""
    handler = _result_handlers.get(step.tool)
    return handler(tx, step, response) if handler is not None else ""


def end_agent_runs(step_pks: Sequence[int], tx: PlanTransaction) -> None:
    open_runs = AgentRun.objects.filter(step__in=step_pks, ended_at=None)
    open_runs.update(ended_at=tx.now, stopped_for=AgentRun.Stopped.FAILED)
