"""Loop of an agent's step: ask the model, make the calls it requests, send it the results, until it finishes.

The agent's step runs nothing itself. Each model turn and each call is a child step with its own call through the gate;
the agent's step waits for them in the database and holds no thread or lease. When the last one has ended, the step can
be claimed again, and one transaction here reads the results and requests what comes next. A process may die at any
point without anything being done twice. Each limit ends the loop with its own message.
"""

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
    "The agent stopped: the price of {model} is unknown, so its cost cannot be limited. Limit its tokens instead."
)
RETRY_HINT = "Retry this step to let it continue with a fresh budget."


def limit_reached(run: AgentRun, budget: AgentBudget, *, more_calls: int = 0) -> str | None:
    """Return the limit that `more_calls` further calls and a turn to read their results would exceed, or None."""
    over = {
        AgentRun.Stopped.ROUNDS: run.rounds >= budget.rounds,
        AgentRun.Stopped.CALLS: budget.calls is not None and run.calls + more_calls > budget.calls,
        AgentRun.Stopped.TOKENS: budget.tokens is not None and run.tokens >= budget.tokens,
        AgentRun.Stopped.COST: budget.cost is not None and run.cost >= budget.cost,
        AgentRun.Stopped.SECONDS: is_out_of_time(run, budget),
    }
    return next((limit.value for limit, is_over in over.items() if is_over), None)


def is_out_of_time(run: AgentRun, budget: AgentBudget) -> bool:
    return budget.seconds is not None and run.seconds >= budget.seconds


def limit_text(why: str, run: AgentRun, document: AgentDocument) -> str:
    budget, name = document.budget, document.name
    turns = "1 model turn" if run.rounds == 1 else f"{run.rounds} model turns"
    reasons = {
        AgentRun.Stopped.ROUNDS: f"after {turns}. {TOO_MANY_ROUNDS}",
        AgentRun.Stopped.CALLS: f"before it made more than {budget.calls} calls.",
        AgentRun.Stopped.TOKENS: f"after {run.tokens:,} tokens; it may use {budget.tokens or 0:,}.",
        AgentRun.Stopped.COST: f"after {run.cost:.4f} US dollars; it may cost {budget.cost}.",
        AgentRun.Stopped.SECONDS: f"after {run.seconds:.0f} seconds of work; it may take {budget.seconds}.",
    }
    return f"The agent {name} stopped {reasons[AgentRun.Stopped(why)]} {RETRY_HINT}"


def reset_counters(run: AgentRun) -> None:
    run.rounds = run.calls = run.tokens = 0
    run.cost, run.seconds = Decimal(0), 0.0


def count_turn(run: AgentRun, turn_step: Step) -> None:
    """Add the tokens and cost of one model turn, including failed attempts."""
    read, written, cost = Sum("input_tokens"), Sum("output_tokens"), Sum("cost")
    took = ModelUse.objects.filter(call=turn_step.call_id).aggregate(read=read, written=written, cost=cost)
    run.tokens += (took["read"] or 0) + (took["written"] or 0)
    run.cost += took["cost"] or Decimal(0)


def count_call_time(run: AgentRun, step: Step) -> None:
    call = step.call
    if call is not None and call.started_at is not None and call.finished_at is not None:
        run.seconds += max(0.0, (call.finished_at - call.started_at).total_seconds())


UNREADABLE = "The model's response could not be parsed. Retry this step to ask again."
EMPTY_ANSWER = "The model's response was empty: no text and no call. Retry this step to ask again."
TURN_SKIPPED = "A person skipped the model's turn, so the agent cannot continue. Retry this step to ask again."
FULL = (
    f"The plan has {MAX_STEPS} steps, which is the maximum, so its agent cannot continue. "
    "Clone the plan without completed steps."
)
NO_AGENT = "There is no agent called {name} that {who} may use."
DISABLED = "The agent {name} is disabled. An administrator can enable it."


@dataclass(slots=True)
class AgentStepContext:
    tx: PlanTransaction
    step: ClaimedStep
    plan: Plan
    run: AgentRun
    settings: AgentDocument
    messages: list[Message]
    awaited: list[Awaited] = field(default_factory=list)

    def store(self) -> None:
        self.run.messages = MESSAGES.dump_json(self.messages).decode()
        self.run.pending = AWAITED.dump_json(self.awaited).decode()
        self.run.save()


