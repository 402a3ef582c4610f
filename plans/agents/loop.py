"""The loop of an agent at its step: ask the model, make the calls it wants, tell it what came of them, until it ends.

The agent's step runs nothing itself. Each turn of the model and each call it wants is a step of its own, a child of the
agent's, with its own call through the gate; the agent's step waits for them in the database and holds nothing. When the
last of them has ended it may be claimed again, and one transaction here takes in what came of them and asks for what is
next: a process may die anywhere, and nothing is done twice. Limits end the loop, each with its own words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db.models import Exists, OuterRef, Sum
from pydantic import ValidationError

from catalog.core.transactions import try_move
from catalog.errors import Conflict, ToolError
from catalog.models import Call
from catalog.results import format_success_response
from plans.agents import definitions, secrets, tool_calls
from plans.agents import messages as agents_messages
from plans.agents.definitions import AgentBudget, AgentDocument, agent_document
from plans.agents.messages import MESSAGES, Message, ModelTurn, ToolOutcome, ToolOutcomes, TurnResult
from plans.agents.runs import AWAITED, Awaited
from plans.engine import finishing, hints
from plans.engine.extensions import end_agent_runs
from plans.engine.work import PlanSnapshot
from plans.llm import provider
from plans.models import Agent, AgentRun, ModelUse, Plan, Step
from plans.spec import MAX_STEPS, extract_value
from plans.states import StepStatus, WaitingFor
from plans.store import statements
from plans.store.statements import ClaimedStep, StepWait
from plans.store.transactions import PlanTransaction

TOO_MANY_ROUNDS = "Maximum iterations reached. The agent may be stuck in a loop."
NO_PRICE = (
    "The agent stopped: nobody knows what {model} costs, so its cost cannot be limited. Limit its tokens instead."
)
RETRY_HINT = "Retry this step to let it go on for as long again."


def limit_reached(run: AgentRun, budget: AgentBudget, *, more_calls: int = 0) -> str | None:
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


def limit_text(why: str, run: AgentRun, settings: AgentDocument) -> str:
    """Return why the agent stopped, for people."""
    budget, name = settings.budget, settings.name
    times = "once" if run.rounds == 1 else f"{run.rounds} times"
    told = {
        AgentRun.Stopped.ROUNDS: f"after its model was asked {times}. {TOO_MANY_ROUNDS}",
        AgentRun.Stopped.CALLS: f"before it made more than {budget.calls} calls.",
        AgentRun.Stopped.TOKENS: f"after {run.tokens:,} tokens; it may use {budget.tokens or 0:,}.",
        AgentRun.Stopped.COST: f"after {run.cost:.4f} US dollars; it may cost {budget.cost}.",
        AgentRun.Stopped.SECONDS: f"after {run.seconds:.0f} seconds of work; it may take {budget.seconds}.",
    }
    return f"The agent {name} stopped {told[AgentRun.Stopped(why)]} {RETRY_HINT}"


def reset_counters(run: AgentRun) -> None:
    """Count from nothing: a person let the agent go on."""
    run.rounds = run.calls = run.tokens = 0
    run.cost, run.seconds = Decimal(0), 0.0


def count_turn(run: AgentRun, turn: Step) -> None:
    """Count what one turn of the model took: every time that it was asked for it, also in vain."""
    read, written, cost = Sum("input_tokens"), Sum("output_tokens"), Sum("cost")
    took = ModelUse.objects.filter(call=turn.call_id).aggregate(read=read, written=written, cost=cost)
    run.tokens += (took["read"] or 0) + (took["written"] or 0)
    run.cost += took["cost"] or Decimal(0)


def count_call_time(run: AgentRun, child: Step) -> None:
    """Count how long the call of a step that has ended ran."""
    call = child.call
    if call is not None and call.started_at is not None and call.finished_at is not None:
        run.seconds += max(0.0, (call.finished_at - call.started_at).total_seconds())


UNREADABLE = "What came in place of the model's answer cannot be read. Retry this step, and it is asked again."
EMPTY_ANSWER = "The model answered nothing: neither a text nor a call. Retry this step, and it is asked again."
TURN_SKIPPED = "Its turn was skipped by a person, so the agent cannot go on. Retry this step, and it is asked again."
FULL = f"The plan has {MAX_STEPS} steps, and takes no more: its agent cannot go on. Clone it without what is done."
NO_AGENT = "There is no agent called {name} that {who} may use."
SWITCHED_OFF = "The agent {name} is switched off. An administrator can switch it on."


@dataclass(slots=True)
class AgentStepContext:
    """An agent's step in the hands of the transaction that takes it further."""

    tx: PlanTransaction
    step: ClaimedStep
    plan: Plan
    run: AgentRun
    settings: AgentDocument
    messages: list[Message]
    awaited: list[Awaited] = field(default_factory=list)

    def store(self) -> None:
        """Keep how far the agent has come."""
        self.run.messages = MESSAGES.dump_json(self.messages).decode()
        self.run.pending = AWAITED.dump_json(self.awaited).decode()
        self.run.save()


