"""How the engine takes an agent's step further: by what `plans.agents.loop` says, which knows models and tools."""

from collections.abc import Mapping
from typing import Any, Protocol

from plans.claims import Claimed
from plans.events import Recording
from plans.work import PlanFacts


class Loop(Protocol):
    """What takes the claimed step of an agent one transaction further."""

    def begin(self, batch: Recording, facts: PlanFacts, step: Claimed) -> None:
        """Begin the step, or begin it again. Raises ToolError where that may not be."""

    def go_on(self, batch: Recording, facts: PlanFacts, step: Claimed) -> bool:
        """Go on with a step that has begun; False for one that has not."""

    def surroundings(self, parent_pk: int) -> Mapping[str, Any]:
        """Return what the calls of an agent's step are given of its prompt, as fields of a `ToolContext`."""


_loops: list[Loop] = []


def taken_further_by(loop: Loop) -> None:
    """Let `loop` take the steps of agents further."""
    _loops[:] = [loop]


def begin(batch: Recording, facts: PlanFacts, step: Claimed) -> None:
    """Begin the claimed step of an agent. Raises ToolError where that may not be."""
    _loops[0].begin(batch, facts, step)


def go_on(batch: Recording, facts: PlanFacts, step: Claimed) -> bool:
    """Go on with the claimed step of an agent that waited; False for one that is to begin."""
    return _loops[0].go_on(batch, facts, step)


def surroundings(step: Claimed) -> Mapping[str, Any]:
    """Return what a step's call is given of its agent's prompt; nothing for one that no agent asked for."""
    return _loops[0].surroundings(step.parent_pk) if step.parent_pk is not None else {}