def begin(tx: PlanTransaction, snapshot: PlanSnapshot, step: ClaimedStep) -> None:
    """Begin a claimed agent step, or continue it with reset counters. Raises ToolError if the agent may not be used."""
    plan = Plan.objects.select_related("author", "token__user").get(pk=snapshot.pk)
    agent = Agent.objects.filter(name=step.agent).first()
    if agent is None or not definitions.may_use(plan.author, agent):
        raise ToolError(NO_AGENT.format(name=step.agent, who=plan.author.get_username()))
    if not agent.enabled:
        raise ToolError(DISABLED.format(name=agent.name))
    document = agent_document(agent)
    run = AgentRun.objects.filter(step=step.pk).first()
    if run is None:
        run = AgentRun(step_id=step.pk, agent=agent, started_at=tx.now)
        context = AgentStepContext(tx, step, plan, run, document, [agents_messages.task_of(step)])
    else:
        context = _open_step_context(tx, step, plan, run, document)
        _record_outcomes(context, _awaited_children(context))
        reset_counters(run)
    run.settings, run.agent = document.model_dump_json(), agent
    run.ended_at, run.stopped_for = None, ""
    Plan.objects.filter(pk=plan.pk, has_agents=False).update(has_agents=True)
    tx.locked = tx.locked._replace(has_agents=True)
    _ask_next(context)


def go_on(tx: PlanTransaction, snapshot: PlanSnapshot, step: ClaimedStep) -> bool:
    """Advance a claimed agent step that waited for its turn or its calls; return False if it has not begun."""
    run = AgentRun.objects.filter(step=step.pk, ended_at=None).first()
    if run is None:
        return False
    plan = Plan.objects.select_related("author", "token__user").get(pk=snapshot.pk)
    context = _open_step_context(tx, step, plan, run, AgentDocument.model_validate_json(run.settings))
    waited_for = _awaited_children(context)
    if any(child.status in (StepStatus.PENDING, StepStatus.IN_PROGRESS) for child in waited_for.values()):
        _wait_for_children(context)
    elif context.awaited and not context.awaited[0].id:
        _process_turn(context, waited_for[context.awaited[0].step_id])
    else:
        _record_outcomes(context, waited_for)
        _ask_next(context)
    return True


def _open_step_context(
    tx: PlanTransaction, step: ClaimedStep, plan: Plan, run: AgentRun, document: AgentDocument
) -> AgentStepContext:
    context = AgentStepContext(tx, step, plan, run, document, MESSAGES.validate_json(run.messages))
    context.awaited = AWAITED.validate_json(run.pending)
    return context


def _awaited_children(context: AgentStepContext) -> dict[int, Step]:
    numbers = [each.step_id for each in context.awaited if each.step_id]
    rows = Step.objects.filter(plan=context.plan, parent=context.step.pk, step_id__in=numbers)
    return {row.step_id: row for row in rows.select_related("call")}


def _ask_next(context: AgentStepContext) -> None:
    why = limit_reached(context.run, context.settings.budget)
    if why is not None:
        _stop(context, why, limit_text(why, context.run, context.settings))
        return
    if context.plan.steps.count() >= MAX_STEPS:
        _stop(context, AgentRun.Stopped.FAILED, FULL)
        return
    context.run.rounds += 1
    (number,) = tool_calls.add_call_steps(
        context.tx, context.plan, context.step, [tool_calls.turn_step(context.run.rounds, context.settings.name)]
    )
    context.awaited = [Awaited(step_id=number)]
    _wait_for_children(context)


def _process_turn(context: AgentStepContext, step: Step) -> None:
    count_call_time(context.run, step)
    count_turn(context.run, step)
    if step.status != StepStatus.COMPLETED or step.skipped or step.call is None:
        why = AgentRun.Stopped.FAILED
        reason = step.error or (TURN_SKIPPED if step.skipped else "Its turn was cancelled.")
        if step.status == StepStatus.FAILED and is_out_of_time(context.run, context.settings.budget):
            why = AgentRun.Stopped.SECONDS
            reason = limit_text(why, context.run, context.settings)
        _stop(context, why, reason)
        return
    turn = _turn_result(step.call)
    if turn is None:
        _stop(context, AgentRun.Stopped.FAILED, UNREADABLE)
        return
    context.messages.append(ModelTurn(text=turn.text, calls=secrets.redacted_calls(turn.calls)))
    turn = secrets.restore_turn_secrets(turn, context.plan.public_id, step.step_id)
    if turn.calls and turn.cost is None and context.settings.budget.cost is not None:
        _stop(context, AgentRun.Stopped.COST, NO_PRICE.format(model=turn.model))
    elif turn.calls:
        _make_calls(context, turn)
    else:
        _end(context, turn, step)


def _turn_result(call: Call) -> TurnResult | None:
    """Return the model's response; None if it cannot be parsed or a person entered it.

    Otherwise a person could enter calls for the agent to make, and then approve those calls.
    """
    response = call.response_json
    if not isinstance(response, dict) or response.get("responded") or response.get("settled"):
        return None
    try:
        return TurnResult.model_validate(extract_value(response, ["results", "0"]))
    except ValidationError:
        return None


def _end(context: AgentStepContext, turn: TurnResult, step: Step) -> None:
    if not turn.text.strip() or step.call is None:
        _stop(context, AgentRun.Stopped.FAILED, EMPTY_ANSWER)
        return
    context.run.ended_at, context.run.stopped_for = context.tx.now, AgentRun.Stopped.DONE
    context.awaited = []
    context.store()
    took = {"rounds": context.run.rounds, "calls": context.run.calls, "tokens": context.run.tokens}
    response = format_success_response(None, {}, [turn.text], tool_name=context.settings.name, **took)
    ready = finishing.complete(context.tx, context.step, response, call=step.call)
    tool_calls.hint_workers(context.tx, ready)


