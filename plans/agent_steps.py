"""How the engine takes an agent's step further: by what `plans.agents.loop` says, which knows models and tools."""

from typing import Protocol

from plans.claims import Claimed
from plans.events import Recording
from plans.work import PlanFacts


class Loop(Protocol):
    """What takes the claimed step of an agent one transaction further."""

    def begin(self, batch: Recording, facts: PlanFacts, step: Claimed) -> None:
        """Begin the step, or begin it again. Raises ToolError where that may not be."""

    def go_on(self, batch: Recording, facts: PlanFacts, step: Claimed) -> bool:
        """Go on with a step that has begun; False for one that has not."""


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