def begin(tx: PlanTransaction, facts: PlanSnapshot, step: ClaimedStep) -> None:
    """Begin a claimed agent step, or begin it again after it was retried; raises ToolError where no agent may.

    One that is retried goes on with the same conversation, under limits that count anew.
    """
    plan = Plan.objects.select_related("author", "token__user").get(pk=facts.pk)
    agent = Agent.objects.filter(name=step.agent).first()
    if agent is None or not definitions.may_use(plan.author, agent):
        raise ToolError(NO_AGENT.format(name=step.agent, who=plan.author.get_username()))
    if not agent.enabled:
        raise ToolError(SWITCHED_OFF.format(name=agent.name))
    document = agent_document(agent)
    run = AgentRun.objects.filter(step=step.pk).first()
    if run is None:
        run = AgentRun(step_id=step.pk, agent=agent, started_at=tx.now)
        walk = AgentStepContext(tx, step, plan, run, document, [agents_messages.task_of(step)])
    else:
        walk = _open_step_context(tx, step, plan, run, document)
        _record_outcomes(walk, _awaited_children(walk))
        reset_counters(run)
    run.settings, run.agent = document.model_dump_json(), agent
    run.ended_at, run.stopped_for = None, ""
    Plan.objects.filter(pk=plan.pk, has_agents=False).update(has_agents=True)
    tx.locked = tx.locked._replace(has_agents=True)
    _ask_next(walk)


def go_on(tx: PlanTransaction, facts: PlanSnapshot, step: ClaimedStep) -> bool:
    """Take a claimed agent step further that waited for its turn or its calls; False for one that is to begin."""
    run = AgentRun.objects.filter(step=step.pk, ended_at=None).first()
    if run is None:
        return False
    plan = Plan.objects.select_related("author", "token__user").get(pk=facts.pk)
    walk = _open_step_context(tx, step, plan, run, AgentDocument.model_validate_json(run.settings))
    waited_for = _awaited_children(walk)
    if any(child.status in (StepStatus.PENDING, StepStatus.IN_PROGRESS) for child in waited_for.values()):
        _wait_for_children(walk)
    elif walk.awaited and not walk.awaited[0].id:
        _process_turn(walk, waited_for[walk.awaited[0].step_id])
    else:
        _record_outcomes(walk, waited_for)
        _ask_next(walk)
    return True


def _open_step_context(
    tx: PlanTransaction, step: ClaimedStep, plan: Plan, run: AgentRun, settings: AgentDocument
) -> AgentStepContext:
    walk = AgentStepContext(tx, step, plan, run, settings, MESSAGES.validate_json(run.messages))
    walk.awaited = AWAITED.validate_json(run.pending)
    return walk


def _awaited_children(walk: AgentStepContext) -> dict[int, Step]:
    """Return the children that the agent waits for, by number."""
    numbers = [each.step_id for each in walk.awaited if each.step_id]
    rows = Step.objects.filter(plan=walk.plan, parent=walk.step.pk, step_id__in=numbers)
    return {row.step_id: row for row in rows.select_related("call")}


