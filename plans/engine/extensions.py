"""Hooks of the engine: how agents take their steps further, and what a tool's result means for its plan besides itself.

The agent loop and the modules that own such tools register here when the application starts.
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
    """Let `loop` take the steps of agents further."""
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


def register_result_handler(tool: str, meaning: ResultHandler) -> None:
    """Let `meaning` carry out what this tool's results mean, in the transaction that completes the step, before it.

    It returns why that cannot be, and has changed nothing then; or an empty text.
    """
    _result_handlers[tool] = meaning


def has_result_handler(tool: str) -> bool:
    """Say whether results of this tool mean more than themselves."""
    return tool in _result_handlers


def handle_result(batch: Recording, step: Claimed, response: dict[str, Any]) -> str:
    """Carry out what a step's result means; return why that cannot be, or an empty text."""
    meaning = _result_handlers.get(step.tool)
    return meaning(batch, step, response) if meaning is not None else ""


def end_run(step_pks: Sequence[int], batch: Recording) -> None:
    """End the runs of steps that are to begin again: they were cut off with their plan."""
    open_runs = AgentRun.objects.filter(step__in=step_pks, ended_at=None)
    open_runs.update(ended_at=batch.now, stopped_for=AgentRun.Stopped.FAILED)
