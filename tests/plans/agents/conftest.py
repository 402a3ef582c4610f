"""A model that tests script, in place of the tool that asks one."""

from collections.abc import Iterator
from typing import Any

import pytest

from catalog.tools import registry
from plans.agents.tool_calls import TURN
from tests.catalogs import fill_catalog
from tests.plans.agents.scripted import SCRIPT, Script, agent_turn
from tests.plans.planner.conftest import configured, server

__all__ = ["configured", "script", "server"]


@pytest.fixture
def script(stage: Any) -> Iterator[Script]:
    """What agents' models answer, with the tools of `tests.tools_for_tests` to be called."""
    from_above = registry._ABOVE.pop("plans.agents.turn", None)
    shipped = registry._TOOLS.pop(TURN, None)
    registry.register_tool(agent_turn)
    fill_catalog()
    yield SCRIPT
    SCRIPT.said.clear()
    SCRIPT.read.clear()
    registry._TOOLS.pop(TURN)
    if from_above is not None:
        registry.also_ships("plans.agents.turn", from_above)
    if shipped is not None:
        registry.register_tool(shipped)