def _ask_next(walk: AgentStepContext) -> None:
    """Have the model asked once more, within the agent's limits."""
    why = limit_reached(walk.run, walk.settings.budget)
    if why is not None:
        _stop(walk, why, limit_text(why, walk.run, walk.settings))
        return
    if walk.plan.steps.count() >= MAX_STEPS:
        _stop(walk, AgentRun.Stopped.FAILED, FULL)
        return
    walk.run.rounds += 1
    (number,) = tool_calls.add_call_steps(
        walk.tx, walk.plan, walk.step, [tool_calls.turn_step(walk.run.rounds, walk.settings.name)]
    )
    walk.awaited = [Awaited(step_id=number)]
    _wait_for_children(walk)


def _process_turn(walk: AgentStepContext, child: Step) -> None:
    """Take in what the model answered: the end of the agent's work, or calls to be made."""
    count_call_time(walk.run, child)
    count_turn(walk.run, child)
    if child.status != StepStatus.COMPLETED or child.skipped or child.call is None:
        _stop_without_answer(walk, child)
        return
    turn = _turn_result(child.call)
    if turn is None:
        _stop(walk, AgentRun.Stopped.FAILED, UNREADABLE)
        return
    walk.messages.append(ModelTurn(text=turn.text, calls=secrets.redacted_calls(turn.calls)))
    turn = secrets.restore_turn_secrets(turn, walk.plan.public_id, child.step_id)
    if turn.calls and turn.cost is None and walk.settings.budget.cost is not None:
        _stop(walk, AgentRun.Stopped.COST, NO_PRICE.format(model=turn.model))
    elif turn.calls:
        _make_calls(walk, turn)
    else:
        _end(walk, turn, child)


def _stop_without_answer(walk: AgentStepContext, child: Step) -> None:
    """Stop for the turn that gave nothing: cut off when the agent's time was up, failed, skipped or cancelled."""
    if child.status == StepStatus.FAILED and is_out_of_time(walk.run, walk.settings.budget):
        why = AgentRun.Stopped.SECONDS
        _stop(walk, why, limit_text(why, walk.run, walk.settings))
        return
    said = child.error or (TURN_SKIPPED if child.skipped else "Its turn was cancelled.")
    _stop(walk, AgentRun.Stopped.FAILED, said)


def _turn_result(call: Call) -> TurnResult | None:
    """Return what the model answered; None where that cannot be read, or people put it in the model's place.

    Who writes what the model says has calls made in its name, and could decide about them too.
    """
    response = call.response_json
    if not isinstance(response, dict) or response.get("responded") or response.get("settled"):
        return None
    try:
        return TurnResult.model_validate(extract_value(response, ["results", "0"]))
    except ValidationError:
        return None


def _end(walk: AgentStepContext, turn: TurnResult, child: Step) -> None:
    """Complete the agent's step with the model's last text."""
    if not turn.text.strip() or child.call is None:
        _stop(walk, AgentRun.Stopped.FAILED, EMPTY_ANSWER)
        return
    walk.run.ended_at, walk.run.stopped_for = walk.tx.now, AgentRun.Stopped.DONE
    walk.awaited = []
    walk.store()
    took = {"rounds": walk.run.rounds, "calls": walk.run.calls, "tokens": walk.run.tokens}
    response = format_success_response(None, {}, [turn.text], tool_name=walk.settings.name, **took)
    ready = finishing.complete(walk.tx, walk.step, response, call=child.call)
    tool_calls.hint_workers(walk.tx, ready)


def _make_calls(walk: AgentStepContext, turn: TurnResult) -> None:
    """Make the calls that the model wants, side by side, unless a limit is reached; none is made of too many."""
    wanted = tool_calls.sort_calls(walk.plan, walk.settings, turn)
    why = limit_reached(walk.run, walk.settings.budget, more_calls=len(wanted.documents))
    if why is not None:
        _stop(walk, why, limit_text(why, walk.run, walk.settings))
        return
    numbers = iter(tool_calls.add_call_steps(walk.tx, walk.plan, walk.step, wanted.documents))
    walk.run.calls += len(wanted.documents)
    walk.awaited = [
        Awaited(id=call.id, tool=call.tool, refusal=refusal, step_id=0 if refusal else next(numbers))
        for call, refusal in zip(turn.calls, wanted.refusals, strict=True)
    ]
    if wanted.documents:
        _wait_for_children(walk)
        return
    _record_outcomes(walk, {})
    _ask_next(walk)


