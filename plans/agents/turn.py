"""Tool that runs one turn of an agent's model. The text so far is published while the model writes.

No lock or database connection is held while waiting, and a row records input and output.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from catalog.context import ToolContext
from catalog.dispatch.serialization import storable_text
from catalog.errors import ToolError
from catalog.inventory.snapshot import CallableTool
from catalog.secrets.placeholders import redact_text
from catalog.tools import tool
from catalog.tools.registry import PLANNER_CATEGORY
from plans.agents import definitions, provider_messages, secrets, tool_calls
from plans.agents import messages as agents_messages
from plans.agents.definitions import AgentDocument
from plans.agents.messages import MESSAGES, Message, TurnResult
from plans.agents.runs import AWAITED
from plans.agents.tool_calls import TURN_TOOL
from plans.live import feed
from plans.llm import client, failures, provider
from plans.llm.client import ModelPrompt, ModelUseRecord, in_database
from plans.llm.failures import AnswerUnreadable, ModelRefused, ModelUnavailable
from plans.models import AgentRun, Step

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, StreamedResponse


PUBLISH_SECONDS = 0.25
"""Minimum interval between publications of the text so far."""
IMAGE_REFUSALS = frozenset({400, 413, 415, 422})
"""HTTP statuses of providers that do not take images; the request is sent once more without them."""
WITHHELD = "The provider's content filter blocked the response."
BROKEN_OFF = "The connection to the model ended in the middle of its response."


@dataclass(frozen=True, slots=True)
class ModelConversation:
    """Input of one model request; an empty `model` stands for TOOLGATE_MODEL."""

    context: ToolContext
    instructions: str
    messages: Sequence[Message]
    tools: Sequence[CallableTool] = ()
    model: str = ""
    images: provider_messages.Images = field(default_factory=dict)


async def run_conversation(conversation: ModelConversation, publish: Callable[[str], None]) -> TurnResult:
    """Return the model's text and requested calls; `publish` receives the text so far, on this event loop.

    Raises NotConfigured, ModelUnavailable, ModelRefused, ModelTooSlow, and AnswerUnreadable for a truncated response.
    """
    messages, instructions = (
        provider_messages.sanitized_messages(conversation.messages),
        client.without_secrets(conversation.instructions),
    )
    transcript = provider_messages.transcript_messages(instructions, messages, conversation.tools)
    images = await in_database(provider_messages.load_images, messages)
    sanitized = replace(conversation, instructions=instructions, messages=messages, images=images)
    async with client.record_model_use(
        ModelPrompt("agent", conversation.context, transcript, conversation.model)
    ) as record:
        response = await _response(sanitized, record, publish)
        if record.answer.is_cut:
            raise AnswerUnreadable(client.ANSWER_CUT_OFF, record.answer.text, record.answer.tokens)
        answer = record.answer
        return TurnResult(
            text=client.without_secrets(answer.text),
            calls=provider_messages.parse_tool_calls(response, messages),
            model=answer.model,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            cost=None if answer.cost is None else str(answer.cost),
        )


async def _response(
    conversation: ModelConversation, record: ModelUseRecord, publish: Callable[[str], None]
) -> "ModelResponse":
    # Loading the library and the model may take seconds; other coroutines must not wait for that.
    model = await asyncio.to_thread(provider.load_model, conversation.model)
    if not model.profile.get("supports_image_input", True):
        conversation = replace(conversation, images={})
    try:
        async with asyncio.timeout(record.prompt.seconds):
            try:
                response = await _stream_response(model, conversation, record, publish)
            except Exception as error:
                if not conversation.images or getattr(error, "status_code", None) not in IMAGE_REFUSALS:
                    raise
                response = await _stream_response(model, replace(conversation, images={}), record, publish)
    except Exception as error:  # noqa: BLE001 - any exception's text may contain the prompt or a key
        raise failures.failure_from_error(error) from None
    if response.finish_reason == "content_filter":
        raise ModelRefused(WITHHELD)
    if response.state != "complete":
        raise ModelUnavailable(BROKEN_OFF)
    return response


async def _stream_response(
    model: "Model", conversation: ModelConversation, record: ModelUseRecord, publish: Callable[[str], None]
) -> "ModelResponse":
    """Return the whole response; store it in the record even if the stream is interrupted."""
    from pydantic_ai.direct import model_request_stream  # noqa: PLC0415 (it costs seconds to load)
    from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415 (as above)

    offered = ModelRequestParameters(function_tools=provider_messages.tool_definitions(conversation.tools))
    sent = provider_messages.library_messages(conversation.instructions, conversation.messages, conversation.images)
    request = model_request_stream(model, sent, model_settings=client.ONE_TRY, model_request_parameters=offered)
    async with request as stream:
        text_stream = _StreamedText(stream, publish)
        try:
            async for _ in stream:
                text_stream.schedule()
        finally:
            text_stream.stop()
            response = stream.get()
            record.answer = client.answer_from_response(response, model.model_name)
        return response


class _StreamedText:
    """Text of a response while it streams in, published after changes at most every PUBLISH_SECONDS."""

    def __init__(self, stream: "StreamedResponse", publish: Callable[[str], None]) -> None:
        self._stream = stream
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._published = ""
        self._published_at = self._loop.time() - PUBLISH_SECONDS
        self._next: asyncio.TimerHandle | None = None

    def schedule(self) -> None:
        """Publish the current text now or after the minimum interval."""
        if self._next is None:
            self._next = self._loop.call_at(self._published_at + PUBLISH_SECONDS, self._publish_now)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _publish_now(self) -> None:
        self._next, self._published_at = None, self._loop.time()
        text = self._stream.get().text or ""
        if text != self._published:
            self._published = text
            self._publish(redact_text(storable_text(text)))


SECONDS = 300.0
STREAM_MARGIN_SECONDS = 0.1
OUT_OF_TIME = "The agent ran out of time before its model responded. Retry this step to continue."
NO_TURN = "No agent waits for this model turn. Set `agent` on a step instead of calling this tool."
DISABLED = "The agent {name} was disabled. An administrator can enable it."
NOT_THEIRS = "{who} may no longer use the agent {name}. An administrator can allow it."
TURN_NOT_AWAITED = "This turn is no longer needed, because its agent's step has ended."
POLL_SECONDS = 1.0
"""Interval at which a turn checks that its agent still waits for it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Model request of one turn, and the id of the agent's step, which shows the text while it is written."""

    conversation: ModelConversation
    plan_ref: str
    agent_step: int
    seconds: float | None
    """Remaining seconds of the agent's budget; None means no limit besides the tool's timeout."""


