"""Which tools an agent's model is offered: those that its plan's owner may call and that its filter lets through."""

from collections.abc import Mapping

from catalog.definitions.levels import SafetyLevel
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from plans.agents.settings import ToolFilter
from plans.engine.questions import TOOL as ASK_USER
from plans.llm.tools import callable_by, ranked
from plans.models import Plan
from plans.store.requesters import Requester

LEVELS = (SafetyLevel.SAFE, SafetyLevel.CAUTIOUS, SafetyLevel.DANGEROUS)
MOST_TOOLS = 128
"""As many as providers take in one request; of more, those that the filter names and that are likest the task."""


def offered(wanted: ToolFilter, plan: Plan, task: str = "") -> Mapping[str, CallableTool]:
    """Return the tools by name, in order, as many as a provider takes."""
    found = let_through(wanted, plan)
    if len(found) <= MOST_TOOLS:
        return found
    named = set(wanted.names)
    first = sorted(ranked(found, task), key=lambda name: name not in named)[:MOST_TOOLS]
    return {name: found[name] for name in sorted(first)}


def let_through(wanted: ToolFilter, plan: Plan) -> Mapping[str, CallableTool]:
    """Return all tools by name, in order; a question to the plan's owner only where the filter names it."""
    by = Requester(plan.author, plan.token, via=plan.via, session=plan.session)
    found = {name: target for name, target in callable_by(by).items() if _lets_through(wanted, target)}
    asks = snapshot.current(ASK_USER) if ASK_USER in wanted.names else None
    if asks is not None and asks.enabled:
        found[ASK_USER] = asks
    return dict(sorted(found.items()))


def _lets_through(wanted: ToolFilter, target: CallableTool) -> bool:
    tool = target.tool
    if LEVELS.index(SafetyLevel(tool.safety_level)) > LEVELS.index(SafetyLevel(wanted.max_level)):
        return False
    is_any = not wanted.names and not wanted.categories
    return is_any or tool.name in wanted.names or not set(wanted.categories).isdisjoint(tool.categories)
