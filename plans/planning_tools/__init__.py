"""The planning tools: four tools with which an agent keeps the to-do list of its session.

`Session` works in memory, for tests and single-process agents; the catalog's tools store the list in the database
(`plans.sessions.lists`).
"""

from catalog.context import Session
from plans.planning_tools.todo_list import AddStep, Plan, PlanStep, ReadPlan, SetupPlan, UpdateStep
from plans.planning_tools.tools import PlanningToolsSection

__all__ = ["AddStep", "Plan", "PlanStep", "PlanningToolsSection", "ReadPlan", "Session", "SetupPlan", "UpdateStep"]