@tool(name=TURN_TOOL, categories=[PLANNER_CATEGORY], returns_private_data=True, retry_safe=True, timeout=SECONDS)
async def agent_turn(*, context: ToolContext) -> dict[str, Any]:
    """Ask the model of an agent what it does next. Toolgate calls this itself for steps that agents carry out."""
    turn = await in_database(turn_of, context)
    watch = None
    try:
        async with asyncio.timeout(turn.seconds) as limit:
            watch = asyncio.create_task(_stop_when_unwanted(context, limit))
            answer = await run_conversation(
                turn.conversation, partial(feed.publish_model_text, turn.plan_ref, turn.agent_step)
            )
    except TimeoutError:
        raise ToolError(TURN_NOT_AWAITED if watch is not None and watch.done() else OUT_OF_TIME) from None
    finally:
        if watch is not None:
            watch.cancel()
        feed.publish_model_text(turn.plan_ref, turn.agent_step, "")
    result = await in_database(secrets.store_turn_secrets, answer, turn.plan_ref, context.step_id or 0)
    return result.model_dump(mode="json")


async def _stop_when_unwanted(context: ToolContext, limit: asyncio.Timeout) -> None:
    """Stop the request once the agent no longer waits for it, such as when a person skipped its step."""
    while await in_database(lambda: _run(_step(context)) is not None):
        await asyncio.sleep(POLL_SECONDS)
    limit.reschedule(asyncio.get_running_loop().time())


def turn_of(context: ToolContext) -> Turn:
    """Return the turn of a call. Raises ToolError if no agent waits for it, or the agent may no longer be used."""
    step = _step(context)
    run = _run(step)
    if step is None or run is None:
        raise ToolError(NO_TURN)
    if not run.agent.enabled:
        raise ToolError(DISABLED.format(name=run.agent.name))
    if not definitions.may_use(step.plan.author, run.agent):
        raise ToolError(NOT_THEIRS.format(who=step.plan.author.get_username(), name=run.agent.name))
    settings = AgentDocument.model_validate_json(run.settings)
    prompt = agents_messages.render_instructions(settings, is_last=run.rounds >= settings.budget.rounds)
    tools = tuple(tool_calls.tools_to_offer(settings.tools, step.plan, run.step.description).values())
    messages = MESSAGES.validate_json(run.messages)
    conversation = ModelConversation(context, prompt.text, messages, tools, settings.model)
    budget = settings.budget.seconds
    seconds = None if budget is None else max(STREAM_MARGIN_SECONDS, budget - run.seconds)
    return Turn(conversation, step.plan.public_id, run.step.step_id, seconds)


def _step(context: ToolContext) -> Step | None:
    found = Step.objects.filter(plan__public_id=context.plan_id, step_id=context.step_id or 0).exclude(parent=None)
    return found.select_related("plan__author", "plan__token__user").first()


def _run(step: Step | None) -> AgentRun | None:
    """Return the agent run that waits for exactly this turn."""
    if step is None:
        return None
    run = AgentRun.objects.select_related("agent", "step").filter(step=step.parent_id, ended_at=None).first()
    waited_for = AWAITED.validate_json(run.pending) if run is not None else []
    is_this = [(each.id, each.step_id) for each in waited_for] == [("", step.step_id)]
    return run if is_this else None
