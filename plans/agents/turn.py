"""One turn of an agent's model: the tool that asks it. Its text so far is published while it is being written.

Only the loop of an agent has this tool called, as a child of the agent's step. As whenever a model is asked, nothing is
held while it is waited for, and a row says what it read and answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from catalog.context import ToolContext
from catalog.dispatch.serialization import storable_text
from catalog.errors import ToolError
from catalog.inventory.snapshot import CallableTool
from catalog.secrets.placeholders import redact_text
from catalog.tools import tool
from plans.agents import definitions, provider_messages, secrets, tool_calls
from plans.agents import messages as agents_messages
from plans.agents.definitions import AgentDocument
from plans.agents.messages import MESSAGES, Message, TurnResult
from plans.agents.runs import AWAITED
from plans.agents.tool_calls import TURN_TOOL
from plans.live import feed
from plans.llm import client, failures, provider
from plans.llm.client import AskedModel, ModelUseRecord, in_database
from plans.llm.failures import AnswerUnreadable, ModelRefused, ModelUnavailable
from plans.llm.tools import CATEGORY
from plans.models import AgentRun, Step

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, StreamedResponse


PUBLISH_SECONDS = 0.25
"""The text so far is told at most four times a second."""
WITHHELD = "The provider's content filter withheld the answer."
BROKEN_OFF = "The model's server broke off in the middle of the answer."


@dataclass(frozen=True, slots=True)
class ModelConversation:
    """What a model is asked for a call: `model` is empty for the one that TOOLGATE_MODEL names."""

    context: ToolContext
    instructions: str
    messages: Sequence[Message]
    tools: Sequence[CallableTool] = ()
    model: str = ""


async def run_conversation(talk: ModelConversation, tell: Callable[[str], None]) -> TurnResult:
    """Return what the model says and wants called next; `tell` is given its text so far, on this event loop.

    Raises NotConfigured, ModelUnavailable, ModelRefused, ModelTooSlow, and AnswerUnreadable for one that is cut off.
    """
    messages, instructions = (
        provider_messages.sanitized_messages(talk.messages),
        client.without_secrets(talk.instructions),
    )
    told = provider_messages.transcript_messages(instructions, messages, talk.tools)
    shown = ModelConversation(talk.context, instructions, messages, talk.tools, talk.model)
    async with client.record_model_use(AskedModel("agent", talk.context, told, talk.model)) as record:
        response = await _response(shown, record, tell)
        if record.given.is_cut:
            raise AnswerUnreadable(client.ANSWER_CUT_OFF, record.given.text, record.given.tokens)
        return _turn(response, record, messages)


async def _response(talk: ModelConversation, record: ModelUseRecord, tell: Callable[[str], None]) -> "ModelResponse":
    # Loading the library and making the model may take seconds, in which other tools' coroutines are to go on.
    model = await asyncio.to_thread(provider.load_model, talk.model)
    try:
        async with asyncio.timeout(record.asked.seconds):
            response = await _stream_response(model, talk, record, tell)
    except Exception as error:  # noqa: BLE001 - whatever the library raises, its words may hold the prompt or a key
        raise failures.failure_from_error(error) from None
    if response.finish_reason == "content_filter":
        raise ModelRefused(WITHHELD)
    if response.state != "complete":
        raise ModelUnavailable(BROKEN_OFF)
    return response


async def _stream_response(
    model: "Model", talk: ModelConversation, record: ModelUseRecord, tell: Callable[[str], None]
) -> "ModelResponse":
    """Return the whole answer; the record has what came of it, also of one that was stopped."""
    from pydantic_ai.direct import model_request_stream  # noqa: PLC0415 (it costs seconds to load)
    from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415 (as above)

    offered = ModelRequestParameters(function_tools=provider_messages.tool_definitions(talk.tools))
    sent = provider_messages.library_messages(talk.instructions, talk.messages)
    request = model_request_stream(model, sent, model_settings=client.ONE_TRY, model_request_parameters=offered)
    async with request as stream:
        speech = _StreamedText(stream, tell)
        try:
            async for _ in stream:
                speech.goes_on()
        finally:
            speech.stop()
            response = stream.get()
            record.given = client.answer_from_response(response, model.model_name)
        return response


class _StreamedText:
    """The text of an answer while it comes in: told soon after it has changed, and not too often."""

    def __init__(self, stream: "StreamedResponse", tell: Callable[[str], None]) -> None:
        self._stream = stream
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._told = ""
        self._told_at = self._loop.time() - PUBLISH_SECONDS
        self._next: asyncio.TimerHandle | None = None

    def goes_on(self) -> None:
        """Tell what there is, now or as soon as it may be told again."""
        if self._next is None:
            self._next = self._loop.call_at(self._told_at + PUBLISH_SECONDS, self._say)

    def stop(self) -> None:
        """Tell nothing more."""
        if self._next is not None:
            self._next.cancel()

    def _say(self) -> None:
        self._next, self._told_at = None, self._loop.time()
        text = self._stream.get().text or ""
        if text != self._told:
            self._told = text
            self._tell(redact_text(storable_text(text)))


def _turn(response: "ModelResponse", record: ModelUseRecord, before: Sequence[Message]) -> TurnResult:
    given = record.given
    return TurnResult(
        text=client.without_secrets(given.text),
        calls=provider_messages.parse_tool_calls(response, before),
        model=given.model,
        input_tokens=given.input_tokens,
        output_tokens=given.output_tokens,
        cost=None if given.cost is None else str(given.cost),
    )


SECONDS = 300.0
STREAM_MARGIN_SECONDS = 0.1
OUT_OF_TIME = "The agent's time was up before its model had answered. Retry this step to let it go on."
NO_TURN = "Only an agent's step has its model asked, and it waits for no such turn. Give a step an agent instead."
SWITCHED_OFF = "The agent {name} was switched off meanwhile. An administrator can switch it on."
NOT_THEIRS = "{who} may not use the agent {name} any more. An administrator can let them."
TURN_NOT_AWAITED = "Nobody waits for this turn any more: its agent's step has ended."
POLL_SECONDS = 1.0
"""How often a turn looks whether its agent still waits for it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked, and the number of the agent's step, on whose page its text so far is shown."""

    talk: ModelConversation
    plan_ref: str
    agent_step: int
    seconds: float | None
    """How long the agent may still work; None: as long as a turn may take."""


