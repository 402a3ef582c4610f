"""Progress of an agent at its step, for readers of its plan: numbers and names of agents, nothing private."""

from dataclasses import dataclass
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from pydantic import BaseModel, TypeAdapter

from plans.models import AgentRun, Step
from plans.states import StepStatus


class Awaited(BaseModel):
    """A model turn (`id` empty) or a call that the agent waits for; a refused call has a `refusal` and no step."""

    id: str = ""
    tool: str = ""
    step_id: int = 0
    refusal: str = ""


AWAITED: TypeAdapter[list[Awaited]] = TypeAdapter(list[Awaited])


@dataclass(frozen=True, slots=True)
class AgentWork:
    """Work of an agent at its step since the step began or was retried; `waiting_for` holds step ids."""

    agent: str
    rounds: int
    calls: int
    tokens: int
    cost: str
    seconds: float
    stopped_for: str | None
    waiting_for: list[int]

    @property
    def took(self) -> str:
        return usage_text(self.rounds, self.calls, self.tokens, Decimal(self.cost))


def usage_parts(rounds: int, calls: int | None, tokens: int | None, cost: str) -> list[str]:
    """Return model turns, calls, tokens and US dollars in words, leaving out None and an empty cost."""
    parts = [ngettext("%(count)s model turn", "%(count)s model turns", rounds) % {"count": f"{rounds:,}"}]
    if calls is not None:
        parts.append(ngettext("%(count)s call", "%(count)s calls", calls) % {"count": f"{calls:,}"})
    if tokens is not None:
        parts.append(ngettext("%(count)s token", "%(count)s tokens", tokens) % {"count": f"{tokens:,}"})
    if cost:
        parts.append(_("%(amount)s US dollars") % {"amount": cost})
    return parts


def usage_text(rounds: int, calls: int, tokens: int, cost: Decimal) -> str:
    """Return usage in words, such as: 3 model turns, 2 calls, 1,230 tokens, 0.0120 US dollars."""
    return ", ".join(usage_parts(rounds, calls, tokens, f"{cost:.4f}" if cost else ""))


def work_of(step: Step) -> AgentWork | None:
    """Return the work of a step's agent; None for a step without an agent, or before the agent began."""
    run = AgentRun.objects.select_related("agent").filter(step=step.pk).first() if step.agent else None
    return None if run is None else work_of_run(run, step)


def work_of_run(run: AgentRun, step: Step) -> AgentWork:
    """Return the work of an agent's run at its step; `run.agent` must be loaded."""
    waits = step.status == StepStatus.IN_PROGRESS and run.ended_at is None
    awaited = AWAITED.validate_json(run.pending) if waits else []
    return AgentWork(
        agent=run.agent.name,
        rounds=run.rounds,
        calls=run.calls,
        tokens=run.tokens,
        cost=f"{run.cost:f}",
        seconds=round(run.seconds, 3),
        stopped_for=run.stopped_for or None,
        waiting_for=[each.step_id for each in awaited if each.step_id],
    )
