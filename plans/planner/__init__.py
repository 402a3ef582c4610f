"""From a request in words to a plan: what a language model is asked, and what its answers become."""

from plans.planner.nodes import execute_tools
from plans.planner.output import PlannedCall, PlannerOutput, should_execute_tools

__all__ = ["PlannedCall", "PlannerOutput", "execute_tools", "should_execute_tools"]