@tool(name=TURN_TOOL, categories=[CATEGORY], returns_private_data=True, retry_safe=True, timeout=SECONDS)
async def agent_turn(*, context: ToolContext) -> dict[str, Any]:
    """Ask the model of an agent what it does next. Toolgate calls this itself for steps that agents carry out."""
    turn = await in_database(turn_of, context)
    watch = None
    try:
        async with asyncio.timeout(turn.seconds) as limit:
            watch = asyncio.create_task(_stop_when_unwanted(context, limit))
            said = await run_conversation(turn.talk, partial(feed.publish_model_text, turn.plan_ref, turn.agent_step))
    except TimeoutError:
        raise ToolError(TURN_NOT_AWAITED if watch is not None and watch.done() else OUT_OF_TIME) from None
    finally:
        if watch is not None:
            watch.cancel()
        feed.publish_model_text(turn.plan_ref, turn.agent_step, "")
    result = await in_database(secrets.store_turn_secrets, said, turn.plan_ref, context.step_id or 0)
    return result.model_dump(mode="json")


async def _stop_when_unwanted(context: ToolContext, limit: asyncio.Timeout) -> None:
    """End the request once the agent waits for it no more: a person skipped its step, in whatever process."""
    while await in_database(lambda: _run(_step(context)) is not None):
        await asyncio.sleep(POLL_SECONDS)
    limit.reschedule(asyncio.get_running_loop().time())


def turn_of(context: ToolContext) -> Turn:
    """Return what is asked in a call. Raises ToolError where no agent waits for it, or it was switched off."""
    step = _step(context)
    run = _run(step)
    if step is None or run is None:
        raise ToolError(NO_TURN)
    if not run.agent.enabled:
        raise ToolError(SWITCHED_OFF.format(name=run.agent.name))
    if not definitions.may_use(step.plan.author, run.agent):
        raise ToolError(NOT_THEIRS.format(who=step.plan.author.get_username(), name=run.agent.name))
    settings = AgentDocument.model_validate_json(run.settings)
    prompt = agents_messages.render_instructions(settings, is_last=run.rounds >= settings.budget.rounds)
    tools = tuple(tool_calls.tools_to_offer(settings.tools, step.plan, run.step.description).values())
    messages = MESSAGES.validate_json(run.messages)
    talk = ModelConversation(context, prompt.text, messages, tools, settings.model)
    budget = settings.budget.seconds
    seconds = None if budget is None else max(STREAM_MARGIN_SECONDS, budget - run.seconds)
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
