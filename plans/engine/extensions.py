"""Extension points of the engine, filled by `plans/apps.py` when the application starts.

- `register_agent_loop`: continues the steps of agents (`plans/agents/loop.py`);
- `register_result_handler`: what the result of a tool changes in its plan (`plans/planner/outcomes.py`).

Executors register themselves with `plans.engine.hints` for as long as they run; `plans.store.transactions` has the
extension points of a transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from plans.engine.work import PlanFacts
from plans.models import AGENT_TURN, AgentRun
from plans.store.statements import Claimed
from plans.store.transactions import Recording

UNSAID = "Call {tool}"
"""What describes a call with which its model said nothing."""


class AgentLoop(Protocol):
    """What takes the claimed step of an agent one transaction further."""

    def begin(self, batch: Recording, facts: PlanFacts, step: Claimed) -> None:
        """Begin the step, or begin it again. Raises ToolError where that may not be."""

    def go_on(self, batch: Recording, facts: PlanFacts, step: Claimed) -> bool:
        """Go on with a step that has begun; False for one that has not."""

    def surroundings(self, parent_pk: int) -> Mapping[str, Any]:
        """Return what the calls of an agent's step are given of its prompt, as fields of a `ToolContext`."""

    def see_that_it_may(self, parent_pk: int) -> None:
        """Raise ToolError where the agent of a step was switched off, or the plan's author may use it no more."""

    def give_up(self, batch: Recording, step: Claimed) -> None:
        """End what a step has begun that failed unexpectedly."""


_loops: list[AgentLoop] = []


def register_agent_loop(loop: AgentLoop) -> None:
    """Let `loop` continue the steps of agents, in place of any registered before."""
    _loops[:] = [loop]


def begin_agent_step(batch: Recording, facts: PlanFacts, step: Claimed) -> None:
    """Begin the claimed step of an agent. Raises ToolError where that may not be."""
    _loops[0].begin(batch, facts, step)


def go_on_with_agent_step(batch: Recording, facts: PlanFacts, step: Claimed) -> bool:
    """Go on with the claimed step of an agent that waited; False for one that is to begin."""
    return _loops[0].go_on(batch, facts, step)


def agent_surroundings(step: Claimed) -> Mapping[str, Any]:
    """Return what a step's call is given of its agent's prompt; nothing for one that no agent asked for."""
    return _loops[0].surroundings(step.parent_pk) if step.parent_pk is not None else {}


def see_that_agent_may(step: Claimed) -> None:
    """Raise ToolError for a step whose agent may ask for nothing any more."""
    if step.parent_pk is not None:
        _loops[0].see_that_it_may(step.parent_pk)


def give_up_agent_step(batch: Recording, step: Claimed) -> None:
    """End what an agent's step has begun that was refused, so that nothing of it goes on."""
    if step.agent:
        _loops[0].give_up(batch, step)


def words_with(step: Claimed) -> str:
    """Return what an agent's model said with a call; nothing where it said nothing, or no agent asked for it."""
    is_call = step.parent_pk is not None and step.tool != AGENT_TURN
    return step.description if is_call and step.description != UNSAID.format(tool=step.tool) else ""


ResultHandler = Callable[[Recording, Claimed, dict[str, Any]], str]
_result_handlers: dict[str, ResultHandler] = {}


def register_result_handler(tool: str, handler: ResultHandler) -> None:
    """Let `handler` apply the results of this tool to the plan, in the transaction that completes the step.

    It returns an empty text; or the reason why the result cannot be applied, and has changed nothing then.
    """
    _result_handlers[tool] = handler


def has_result_handler(tool: str) -> bool:
    """Return whether results of this tool change their plan."""
    return tool in _result_handlers


def handle_result(batch: Recording, step: Claimed, response: dict[str, Any]) -> str:
    """Apply a step's result to its plan; return the reason why that cannot be, or an empty text."""
    handler = _result_handlers.get(step.tool)
    return handler(batch, step, response) if handler is not None else ""


def end_run(step_pks: Sequence[int], batch: Recording) -> None:
    """End the runs of steps that are to begin again: they were cut off with their plan."""
    open_runs = AgentRun.objects.filter(step__in=step_pks, ended_at=None)
    open_runs.update(ended_at=batch.now, stopped_for=AgentRun.Stopped.FAILED)
