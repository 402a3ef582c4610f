"""Asking an agent's model what it does next: its answer comes in pieces, and its text so far is told as it comes.

As whenever a model is asked, nothing is held while it is waited for, and a row says what it read and answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.context import ToolContext
from catalog.dispatch.serialization import clean
from catalog.inventory.snapshot import CallableTool
from catalog.secrets.placeholders import scrub_words
from plans.agents import wire
from plans.agents.conversation import Message, TurnResult
from plans.llm import client, failures, provider
from plans.llm.client import Asked, Record
from plans.llm.failures import AnswerUnreadable, ModelRefused, ModelUnavailable

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, StreamedResponse

TELL_SECONDS = 0.25
"""The text so far is told at most four times a second."""
WITHHELD = "The provider's content filter withheld the answer."
BROKEN_OFF = "The model's server broke off in the middle of the answer."


@dataclass(frozen=True, slots=True)
class Talk:
    """What a model is asked for a call: `model` is empty for the one that TOOLGATE_MODEL names."""

    context: ToolContext
    instructions: str
    messages: Sequence[Message]
    tools: Sequence[CallableTool] = ()
    model: str = ""


async def converse(talk: Talk, tell: Callable[[str], None]) -> TurnResult:
    """Return what the model says and wants called next; `tell` is given its text so far, on this event loop.

    Raises NotConfigured, ModelUnavailable, ModelRefused, ModelTooSlow, and AnswerUnreadable for one that is cut off.
    """
    messages, instructions = wire.shown(talk.messages), client.without_secrets(talk.instructions)
    told = wire.kept(instructions, messages, talk.tools)
    shown = Talk(talk.context, instructions, messages, talk.tools, talk.model)
    async with client.recorded(Asked("agent", talk.context, told, talk.model)) as record:
        response = await _response(shown, record, tell)
        if record.given.is_cut:
            raise AnswerUnreadable(client.CUT_OFF, record.given.text, record.given.tokens)
        return _turn(response, record, messages)


async def _response(talk: Talk, record: Record, tell: Callable[[str], None]) -> "ModelResponse":
    # Loading the library and making the model may take seconds, in which other tools' coroutines are to go on.
    model = await asyncio.to_thread(provider.model, talk.model)
    try:
        async with asyncio.timeout(record.asked.seconds):
            response = await _streamed(model, talk, record, tell)
    except Exception as error:  # noqa: BLE001 - whatever the library raises, its words may hold the prompt or a key
        raise failures.failure_of(error) from None
    if response.finish_reason == "content_filter":
        raise ModelRefused(WITHHELD)
    if response.state != "complete":
        raise ModelUnavailable(BROKEN_OFF)
    return response


async def _streamed(model: "Model", talk: Talk, record: Record, tell: Callable[[str], None]) -> "ModelResponse":
    """Return the whole answer; the record has what came of it, also of one that was stopped."""
    from pydantic_ai.direct import model_request_stream  # noqa: PLC0415 (it costs seconds to load)
    from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415 (as above)

    offered = ModelRequestParameters(function_tools=wire.definitions(talk.tools))
    sent = wire.sent(talk.instructions, talk.messages)
    request = model_request_stream(model, sent, model_settings=client.ONE_TRY, model_request_parameters=offered)
    async with request as stream:
        speech = _Speech(stream, tell)
        try:
            async for _ in stream:
                speech.goes_on()
        finally:
            speech.stop()
            response = stream.get()
            record.given = client.answer_from(response, model.model_name)
        return response


class _Speech:
    """The text of an answer while it comes in: told soon after it has changed, and not too often."""

    def __init__(self, stream: "StreamedResponse", tell: Callable[[str], None]) -> None:
        self._stream = stream
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._told = ""
        self._told_at = self._loop.time() - TELL_SECONDS
        self._next: asyncio.TimerHandle | None = None

    def goes_on(self) -> None:
        """Tell what there is, now or as soon as it may be told again."""
        if self._next is None:
            self._next = self._loop.call_at(self._told_at + TELL_SECONDS, self._say)

    def stop(self) -> None:
        """Tell nothing more."""
        if self._next is not None:
            self._next.cancel()

    def _say(self) -> None:
        self._next, self._told_at = None, self._loop.time()
        text = self._stream.get().text or ""
        if text != self._told:
            self._told = text
            self._tell(scrub_words(clean(text)))


def _turn(response: "ModelResponse", record: Record, before: Sequence[Message]) -> TurnResult:
    given = record.given
    return TurnResult(
        text=client.without_secrets(given.text),
        calls=wire.calls_in(response, before),
        model=given.model,
        input_tokens=given.input_tokens,
        output_tokens=given.output_tokens,
        cost=None if given.cost is None else str(given.cost),
    )
