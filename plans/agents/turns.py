"""The tool that asks an agent's model once. Only the loop of an agent has it called, as a step of the agent's step."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from catalog.context import ToolContext
from catalog.errors import ToolError
from catalog.tools import tool
from plans.agents import access, instructions, offering, sealing
from plans.agents.children import TURN
from plans.agents.conversation import MESSAGES
from plans.agents.conversing import Talk, converse
from plans.agents.loop import AWAITED
from plans.agents.settings import AgentDocument
from plans.live import feed
from plans.llm.client import in_database
from plans.llm.tools import CATEGORY
from plans.models import AgentRun, Step

SECONDS = 300.0
MOMENT = 0.1
OUT_OF_TIME = "The agent's time was up before its model had answered. Retry this step to let it go on."
NO_TURN = "Only an agent's step has its model asked, and it waits for no such turn. Give a step an agent instead."
SWITCHED_OFF = "The agent {name} was switched off meanwhile. An administrator can switch it on."
NOT_THEIRS = "{who} may not use the agent {name} any more. An administrator can let them."
UNWANTED = "Nobody waits for this turn any more: its agent's step has ended."
LOOK_SECONDS = 1.0
"""How often a turn looks whether its agent still waits for it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked, and the number of the agent's step, on whose page its text so far is shown."""

    talk: Talk
    plan_ref: str
    agent_step: int
    seconds: float | None
    """How long the agent may still work; None: as long as a turn may take."""


@tool(name=TURN, categories=[CATEGORY], returns_private_data=True, retry_safe=True, timeout=SECONDS)
async def agent_turn(*, context: ToolContext) -> dict[str, Any]:
    """Ask the model of an agent what it does next. Toolgate calls this itself for steps that agents carry out."""
    turn = await in_database(turn_of, context)
    watch = None
    try:
        async with asyncio.timeout(turn.seconds) as limit:
            watch = asyncio.create_task(_stop_when_unwanted(context, limit))
            said = await converse(turn.talk, partial(feed.say, turn.plan_ref, turn.agent_step))
    except TimeoutError:
        raise ToolError(UNWANTED if watch is not None and watch.done() else OUT_OF_TIME) from None
    finally:
        if watch is not None:
            watch.cancel()
        feed.say(turn.plan_ref, turn.agent_step, "")
    result = await in_database(sealing.put_away, said, turn.plan_ref, context.step_id or 0)
    return result.model_dump(mode="json")


async def _stop_when_unwanted(context: ToolContext, limit: asyncio.Timeout) -> None:
    """End the request once the agent waits for it no more: a person skipped its step, in whatever process."""
    while await in_database(_is_wanted, context):
        await asyncio.sleep(LOOK_SECONDS)
    limit.reschedule(asyncio.get_running_loop().time())


def _is_wanted(context: ToolContext) -> bool:
    return _run(_step(context)) is not None


def turn_of(context: ToolContext) -> Turn:
    """Return what is asked in a call. Raises ToolError where no agent waits for it, or it was switched off."""
    step = _step(context)
    run = _run(step)
    if step is None or run is None:
        raise ToolError(NO_TURN)
    if not run.agent.enabled:
        raise ToolError(SWITCHED_OFF.format(name=run.agent.name))
    if not access.may_use(step.plan.author, run.agent):
        raise ToolError(NOT_THEIRS.format(who=step.plan.author.get_username(), name=run.agent.name))
    settings = AgentDocument.model_validate_json(run.settings)
    prompt = instructions.rendered(settings, is_last=run.rounds >= settings.budget.rounds)
    tools = tuple(offering.offered(settings.tools, step.plan, run.step.description).values())
    messages = MESSAGES.validate_json(run.messages)
    talk = Talk(context, prompt.text, messages, tools, settings.model)
    budget = settings.budget.seconds
    seconds = None if budget is None else max(MOMENT, budget - run.seconds)
    return Turn(talk, step.plan.public_id, run.step.step_id, seconds)


def _step(context: ToolContext) -> Step | None:
    found = Step.objects.filter(plan__public_id=context.plan_id, step_id=context.step_id or 0).exclude(parent=None)
    return found.select_related("plan__author", "plan__token__user").first()


def _run(step: Step | None) -> AgentRun | None:
    """Return the agent's work that waits for this turn, and for no other."""
    if step is None:
        return None
    run = AgentRun.objects.select_related("agent", "step").filter(step=step.parent_id, ended_at=None).first()
    waited_for = AWAITED.validate_json(run.pending) if run is not None else []
    is_this = [(each.id, each.step_id) for each in waited_for] == [("", step.step_id)]
    return run if is_this else None