def _record_outcomes(walk: AgentStepContext, ended: dict[int, Step]) -> None:
    """Tell the model what came of its calls, in the order in which it asked for them."""
    results = [
        ToolOutcome(id=each.id, tool=each.tool, text=each.refusal or _outcome_text(walk, ended.get(each.step_id)))
        for each in walk.awaited
        if each.id
    ]
    if results:
        walk.messages.append(ToolOutcomes(results=results))
    walk.awaited = []


def _outcome_text(walk: AgentStepContext, child: Step | None) -> str:
    if child is None:
        return agents_messages.STEP_GONE
    count_call_time(walk.run, child)
    return agents_messages.outcome_of(child, len(walk.awaited))


def _wait_for_children(walk: AgentStepContext) -> None:
    """Wait for the children in the database. Raises Conflict when the lease was lost."""
    walk.store()
    if not statements.release_step(walk.tx.cursor, walk.step, StepWait(WaitingFor.CALLS, None, walk.tx.now)):
        raise Conflict("The agent's step was taken over meanwhile.")
    walk.tx.record("step.waiting", walk.step.step_id, waiting_for="calls", steps=_numbers(walk.awaited))


def _numbers(awaited: Sequence[Awaited]) -> list[int]:
    return [each.step_id for each in awaited if each.step_id]


def _stop(walk: AgentStepContext, why: str, message: str) -> None:
    """Fail the agent's step with why it stopped."""
    walk.run.ended_at, walk.run.stopped_for = walk.tx.now, why
    walk.awaited = []
    walk.store()
    finishing.fail(walk.tx, walk.step, message)


def surroundings(parent_pk: int) -> dict[str, Any]:
    """Return the prompt under which an agent's model asked for its calls, and the model (contract B, `ToolContext`)."""
    text = AgentRun.objects.values_list("settings", flat=True).get(step=parent_pk)
    settings = AgentDocument.model_validate_json(text)
    rendered = agents_messages.render_instructions(settings)
    return {
        "prompt": agents_messages.AGENT,
        "rendered_prompt": rendered,
        "adapter": settings.model or provider.configured_model(),
    }


def require_enabled(parent_pk: int) -> None:
    """Raise ToolError for what an agent asked for that was switched off since, or that the author may use no more."""
    run = AgentRun.objects.select_related("agent", "step__plan__author").filter(step=parent_pk).first()
    if run is None:
        return
    author = run.step.plan.author
    if not definitions.may_use(author, run.agent):
        raise ToolError(NO_AGENT.format(name=run.agent.name, who=author.get_username()))
    if not run.agent.enabled:
        raise ToolError(SWITCHED_OFF.format(name=run.agent.name))


def give_up(tx: PlanTransaction, step: ClaimedStep) -> None:
    """End the run of a step that was refused, and cancel what it asked for in the transaction that broke off."""
    end_agent_runs([step.pk], tx)
    for child in Step.objects.filter(parent=step.pk, status=StepStatus.PENDING):
        cleared = {"completed_at": tx.now, **finishing.RELEASED_COLUMNS}
        if try_move(Step.objects.filter(pk=child.pk), to=StepStatus.CANCELLED, **cleared):
            tx.record("step.cancelled", child.step_id)


UNSETTLED = (StepStatus.PENDING, StepStatus.IN_PROGRESS)


def wake_agents(tx: PlanTransaction) -> None:
    """Let the agents' steps of a plan be claimed that wait for nothing any more, in the transaction that ended it."""
    waiting = Step.objects.filter(plan=tx.plan_pk, status=StepStatus.IN_PROGRESS, waiting_for=WaitingFor.CALLS)
    busy = Step.objects.filter(parent=OuterRef("pk"), status__in=UNSETTLED)
    woken = waiting.filter(~Exists(busy)).update(ready_at=tx.now, waiting_for="")
    hints.hint(tx.plan_pk, woken)
