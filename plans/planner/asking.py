"""Asking a language model once: what it is sent, how long it is waited for, and what is kept of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from catalog.context import ToolContext
from catalog.errors import ToolError, ToolgateError

Purpose = Literal["draft", "repair", "continue", "reply", "agent"]


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the conversation: what the asker's side said, or what the model answered before."""

    by: Literal["user", "model"]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model answered: its text, and `data` in the shape that was asked for."""

    text: str
    data: BaseModel | None = None
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class ModelUnavailable(ToolgateError):
    """The model did not answer now: its provider is away, overloaded, or limits how often it is asked."""

    kind = "model_unavailable"


class ModelRefused(ToolError):
    """The model will not answer, however often it is asked: a wrong key, an unknown model, a prompt too long."""

    kind = "model_refused"


class AnswerUnreadable(ToolError):
    """The model answered, but not in the shape that was asked for; `text` is what it said."""

    kind = "model_unreadable"

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


async def ask(
    purpose: Purpose,
    *,
    context: ToolContext,
    instructions: str,
    messages: Sequence[Said],
    answer: type[BaseModel] | None = None,
) -> Answer:
    """Ask the model once within the call's deadline, and keep that it was asked, whatever comes of it.

    Raises NotConfigured, ModelUnavailable, ModelRefused and AnswerUnreadable.
    """
    raise NotImplementedError
