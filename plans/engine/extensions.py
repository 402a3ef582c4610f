"""Extension points of the engine, filled by `plans/apps.py` when the application starts.

- `register_agent_loop`: continues the steps of agents (`plans/agents/loop.py`);
- `register_result_handler`: what the result of a tool changes in its plan (`plans/planner/outcomes.py`).

Executors register themselves with `plans.engine.hints` for as long as they run; `plans.store.transactions` has the
extension points of a transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from plans.engine.work import PlanSnapshot
from plans.models import AGENT_TURN, AgentRun
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction

CALL_WITHOUT_TEXT = "Call {tool}"
"""What describes a call with which its model said nothing."""


class AgentLoop(Protocol):
    """What takes the claimed step of an agent one transaction further."""

    def begin(self, tx: PlanTransaction, facts: PlanSnapshot, step: ClaimedStep) -> None:
        """Begin the step, or begin it again. Raises ToolError where that may not be."""

    def go_on(self, tx: PlanTransaction, facts: PlanSnapshot, step: ClaimedStep) -> bool:
        """Go on with a step that has begun; False for one that has not."""

    def surroundings(self, parent_pk: int) -> Mapping[str, Any]:
        """Return what the calls of an agent's step are given of its prompt, as fields of a `ToolContext`."""

    def require_enabled(self, parent_pk: int) -> None:
        """Raise ToolError where the agent of a step was switched off, or the plan's author may use it no more."""

    def give_up(self, tx: PlanTransaction, step: ClaimedStep) -> None:
        """End what a step has begun that failed unexpectedly."""


_loops: list[AgentLoop] = []


def register_agent_loop(loop: AgentLoop) -> None:
    """Let `loop` continue the steps of agents, in place of any registered before."""
    _loops[:] = [loop]


def begin_agent_step(tx: PlanTransaction, facts: PlanSnapshot, step: ClaimedStep) -> None:
    """Begin the claimed step of an agent. Raises ToolError where that may not be."""
    _loops[0].begin(tx, facts, step)


def resume_agent_step(tx: PlanTransaction, facts: PlanSnapshot, step: ClaimedStep) -> bool:
    """Go on with the claimed step of an agent that waited; False for one that is to begin."""
    return _loops[0].go_on(tx, facts, step)


def agent_context(step: ClaimedStep) -> Mapping[str, Any]:
    """Return what a step's call is given of its agent's prompt; nothing for one that no agent asked for."""
    return _loops[0].surroundings(step.parent_pk) if step.parent_pk is not None else {}


def require_agent_enabled(step: ClaimedStep) -> None:
    """Raise ToolError for a step whose agent may ask for nothing any more."""
    if step.parent_pk is not None:
        _loops[0].require_enabled(step.parent_pk)


def abandon_agent_step(tx: PlanTransaction, step: ClaimedStep) -> None:
    """End what an agent's step has begun that was refused, so that nothing of it goes on."""
    if step.agent:
        _loops[0].give_up(tx, step)


def model_text_with_call(step: ClaimedStep) -> str:
    """Return what an agent's model said with a call; nothing where it said nothing, or no agent asked for it."""
    is_call = step.parent_pk is not None and step.tool != AGENT_TURN
    return step.description if is_call and step.description != CALL_WITHOUT_TEXT.format(tool=step.tool) else ""


ResultHandler = Callable[[PlanTransaction, ClaimedStep, dict[str, Any]], str]
_result_handlers: dict[str, ResultHandler] = {}


def register_result_handler(tool: str, handler: ResultHandler) -> None:
    """Let `handler` apply the results of this tool to the plan, in the transaction that completes the step.

    It returns an empty text; or the reason why the result cannot be applied, and has changed nothing then.
    """
    _result_handlers[tool] = handler


def has_result_handler(tool: str) -> bool:
    """Return whether results of this tool change their plan."""
    return tool in _result_handlers


def handle_result(tx: PlanTransaction, step: ClaimedStep, response: dict[str, Any]) -> str:
    """Apply a step's result to its plan; return the reason why that cannot be, or an empty text."""
    handler = _result_handlers.get(step.tool)
    return handler(tx, step, response) if handler is not None else ""


def end_agent_runs(step_pks: Sequence[int], tx: PlanTransaction) -> None:
    """End the runs of steps that are to begin again: they were cut off with their plan."""
    open_runs = AgentRun.objects.filter(step__in=step_pks, ended_at=None)
    open_runs.update(ended_at=tx.now, stopped_for=AgentRun.Stopped.FAILED)
