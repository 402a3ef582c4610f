"""How much an agent may take at one step, and the words in which it says why it stopped."""

from decimal import Decimal

from django.db.models import Sum

from plans.agents.settings import AgentBudget, AgentDocument
from plans.models import AgentRun, ModelUse, Step

LOOPING = "Maximum iterations reached. The agent may be stuck in a loop."
NO_PRICE = (
    "The agent stopped: nobody knows what {model} costs, so its cost cannot be limited. Limit its tokens instead."
)
MORE = "Retry this step to let it go on for as long again."


def reached(run: AgentRun, budget: AgentBudget, *, more_calls: int = 0) -> str | None:
    """Return which limit keeps the agent from making so many calls more and hearing of them; None for no limit."""
    over = {
        AgentRun.Stopped.ROUNDS: run.rounds >= budget.rounds,
        AgentRun.Stopped.CALLS: budget.calls is not None and run.calls + more_calls > budget.calls,
        AgentRun.Stopped.TOKENS: budget.tokens is not None and run.tokens >= budget.tokens,
        AgentRun.Stopped.COST: budget.cost is not None and run.cost >= budget.cost,
        AgentRun.Stopped.SECONDS: is_out_of_time(run, budget),
    }
    return next((limit.value for limit, is_over in over.items() if is_over), None)


def is_out_of_time(run: AgentRun, budget: AgentBudget) -> bool:
    """Say whether models and tools have worked for as long as the agent may take."""
    return budget.seconds is not None and run.seconds >= budget.seconds


def words_for(why: str, run: AgentRun, settings: AgentDocument) -> str:
    """Return why the agent stopped, for people."""
    budget, name = settings.budget, settings.name
    times = "once" if run.rounds == 1 else f"{run.rounds} times"
    told = {
        AgentRun.Stopped.ROUNDS: f"after its model was asked {times}. {LOOPING}",
        AgentRun.Stopped.CALLS: f"before it made more than {budget.calls} calls.",
        AgentRun.Stopped.TOKENS: f"after {run.tokens:,} tokens; it may use {budget.tokens or 0:,}.",
        AgentRun.Stopped.COST: f"after {run.cost:.4f} US dollars; it may cost {budget.cost}.",
        AgentRun.Stopped.SECONDS: f"after {run.seconds:.0f} seconds of work; it may take {budget.seconds}.",
    }
    return f"The agent {name} stopped {told[AgentRun.Stopped(why)]} {MORE}"


def count_anew(run: AgentRun) -> None:
    """Count from nothing: a person let the agent go on."""
    run.rounds = run.calls = run.tokens = 0
    run.cost, run.seconds = Decimal(0), 0.0


def spend(run: AgentRun, turn: Step) -> None:
    """Count what one turn of the model took: every time that it was asked for it, also in vain."""
    read, written, cost = Sum("input_tokens"), Sum("output_tokens"), Sum("cost")
    took = ModelUse.objects.filter(call=turn.call_id).aggregate(read=read, written=written, cost=cost)
    run.tokens += (took["read"] or 0) + (took["written"] or 0)
    run.cost += took["cost"] or Decimal(0)


def spend_time(run: AgentRun, child: Step) -> None:
    """Count how long the call of a step that has ended ran."""
    call = child.call
    if call is not None and call.started_at is not None and call.finished_at is not None:
        run.seconds += max(0.0, (call.finished_at - call.started_at).total_seconds())
