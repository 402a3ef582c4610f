"""One request to a language model: its timeout and its stored record.

No transaction and no database connection is held while waiting for the model. Every request is stored as a ModelUse
row, also if it failed. Prompts and answers are never logged.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from django.db import connection
from pydantic import BaseModel

from catalog.context import ToolContext
from catalog.core import clock
from catalog.dispatch.serialization import storable_text
from catalog.models import Call
from catalog.secrets.placeholders import redact_text, without_macs
from plans.llm import failures, provider
from plans.llm.failures import AnswerUnreadable, ModelRefused, ModelTooSlow, ModelUnavailable
from plans.models import ModelUse, Plan

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.settings import ModelSettings


ResultT = TypeVar("ResultT")
DATABASE_THREADS = 2


async def in_database(work: Callable[..., ResultT], *given: Any) -> ResultT:
    """Run `work` in a thread with its own database connection; return its result or raise its exception."""

    def run() -> ResultT:
        try:
            return work(*given)
        finally:
            connection.close()

    return await asyncio.get_running_loop().run_in_executor(_threads(), copy_context().run, run)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(DATABASE_THREADS, thread_name_prefix="toolgate-model-rows")


__all__ = ["Answer", "AnswerUnreadable", "ChatMessage", "ModelRefused", "ModelTooSlow", "ModelUnavailable", "ask_model"]

Purpose = Literal["draft", "repair", "continue", "reply", "agent"]
ANSWER_CUT_OFF = "The model's answer was cut off at its maximum length."
LONGEST_NAME = 128
DEFAULT_SECONDS = 120.0
MARGIN_SECONDS = 1.0
"""Seconds before the call's deadline at which the request is cancelled, to leave time to report it."""

ONE_TRY: "ModelSettings" = {"max_retries": 0}
"""No retries in the client library: the engine retries, where attempts are visible and counted."""

logger = logging.getLogger("toolgate.models")


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of the conversation: sent for the user, or an earlier answer of the model."""

    by: Literal["user", "model"]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer: its text, and `data` in the requested shape. `cost` is in US dollars, None if unknown.

    `is_cut` is true if the answer reached the model's maximum length.
    """

    text: str
    data: Any = None
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    is_cut: bool = False

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """One request to a model: its call, the messages to store, and the model's name.

    `messages` contains no secrets; an empty `model` stands for the model in TOOLGATE_MODEL.
    """

    purpose: Purpose
    context: ToolContext
    messages: Sequence[Mapping[str, str]]
    model: str = ""
    began: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """Timeout of the request in seconds."""
        deadline = self.context.deadline
        left = deadline.remaining() if deadline else DEFAULT_SECONDS
        return max(0.1, left - min(MARGIN_SECONDS, left / 4))


@dataclass(slots=True)
class ModelUseRecord:
    prompt: ModelPrompt
    answer: Answer
    error: str = ""


async def ask_model(
    purpose: Purpose,
    *,
    context: ToolContext,
    instructions: str,
    messages: Sequence[ChatMessage],
    read: Callable[[Answer], BaseModel] | None = None,
) -> Answer:
    """Send one request to the model within the call's deadline and store its record, also if it fails.

    `read` returns the `data` of the answer, or raises AnswerUnreadable.
    Raises NotConfigured, ModelUnavailable, ModelRefused, ModelTooSlow and AnswerUnreadable.
    """
    sanitized = [replace(each, text=without_secrets(each.text)) for each in messages]
    instructions = without_secrets(instructions)
    transcript = [
        {"by": "instructions", "text": instructions},
        *({"by": each.by, "text": each.text} for each in sanitized),
    ]
    async with record_model_use(ModelPrompt(purpose, context, transcript)) as record:
        # In a thread: loading the library and creating the model may take seconds and would block the event loop.
        model = await asyncio.to_thread(provider.load_model, record.prompt.model)
        from pydantic_ai.direct import model_request  # noqa: PLC0415 (it costs seconds to load)
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart  # noqa: PLC0415 (as above)

        sent: list[ModelMessage] = []
        for each in sanitized:
            if each.by == "model":
                sent.append(ModelResponse(parts=[TextPart(each.text)]))
            else:  # the library attaches instructions to the user's messages
                sent.append(ModelRequest(parts=[UserPromptPart(each.text)], instructions=instructions))
        try:
            async with asyncio.timeout(record.prompt.seconds):
                response = await model_request(model, sent, model_settings=ONE_TRY)
        except Exception as error:  # noqa: BLE001 - the library's message may contain the prompt or a key
            raise failures.failure_from_error(error) from None
        record.answer = answer = answer_from_response(response, model.model_name)
        if answer.is_cut:
            raise AnswerUnreadable(ANSWER_CUT_OFF, answer.text, answer.tokens)
        return replace(answer, data=read(answer)) if read else answer


@asynccontextmanager
async def record_model_use(prompt: ModelPrompt) -> AsyncIterator[ModelUseRecord]:
    """Store the record of a request when the block ends, with the error if the block raises."""
    record = ModelUseRecord(prompt, Answer("", model=(prompt.model or provider.configured_model())[:LONGEST_NAME]))
    try:
        yield record
    except BaseException as problem:
        record.error = failures.failure_message(problem)
        raise
    finally:
        logger.info(
            "model_asked purpose=%s model=%s answered=%s", prompt.purpose, record.answer.model, not record.error
        )
        await asyncio.shield(in_database(_store_use, record))


def without_secrets(text: str) -> str:
    """Return the text with secrets and their HMACs removed, fit to be sent to a provider and stored."""
    return storable_text(without_macs(redact_text(text)))


def answer_from_response(response: "ModelResponse", name: str) -> Answer:
    """Return the library's response as an Answer; `name` is used if the response does not name the model."""
    usage, name = response.usage, storable_text(response.model_name or name)[:LONGEST_NAME]
    is_cut = response.finish_reason == "length"
    return Answer(response.text or "", None, name, usage.input_tokens, usage.output_tokens, _cost_of(response), is_cut)


def _cost_of(response: "ModelResponse") -> Decimal | None:
    """Return the cost in US dollars by the library's price list; None for a model that is not listed."""
    try:
        return round(response.cost().total_price, 6)
    except Exception:  # noqa: BLE001 - an unknown price must not discard the answer
        return None


def _store_use(record: ModelUseRecord) -> None:
    prompt, answer = record.prompt, record.answer
    answered = [{"by": "model", "text": without_secrets(answer.text)}] if answer.text else None
    ModelUse.objects.create(
        call=Call.objects.only("pk").get(public_id=prompt.context.call_id),
        plan=Plan.objects.only("pk").get(public_id=prompt.context.plan_id),
        purpose=prompt.purpose,
        model=answer.model,
        prompt=json.dumps(prompt.messages, ensure_ascii=False),
        answer=json.dumps(answered, ensure_ascii=False) if answered else "",
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cost=answer.cost,
        latency_ms=round((monotonic() - prompt.began) * 1000),
        error=storable_text(record.error),
        at=clock.now(),
    )
