"""Tool that drafts a plan: ask the planner, validate its answer, let it fix errors, and return a plan document.

Nothing that a model answers is executed or stored as a plan here; people review the draft.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from catalog.context import ToolContext
from catalog.errors import ToolError
from catalog.models import Call
from catalog.secrets.placeholders import redact_text
from catalog.tools import tool
from catalog.tools.registry import PLANNER_CATEGORY
from plans.llm import client
from plans.llm.client import Answer, ChatMessage, in_database
from plans.llm.failures import AnswerUnreadable
from plans.models import Plan
from plans.planner import prompt
from plans.planner.drafts import LONGEST_REQUEST
from plans.planner.output import PlannerOutput, read_output
from plans.planner.validation import JudgedAnswer, judge_answer, without_reply
from plans.states import DRAFT_TOOL
from plans.store.requesters import Requester
from plans.strategies import PlanningStrategy

REPAIRS = 2
PLAN_FAILED = "Plan failed: "
"""Prefix of the error for an unreadable answer, fixed by contract C."""
SECONDS = 120.0
RATE = "10/min"
"""Limit of drafts for each caller: each draft asks a paid model up to three times."""


@tool(
    name=DRAFT_TOOL,
    categories=[PLANNER_CATEGORY],
    returns_private_data=True,
    retry_safe=True,
    timeout=SECONDS,
    rate_limit=RATE,
)
async def draft_plan(
    request: Annotated[str, Field(min_length=1, max_length=LONGEST_REQUEST)],
    strategy: PlanningStrategy = PlanningStrategy.REACT,
    *,
    context: ToolContext,
) -> dict[str, Any]:
    """Turn a request in words into a plan that people can look at, change and start."""
    drafting = Drafting(context, redact_text(request), strategy, await in_database(requester_of_call, context))
    return await drafting.result()


def requester_of_call(context: ToolContext) -> Requester:
    """Return the requester of a call. Raises ToolError if it has none."""
    call = Call.objects.select_related("requested_by", "token__user").get(public_id=context.call_id)
    plan = Plan.objects.only("via", "session").get(public_id=context.plan_id)
    if call.requested_by is None:
        raise ToolError("This call has no requester, so no plan can be drafted for it.")
    return Requester(call.requested_by, call.token, via=plan.via, session=plan.session)


@dataclass(frozen=True, slots=True)
class DraftRound:
    answer: Answer
    judged: JudgedAnswer

    @property
    def output(self) -> PlannerOutput:
        assert isinstance(self.answer.data, PlannerOutput)  # noqa: S101 (the model was asked for this type)
        return self.answer.data


@dataclass(slots=True)
class Drafting:
    """Drafting of one request; `request` contains no secrets."""

    context: ToolContext
    request: str
    strategy: PlanningStrategy
    by: Requester
    rounds: int = 0
    tokens: int = 0
    purpose: client.Purpose = "draft"

    async def result(self) -> dict[str, Any]:
        """Ask the planner, with up to two repairs, and return the result. Raises the errors of `client.ask_model`."""
        by_requester = partial(prompt.instructions_for, by=self.by)
        instructions = await in_database(by_requester, self.request, self.strategy)
        messages = await in_database(self._opening)
        last: DraftRound | AnswerUnreadable | None = None
        while self.rounds <= REPAIRS:
            last = await self._ask(instructions, messages)
            if isinstance(last, AnswerUnreadable):
                messages = [*messages, *prompt.correction_messages(last.text, [last.message])]
                continue
            if not last.judged.errors:
                break
            messages = [*messages, *prompt.correction_messages(last.answer.text, last.judged.errors)]
        if not isinstance(last, DraftRound):
            assert last is not None  # noqa: S101 (the loop runs at least once)
            raise AnswerUnreadable(PLAN_FAILED + last.message, last.text, last.tokens)
        return self._as_result(last)

    async def _ask(self, instructions: str, messages: Sequence[ChatMessage]) -> DraftRound | AnswerUnreadable:
        self.rounds += 1
        purpose = self.purpose if self.rounds == 1 else "repair"
        try:
            answer = await client.ask_model(
                purpose, context=self.context, instructions=instructions, messages=messages, read=read_output
            )
        except AnswerUnreadable as problem:
            self.tokens += problem.tokens
            return problem
        self.tokens += answer.tokens
        output = without_reply(answer.data)
        return DraftRound(replace(answer, data=output), await in_database(self._judged, output))

    def _opening(self) -> Sequence[ChatMessage]:
        return prompt.request_message(self.request)

    def _judged(self, output: PlannerOutput) -> JudgedAnswer:
        return judge_answer(output, by=self.by)

    def _as_result(self, draft_round: DraftRound) -> dict[str, Any]:
        return {
            "output": draft_round.output.model_dump(mode="json"),
            "plan": draft_round.judged.document,
            "problems": [problem.as_json() for problem in draft_round.judged.problems],
            "model": draft_round.answer.model,
            "tokens": self.tokens,
            "rounds": self.rounds,
        }
