"""Which tools an agent's model is offered: those that its plan's owner may call and that its filter lets through."""

from collections.abc import Mapping

from catalog import snapshot
from catalog.definitions import SafetyLevel
from catalog.snapshot import CallableTool
from plans.agents.settings import ToolFilter
from plans.models import Plan
from plans.planner.offered import callable_by
from plans.questions import TOOL as ASK_USER
from plans.services import Requester

LEVELS = (SafetyLevel.SAFE, SafetyLevel.CAUTIOUS, SafetyLevel.DANGEROUS)
MOST_TOOLS = 128
"""As many as providers take in one request; of more, those whose names come first are offered."""


def offered(wanted: ToolFilter, plan: Plan) -> Mapping[str, CallableTool]:
    """Return the tools by name, in order; a question to the plan's owner only where the filter names it."""
    by = Requester(plan.author, plan.token, via=plan.via, session=plan.session)
    found = {name: target for name, target in callable_by(by).items() if _lets_through(wanted, target)}
    asks = snapshot.current(ASK_USER) if ASK_USER in wanted.names else None
    if asks is not None and asks.enabled:
        found[ASK_USER] = asks
    return dict(sorted(found.items())[:MOST_TOOLS])


def _lets_through(wanted: ToolFilter, target: CallableTool) -> bool:
    tool = target.tool
    if LEVELS.index(SafetyLevel(tool.safety_level)) > LEVELS.index(SafetyLevel(wanted.max_level)):
        return False
    is_any = not wanted.names and not wanted.categories
    return is_any or tool.name in wanted.names or not set(wanted.categories).isdisjoint(tool.categories)
