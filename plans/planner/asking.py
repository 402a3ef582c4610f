"""Asking a language model once: what it is sent, how long it is waited for, and what is kept of it.

Nothing is held while it is waited for but the call itself: no transaction, no connection. Whatever comes of it, a row
says what the model read and answered. Prompts and answers are never logged.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from catalog import clock
from catalog.context import ToolContext
from catalog.models import Call
from catalog.secrets import scrub_words, shown_text
from catalog.storable import clean
from plans.models import ModelUse, Plan
from plans.planner import failures, provider
from plans.planner.database import in_database
from plans.planner.failures import AnswerUnreadable, ModelRefused, ModelTooSlow, ModelUnavailable
from plans.planner.reading import Unreadable, read_answer

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

__all__ = ["Answer", "AnswerUnreadable", "ModelRefused", "ModelTooSlow", "ModelUnavailable", "Said", "ask"]

Purpose = Literal["draft", "repair", "continue", "reply", "agent"]
CUT_OFF = "The model's answer was cut off: it is longer than the model may answer."
WITHOUT_DEADLINE = 120.0
MARGIN_SECONDS = 1.0
"""How long before the call's own end a model is given up, so that there is time to say so."""

logger = logging.getLogger("toolgate.models")


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the conversation: what the asker's side said, or what the model answered before."""

    by: Literal["user", "model"]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model answered: its text, and `data` in the shape that was asked for. `cost` is in US dollars."""

    text: str
    data: Any = None
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    is_cut: bool = False

    @property
    def tokens(self) -> int:
        """How many tokens were read and written."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What is sent, without secrets, and for which call."""

    purpose: Purpose
    context: ToolContext
    instructions: str
    messages: Sequence[Said]
    began: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """How long the model may take."""
        deadline = self.context.deadline
        left = deadline.remaining() if deadline else WITHOUT_DEADLINE
        return max(0.1, left - min(MARGIN_SECONDS, left / 4))

    def as_json(self) -> str:
        """Return it as it is kept."""
        told = [{"by": "instructions", "text": self.instructions}]
        told += [{"by": each.by, "text": each.text} for each in self.messages]
        return json.dumps(told, ensure_ascii=False)


async def ask(
    purpose: Purpose,
    *,
    context: ToolContext,
    instructions: str,
    messages: Sequence[Said],
    answer: type[BaseModel] | None = None,
) -> Answer:
    """Ask the model once within the call's deadline, and keep that it was asked, whatever comes of it.

    Raises NotConfigured, ModelUnavailable, ModelRefused, ModelTooSlow and AnswerUnreadable.
    """
    said = [replace(each, text=without_secrets(each.text)) for each in messages]
    prompt = _Prompt(purpose, context, without_secrets(instructions), said)
    given = Answer("", model=provider.name())
    error = ""
    try:
        given = await _answer_to(prompt)
        return replace(given, data=_read(given, answer))
    except BaseException as problem:
        error = failures.words_of(problem)
        raise
    finally:
        logger.info("model_asked purpose=%s model=%s answered=%s", purpose, given.model, not error)
        await asyncio.shield(in_database(_keep, prompt, given, error))


def without_secrets(text: str) -> str:
    """Return a text as a provider may read it, and as it can be kept: secrets are cut out, and HMACs of those."""
    return clean(shown_text(scrub_words(text)))


async def _answer_to(prompt: _Prompt) -> Answer:
    # Loading the library and making the model may take seconds, in which other tools' coroutines are to go on.
    model = await asyncio.to_thread(provider.model)
    from pydantic_ai.direct import model_request  # noqa: PLC0415 (it costs seconds to load)

    try:
        async with asyncio.timeout(prompt.seconds):
            response = await model_request(model, _sent(prompt), model_settings={"max_retries": 0})
    except Exception as error:  # noqa: BLE001 - whatever the library raises, its words may hold the prompt or a key
        raise failures.failure_of(error) from None
    usage, name = response.usage, clean(response.model_name or model.model_name)[:128]
    is_cut = response.finish_reason == "length"
    return Answer(response.text or "", None, name, usage.input_tokens, usage.output_tokens, _cost_of(response), is_cut)


def _sent(prompt: _Prompt) -> "list[ModelMessage]":
    """Return the conversation as the library sends it; instructions go with the message that is to be answered."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart  # noqa: PLC0415 (as above)

    sent: list[ModelMessage] = []
    for each in prompt.messages:
        if each.by == "model":
            sent.append(ModelResponse(parts=[TextPart(each.text)]))
        else:
            sent.append(ModelRequest(parts=[UserPromptPart(each.text)], instructions=prompt.instructions))
    return sent


def _cost_of(response: "ModelResponse") -> Decimal | None:
    """Return what the answer cost by the price list that came with the library; None for a model that is not in it."""
    try:
        return round(response.cost().total_price, 6)
    except Exception:  # noqa: BLE001 - a price that nobody knows must not cost the answer
        return None


def _read(given: Answer, shape: type[BaseModel] | None) -> BaseModel | None:
    if given.is_cut:
        raise AnswerUnreadable(CUT_OFF, given.text, given.tokens)
    try:
        return read_answer(given.text, shape) if shape else None
    except Unreadable as problem:
        raise AnswerUnreadable(str(problem), given.text, given.tokens) from None


def _keep(prompt: _Prompt, given: Answer, error: str) -> None:
    """Store that the model was asked."""
    answered = [{"by": "model", "text": without_secrets(given.text)}] if given.text else None
    ModelUse.objects.create(
        call=Call.objects.only("pk").get(public_id=prompt.context.call_id),
        plan=Plan.objects.only("pk").get(public_id=prompt.context.plan_id),
        purpose=prompt.purpose,
        model=given.model,
        prompt=prompt.as_json(),
        answer=json.dumps(answered, ensure_ascii=False) if answered else "",
        input_tokens=given.input_tokens,
        output_tokens=given.output_tokens,
        cost=given.cost,
        latency_ms=round((monotonic() - prompt.began) * 1000),
        error=clean(error),
        at=clock.now(),
    )
