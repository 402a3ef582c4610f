"""Tool that continues planning after an answer: asks the planner again and returns new steps for the same plan."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.context import ToolContext
from catalog.errors import ToolError
from catalog.tools import tool
from catalog.tools.registry import PLANNER_CATEGORY
from plans import prompts
from plans.documents.reading import Problem
from plans.engine.questions import Exchange, exchanges_for_models
from plans.llm.client import ChatMessage, Purpose, in_database
from plans.models import MemoryItem, Plan
from plans.planner import prompt
from plans.planner.draft_plan import SECONDS, Drafting, DraftRound
from plans.planner.drafts import draft_behind
from plans.planner.output import PlannerOutput, should_execute_tools
from plans.planner.steps import PLAN_ON, StepPlacement, has_plan, steps_for
from plans.planner.validation import JudgedAnswer, judge_steps
from plans.store.plan_documents import agent_calls, removed_step_numbers, step_documents
from plans.store.requesters import Requester
from plans.strategies import PlanningStrategy

MOST_QUESTIONS = 3
MAX_NAMED_KEYS = 3
NO_MORE_QUESTIONS = (
    f"You have asked {MOST_QUESTIONS} questions, which is the maximum. Answer with the information you have."
)
UNUSABLE = "The planner's answer was invalid, also after two attempts to fix it: "
NEXT_ANSWER_PROMPT = "Answer with one JSON object again: what should be done now."
ANSWER_KEY_NOTE = "It is stored under `{key}`. To use it in a parameter, write `${{{key}}}`."
NO_ANSWER = (
    "This question was skipped without an answer. Do what can be done without it, or say that it cannot be done."
)


@dataclass(frozen=True, slots=True)
class PlanningState:
    """State of a plan for further planning: its steps, questions, used keys, and the position of new steps."""

    plan: Plan
    documents: Mapping[int, dict[str, Any]]
    exchanges: Sequence[Exchange]
    keys: frozenset[str]
    first: int
    step_id: int

    def place(self) -> StepPlacement:
        """Return the position of new steps; the first of them depend on the current step."""
        return StepPlacement(self.first, (self.step_id,), set(self.keys))


@tool(name=PLAN_ON, categories=[PLANNER_CATEGORY], returns_private_data=True, retry_safe=True, timeout=SECONDS)
async def plan_on(*, context: ToolContext) -> dict[str, Any]:
    """Ask the planner for the next steps once its question is answered, and add them to the plan."""
    standing = await in_database(load_planning_state, context)
    return await (await in_database(_new_continuation, context, standing)).result()


def load_planning_state(context: ToolContext) -> PlanningState:
    """Load the planning state for a call. Raises ToolError if its plan may not be changed."""
    plan = Plan.objects.select_related("author", "token__user").get(public_id=context.plan_id)
    if not plan.can_modify:
        raise ToolError("This plan cannot be changed: it was submitted with can_modify false.")
    documents = step_documents(plan, opened=True)
    written = plan.memory.filter(type=MemoryItem.Type.VALUE).values_list("key", flat=True)
    named = {str(each["expected_key"]) for each in documents.values() if "expected_key" in each}
    last = max({*documents, *agent_calls(plan), *removed_step_numbers(plan)}, default=0)
    return PlanningState(
        plan, documents, exchanges_for_models(plan.pk), frozenset(named.union(written)), last + 1, context.step_id or 0
    )


def _new_continuation(context: ToolContext, state: PlanningState) -> "PlanContinuation":
    plan, draft = state.plan, draft_behind(state.plan)
    strategy_name = draft.arguments_json.get("strategy") if draft else None
    strategy = PlanningStrategy(strategy_name) if strategy_name else PlanningStrategy.REACT
    by = Requester(plan.author, plan.token, via=plan.via, session=plan.session)
    return PlanContinuation(context, plan.request or plan.goal, strategy, by, standing=state)


@dataclass(slots=True)
class PlanContinuation(Drafting):
    """Planning of one request that continues after an answer."""

    standing: PlanningState = field(kw_only=True)
    purpose: Purpose = "continue"

    def _opening(self) -> Sequence[ChatMessage]:
        return [*prompt.request_message(self.request), *conversation(self.standing)]

    def _judged(self, output: PlannerOutput) -> JudgedAnswer:
        asks = not has_plan(output) and should_execute_tools(output.model_dump()) == "generate_response"
        if asks and len(self.standing.exchanges) >= MOST_QUESTIONS:
            return JudgedAnswer(None, (Problem("needs_user_input", "too_many_questions", "error", NO_MORE_QUESTIONS),))
        steps = steps_for(output, self.by, self.standing.place())
        plan, all_steps = self.standing.plan, [*self.standing.documents.values(), *steps]
        memory = dict.fromkeys(plan.memory.filter(type=MemoryItem.Type.VALUE).values_list("key", flat=True))
        document = {"goal": plan.goal, "steps": all_steps, "memory": memory}
        return judge_steps(output, len(steps), document, by=self.by)

    def _as_result(self, draft_round: DraftRound) -> dict[str, Any]:
        errors, document = draft_round.judged.errors, draft_round.judged.document
        if errors or document is None:
            raise ToolError(UNUSABLE + " ".join(errors[:MAX_NAMED_KEYS]))
        return {
            "output": draft_round.output.model_dump(mode="json"),
            "steps": document["steps"][len(self.standing.documents) :],
            "model": draft_round.answer.model,
            "tokens": self.tokens,
            "rounds": self.rounds,
        }


def conversation(state: PlanningState) -> Iterator[ChatMessage]:
    for each in state.exchanges:
        request = {"intent": state.plan.goal, "needs_user_input": True, "input_request": each.question}
        yield ChatMessage("model", json.dumps(request, ensure_ascii=False))
        key = str(state.documents.get(each.step_id, {}).get("expected_key", ""))
        text = NO_ANSWER
        if each.answer is not None:
            text = prompts.data_block(each.answer, "The user's answer")
            text += f"\n\n{ANSWER_KEY_NOTE.format(key=key)}" if key else ""
        yield ChatMessage("user", f"{text}\n\n{NEXT_ANSWER_PROMPT}")
