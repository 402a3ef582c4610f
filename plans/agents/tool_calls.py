"""Tools offered to an agent's model, and the steps created from the calls that it requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice

from pydantic import ValidationError

from catalog.definitions.levels import SafetyLevel
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from catalog.tools.registry import get_tool, unknown_tool_error
from plans.agents.definitions import AgentDocument, ToolFilter
from plans.agents.messages import TurnResult
from plans.documents import references
from plans.engine import hints
from plans.engine.extensions import CALL_WITHOUT_TEXT
from plans.engine.questions import ASK_USER
from plans.llm.tools import rank_tools, tools_callable_by
from plans.models import AGENT_TURN, Plan, Step, StepAsker
from plans.spec import MAX_STEP_ID, MAX_STEPS, StepDocument
from plans.store.plan_documents import removed_step_numbers, step_columns, store_step_secrets
from plans.store.requesters import Requester
from plans.store.statements import ClaimedStep
from plans.store.transactions import PlanTransaction

LEVELS = (SafetyLevel.SAFE, SafetyLevel.CAUTIOUS, SafetyLevel.DANGEROUS)
MOST_TOOLS = 128
"""Limit of providers for one request. If there are more, tools named in the filter and those that fit the task win."""


def tools_to_offer(tool_filter: ToolFilter, plan: Plan, task: str = "") -> Mapping[str, CallableTool]:
    """Return the tools to offer, sorted by name, at most as many as providers accept."""
    found = tools_allowed(tool_filter, plan)
    if len(found) <= MOST_TOOLS:
        return found
    named = set(tool_filter.names)
    first = sorted(rank_tools(found, task), key=lambda name: name not in named)[:MOST_TOOLS]
    return {name: found[name] for name in sorted(first)}


def tools_allowed(tool_filter: ToolFilter, plan: Plan) -> Mapping[str, CallableTool]:
    """Return all allowed tools, sorted by name. `ask_user` is included only if the filter names it."""
    by = Requester(plan.author, plan.token, via=plan.via, session=plan.session)
    names, categories = set(tool_filter.names), set(tool_filter.categories)
    max_rank = LEVELS.index(SafetyLevel(tool_filter.max_level))
    found: dict[str, CallableTool] = {}
    for name, each in tools_callable_by(by).items():
        is_named = name in names or not categories.isdisjoint(each.tool.categories) or not (names or categories)
        if is_named and LEVELS.index(SafetyLevel(each.tool.safety_level)) <= max_rank:
            found[name] = each
    asks = snapshot.callable_tool(ASK_USER) if ASK_USER in tool_filter.names else None
    if asks is not None and asks.enabled:
        found[ASK_USER] = asks
    return dict(sorted(found.items()))


TURN_TOOL = AGENT_TURN
MOST_AT_ONCE = 20
LONGEST_DESCRIPTION = 300
NOT_OFFERED = "You may not call {tool}. Call one of the tools you were given."
TOO_MANY = "This call was not made: at most {most} calls run at once. Request it again once the others are done."
FULL = f"This call was not made: the plan has {MAX_STEPS} steps, which is the maximum. Answer with what you have."
NOT_STORED = "This call was not made: its arguments cannot be stored. {why}"


@dataclass(frozen=True, slots=True)
class SortedCalls:
    """Steps to store for a model's calls, and for each call the reason it is refused, or an empty string."""

    documents: Sequence[StepDocument]
    refusals: Sequence[str]


def turn_step(number: int, name: str) -> StepDocument:
    """Return the step of one model turn; its step id is assigned when it is stored."""
    return StepDocument(step_id=1, description=f"Turn {number} of {name}", tool=TURN_TOOL)


def sort_calls(plan: Plan, document: AgentDocument, turn: TurnResult) -> SortedCalls:
    """Return the steps for the allowed calls, and the reasons for refusing the others."""
    offered = tools_allowed(document.tools, plan)
    room = min(MOST_AT_ONCE, MAX_STEPS - plan.steps.count() - 1)  # one for the turn that reads the results
    documents: list[StepDocument] = []
    refusals = []
    words = " ".join(turn.text.replace("\0", " ").split())
    for call in turn.calls:
        refusal = call.problem
        if call.tool not in offered:
            is_known = get_tool(call.tool) is not None
            refusal = (
                NOT_OFFERED.format(tool=call.tool)
                if is_known
                else str(unknown_tool_error(call.tool[:64], among=offered))
            )
        if not refusal and len(documents) >= room:
            refusal = TOO_MANY.format(most=MOST_AT_ONCE) if room == MOST_AT_ONCE else FULL
        if not refusal:
            try:
                documents.append(
                    StepDocument(
                        step_id=1,
                        description=words[:LONGEST_DESCRIPTION] or CALL_WITHOUT_TEXT.format(tool=call.tool),
                        tool=call.tool,
                        parameters=references.escape_references(call.arguments),
                    )
                )
            except ValidationError as problem:
                refusal = NOT_STORED.format(why=problem.errors()[0]["msg"][:200])
        refusals.append(refusal)
    return SortedCalls(documents, refusals)


def add_call_steps(
    tx: PlanTransaction, plan: Plan, parent_step: ClaimedStep, documents: Sequence[StepDocument]
) -> list[int]:
    """Store child steps of an agent, ready to be claimed, and return their step ids. They inherit the requesters."""
    # Step ids that the plan never used: the next ones, or the lowest free ones near the maximum.
    taken = set(plan.steps.values_list("step_id", flat=True)) | removed_step_numbers(plan)
    first = max(taken) + 1 if max(taken) + 1 <= MAX_STEP_ID - MAX_STEPS else 1
    numbers = list(islice((number for number in count(first) if number not in taken), len(documents)))
    numbered = [each.model_copy(update={"step_id": number}) for number, each in zip(numbers, documents, strict=True)]
    steps = Step.objects.bulk_create(
        Step(plan=plan, parent_id=parent_step.pk, step_id=each.step_id, ready_at=tx.now, **step_columns(each))
        for each in numbered
    )
    store_step_secrets(plan.public_id, numbered)
    people = list(StepAsker.objects.filter(step=parent_step.pk).values_list("person_id", flat=True))
    StepAsker.objects.bulk_create(StepAsker(step=step, person_id=person) for step in steps for person in people)
    if numbers:
        turn = {"turn": True} if documents[0].tool == TURN_TOOL else {}
        tx.record("plan.changed", parent_step.step_id, by=f"the agent {parent_step.agent}", added=numbers, **turn)
    hint_workers(tx, len(numbers))
    return numbers


def hint_workers(tx: PlanTransaction, ready: int) -> None:
    hints.hint(tx.plan_pk, ready)
