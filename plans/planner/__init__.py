"""Planner: turns a request in words into a plan by asking a language model and converting its answers to steps."""

from plans.planner.nodes import execute_tools
from plans.planner.output import PlannedCall, PlannerOutput, should_execute_tools

__all__ = ["PlannedCall", "PlannerOutput", "execute_tools", "should_execute_tools"]
