"""The section of a prompt that offers the planning tools, bound to one session."""

from catalog.context import Session
from plans.planning_tools.tools import planning_tools, prepare
from plans.prompts import MarkdownSection, as_template
from plans.strategies import PlanningStrategy, body


class PlanningToolsSection(MarkdownSection[object]):
    """Guidance in the words of a strategy, with the four tools of this session; they serve no other."""

    def __init__(
        self,
        session: Session,
        *,
        strategy: PlanningStrategy | str = PlanningStrategy.REACT,
        accepts_overrides: bool = False,
    ) -> None:
        prepare(session)
        self.session = session
        self.strategy = PlanningStrategy(strategy)
        tools = planning_tools(session, accepts_overrides=accepts_overrides)
        super().__init__("Planning", "planning", as_template(body(self.strategy)), tools=tools)
