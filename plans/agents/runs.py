"""The run of an agent at its step: what it waits for, and how far it has come, for readers of its plan.

None of it is private: numbers, and the names of agents. What was said is kept from people who may not see it.
"""

from dataclasses import dataclass

from pydantic import BaseModel, TypeAdapter

from plans.models import AgentRun, Step
from plans.states import StepStatus


class Awaited(BaseModel):
    """What the agent waits for: a turn of its model (`id` empty), or a call; a refused call has a text and no step."""

    id: str = ""
    tool: str = ""
    step_id: int = 0
    refusal: str = ""


AWAITED: TypeAdapter[list[Awaited]] = TypeAdapter(list[Awaited])


@dataclass(frozen=True, slots=True)
class AgentWork:
    """The work of an agent at its step, since it was begun or retried; `waiting_for` are numbers of steps."""

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
        """What it took in words: asked 3 times, 2 calls, 1,230 tokens, 0.0120 US dollars."""
        asked = "asked once" if self.rounds == 1 else f"asked {self.rounds} times"
        made = f"{self.calls} call{'' if self.calls == 1 else 's'}"
        cost = [f"{float(self.cost):.4f} US dollars"] if float(self.cost) else []
        return ", ".join([asked, made, f"{self.tokens:,} tokens", *cost])


def work_of(step: Step) -> AgentWork | None:
    """Return what the agent of a step has done; None for a step without one, or before it began."""
    run = AgentRun.objects.select_related("agent").filter(step=step.pk).first() if step.agent else None
    return None if run is None else work_of_run(run, step)


def work_of_run(run: AgentRun, step: Step) -> AgentWork:
    """Return what a run, with its agent read, has done at its step."""
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