def _make_calls(context: AgentStepContext, turn: TurnResult) -> None:
    """Make all calls of a model turn, which run in parallel; make none if they would exceed a limit."""
    requested = tool_calls.sort_calls(context.plan, context.settings, turn)
    why = limit_reached(context.run, context.settings.budget, more_calls=len(requested.documents))
    if why is not None:
        _stop(context, why, limit_text(why, context.run, context.settings))
        return
    numbers = iter(tool_calls.add_call_steps(context.tx, context.plan, context.step, requested.documents))
    context.run.calls += len(requested.documents)
    context.awaited = [
        Awaited(id=call.id, tool=call.tool, refusal=refusal, step_id=0 if refusal else next(numbers))
        for call, refusal in zip(turn.calls, requested.refusals, strict=True)
    ]
    if requested.documents:
        _wait_for_children(context)
        return
    _record_outcomes(context, {})
    _ask_next(context)


def _record_outcomes(context: AgentStepContext, ended_steps: dict[int, Step]) -> None:
    """Append the results of the model's calls to the conversation, in the order of the requests."""
    results = []
    for each in (one for one in context.awaited if one.id):
        step = ended_steps.get(each.step_id)
        text = each.refusal or agents_messages.STEP_GONE
        if step is not None and not each.refusal:
            count_call_time(context.run, step)
            text = agents_messages.outcome_of(step, len(context.awaited))
        images = agents_messages.images_of(step) if step is not None else []
        results.append(ToolOutcome(id=each.id, tool=each.tool, text=text, images=images))
    if results:
        context.messages.append(ToolOutcomes(results=results))
    context.awaited = []


def _wait_for_children(context: AgentStepContext) -> None:
    """Release the step until its children have ended. Raises Conflict if the lease was lost."""
    context.store()
    if not statements.release_step(context.tx.cursor, context.step, StepWait(WaitingFor.CALLS, None, context.tx.now)):
        raise Conflict("Another worker took over the agent's step.")
    steps = [each.step_id for each in context.awaited if each.step_id]
    context.tx.record("step.waiting", context.step.step_id, waiting_for="calls", steps=steps)


def _stop(context: AgentStepContext, why: str, message: str) -> None:
    context.run.ended_at, context.run.stopped_for = context.tx.now, why
    context.awaited = []
    context.store()
    finishing.fail(context.tx, context.step, message)


def surroundings(parent_pk: int) -> dict[str, Any]:
    """Return prompt and model of the agent that requested a call, for the call's `ToolContext` (contract B)."""
    text = AgentRun.objects.values_list("settings", flat=True).get(step=parent_pk)
    settings = AgentDocument.model_validate_json(text)
    rendered = agents_messages.render_instructions(settings)
    return {
        "prompt": agents_messages.AGENT,
        "rendered_prompt": rendered,
        "adapter": settings.model or provider.configured_model(),
    }


def require_enabled(parent_pk: int) -> None:
    """Raise ToolError if the agent of a child step was switched off or the plan's author may no longer use it."""
    run = AgentRun.objects.select_related("agent", "step__plan__author").filter(step=parent_pk).first()
    if run is None:
        return
    author = run.step.plan.author
    if not definitions.may_use(author, run.agent):
        raise ToolError(NO_AGENT.format(name=run.agent.name, who=author.get_username()))
    if not run.agent.enabled:
        raise ToolError(DISABLED.format(name=run.agent.name))


def give_up(tx: PlanTransaction, step: ClaimedStep) -> None:
    """End the run of an agent step that failed to advance, and cancel the children requested in the failed attempt."""
    end_agent_runs([step.pk], tx)
    for child in Step.objects.filter(parent=step.pk, status=StepStatus.PENDING):
        cleared = {"completed_at": tx.now, **finishing.RELEASED_COLUMNS}
        if try_move(Step.objects.filter(pk=child.pk), to=StepStatus.CANCELLED, **cleared):
            tx.record("step.cancelled", child.step_id)


UNSETTLED = (StepStatus.PENDING, StepStatus.IN_PROGRESS)


def wake_agents(tx: PlanTransaction) -> None:
    """Make agent steps whose children have all ended ready to be claimed, in the transaction that ended a child."""
    waiting = Step.objects.filter(plan=tx.plan_pk, status=StepStatus.IN_PROGRESS, waiting_for=WaitingFor.CALLS)
    busy = Step.objects.filter(parent=OuterRef("pk"), status__in=UNSETTLED)
    woken = waiting.filter(~Exists(busy)).update(ready_at=tx.now, waiting_for="")
    hints.hint(tx.plan_pk, woken)
