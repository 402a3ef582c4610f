"""Agents with a scripted model, and builders of plans with agents."""

from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User

from catalog.core import clock
from catalog.models import Call
from catalog.testing import clean_registry
from catalog.tools import ToolContext, registry, tool
from plans.actions.create import start_plan
from plans.agents.definitions import AgentBudget, AgentDocument, ToolFilter, agent_columns
from plans.agents.messages import MESSAGES
from plans.models import Agent, AgentRun, ModelUse, Plan, Step
from plans.store.requesters import Requester
from tests.builders import make_plan, step

Said = str | dict[str, Any] | Exception


@dataclass
class Script:
    """Scripted responses of a model, and the messages it received."""

    said: list[Said] = field(default_factory=list)
    read: list[list[dict[str, Any]]] = field(default_factory=list)

    def says(self, *said: Said) -> None:
        """Add the next response: a text, calls, or an error."""
        self.said += said

    def answer(self, context: ToolContext) -> dict[str, Any]:
        """Return the next response; the last one again for the same turn."""
        turn = Step.objects.get(plan__public_id=context.plan_id, step_id=context.step_id or 0)
        messages = AgentRun.objects.get(step=turn.parent_id).messages
        self.read.append(MESSAGES.dump_python(MESSAGES.validate_json(messages), mode="json"))
        line = self.said.pop(0)
        if isinstance(line, Exception):
            raise line
        usage = {"model": "scripted", "input_tokens": 100, "output_tokens": 10, "cost": "0.01"}
        answer = usage | ({"text": line} if isinstance(line, str) else line)
        took = {name: answer[name] for name in usage}
        call = Call.objects.get(public_id=context.call_id)
        ModelUse.objects.create(call=call, plan=turn.plan, purpose="agent", latency_ms=1, at=clock.now(), **took)
        return answer

    def last_results(self) -> list[str]:
        """Return the results that the model received last."""
        last = self.read[-1][-1]
        return [each["text"] for each in last["results"]]


SCRIPT = Script()


def calls(*requested: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """Return a response that requests calls of these tools."""
    uses = [{"id": f"c{number}", "tool": name, "arguments": given} for number, (name, given) in enumerate(requested, 1)]
    return {"text": text, "calls": uses}


registry.register_module(__name__, lambda: False)  # its tool has the reserved name of the one that it stands in for

with clean_registry():

    @tool(name="agent_turn", categories=["planner"], returns_private_data=True, retry_safe=True)
    def agent_turn(*, context: ToolContext) -> dict[str, Any]:
        """Respond as scripted."""
        return SCRIPT.answer(context)


def make_agent(name: str = "ann", **fields: Any) -> Agent:
    """Store an agent that may call every tool."""
    given = {"instructions": "Do as you are told.", "tools": ToolFilter(), "budget": AgentBudget(), **fields}
    now = clock.now()
    columns = agent_columns(AgentDocument(name=name, **given))
    return Agent.objects.create(created_at=now, updated_at=now, **columns)


def agent_step(step_id: int = 1, name: str = "ann", **fields: Any) -> dict[str, Any]:
    """Return the document of an agent's step."""
    return step(step_id, None, agent=name, **fields)


def agent_plan(author: User, *steps: dict[str, Any], start: bool = True, **fields: Any) -> Plan:
    """Store and start a plan, with one agent's step by default."""
    wanted = steps or (agent_step(),)
    plan = make_plan(author, *({**each, "agent": None} for each in wanted), start=False, **fields)
    for each in wanted:
        plan.steps.filter(step_id=each["step_id"]).update(agent=each.get("agent") or "")
    if start:
        start_plan(plan, by=Requester(author))
    return plan


def run_of(plan: Plan, step_id: int = 1) -> AgentRun:
    """Return the run of an agent's step."""
    return AgentRun.objects.select_related("step", "agent").get(step__plan=plan, step__step_id=step_id)


def children_of(plan: Plan, step_id: int = 1) -> list[Step]:
    """Return the steps of an agent's step, in order."""
    return list(plan.steps.filter(parent__step_id=step_id).select_related("call").order_by("step_id"))


def tools_of(plan: Plan, step_id: int = 1) -> list[str]:
    """Return tools and states of the children of an agent's step."""
    return [f"{child.tool} {child.status}" for child in children_of(plan, step_id)]
