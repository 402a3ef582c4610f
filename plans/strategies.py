"""Planning guidance for models: a common text, to which each strategy except react adds a paragraph."""

from enum import StrEnum


class PlanningStrategy(StrEnum):
    """A planning strategy, chosen for a request or an agent."""

    REACT = "react"
    PLAN_ACT_REFLECT = "plan_act_reflect"
    GOAL_DECOMPOSE_ROUTE_SYNTHESISE = "goal_decompose_route_synthesise"


STRATEGIES = [strategy.value for strategy in PlanningStrategy]

_INTRODUCTION = """\
Use the planning tools for work that takes several steps. They keep one list for this session, which people can \
watch: keep it short and true. Alternate between thinking, calling tools and reading what they answer, and note \
what you learn in the titles of the steps that are left."""

_TOOLS = """\
- `planning_setup_plan` starts the list with an objective and, if you know them, the first steps. It replaces the list \
that was there.
- `planning_add_step` appends steps that turn out to be needed.
- `planning_update_step` changes a step's title or its status: pending, in_progress or done. When all steps are done, \
the plan is completed.
- `planning_read_plan` returns the list as it is now."""

_CLOSING = "Skip planning for trivial single-step tasks."

_MINDSETS = {
    PlanningStrategy.REACT: "",
    PlanningStrategy.PLAN_ACT_REFLECT: """\
Follow a plan-act-reflect rhythm: outline the entire plan before executing any tools. Then carry out one step at a \
time. After each step reflect on what it showed, append that reflection as a note to the plan where it changes what \
follows, and update the step status before the next one.""",
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: """\
First restate the goal in your own words. Break it into concrete sub-problems before routing tools, and give each \
sub-problem a step and the tool that fits it best. When all of them are solved, synthesise the results into one \
answer that meets the goal.""",
}


def mindset(strategy: PlanningStrategy | str) -> str:
    """Return the strategy's own paragraph; empty for react. Raises ValueError for an unknown strategy."""
    return _MINDSETS[PlanningStrategy(strategy)]


def body(strategy: PlanningStrategy | str = PlanningStrategy.REACT) -> str:
    """Return the guidance without its heading. Raises ValueError for an unknown strategy."""
    return "\n\n".join(part for part in (_INTRODUCTION, mindset(strategy), _TOOLS, _CLOSING) if part)


def guidance(strategy: PlanningStrategy | str = PlanningStrategy.REACT) -> str:
    """Return the guidance with its heading, as Markdown. Raises ValueError for an unknown strategy."""
    return f"## Planning\n\n{body(strategy)}"
