"""What can go wrong when a model is asked, in words that hold nothing of the prompt, of the answer or of a key."""

import asyncio

from catalog.errors import DeadlineExceededError, ToolError, ToolgateError

LONGEST_WAIT = 60.0
"""Seconds: a provider that asks for more is not waited for longer."""


class ModelUnavailable(ToolgateError):
    """The model did not answer now: its provider is away, overloaded, or limits how often it is asked.

    `retry_after` is how many seconds the provider asks to be left alone.
    """

    kind = "model_unavailable"

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = min(max(retry_after, 0.0), LONGEST_WAIT)


class ModelLimited(ModelUnavailable):
    """The provider limits how often it is asked."""

    kind = "model_rate_limited"


class ModelRefused(ToolError):
    """The model will not answer, however often it is asked: a wrong key, an unknown model, a prompt too long."""

    kind = "model_refused"


class ModelTooSlow(ToolError):
    """The model did not answer before the call's time was over."""

    kind = "model_timeout"


class AnswerUnreadable(ToolError):
    """The model answered, but not in the shape that was asked for; `text` is what it said, in so many tokens."""

    kind = "model_unreadable"

    def __init__(self, message: str, text: str, tokens: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.tokens = tokens


def failure_message(problem: BaseException) -> str:
    """Return why there is no answer, for a person."""
    if isinstance(problem, ToolgateError) and not isinstance(problem, DeadlineExceededError):
        return problem.message
    if isinstance(problem, asyncio.CancelledError):
        return "The call was stopped before the model had answered."
    return f"The model could not be asked: {type(problem).__name__}."


def failure_from_error(error: Exception) -> ToolgateError:
    """Return what an exception of the library means to whoever asked; its own words are dropped."""
    from pydantic_ai import exceptions as library  # noqa: PLC0415 (it costs seconds to load)

    if isinstance(error, TimeoutError):
        return ModelTooSlow("The model did not answer in time.")
    if isinstance(error, library.ContentFilterError):
        return ModelRefused("The provider's content filter withheld the answer.")
    if isinstance(error, library.UnexpectedModelBehavior):
        return ModelUnavailable("The model's server answered with something that is no answer.")
    if isinstance(error, library.ModelAPIError):
        return _provider_failure(error)
    return ModelUnavailable(f"The model could not be asked: {type(error).__name__}.")


def _provider_failure(error: Exception) -> ToolgateError:
    from pydantic_ai import exceptions as library  # noqa: PLC0415 (as above)

    status = getattr(error, "status_code", None)
    said = f" (status {status})" if status else ""
    for kind, words in (
        (library.ModelQuotaExceededError, "The account at the model's provider has no quota or credit left"),
        (library.ModelAuthenticationError, "The model's provider did not accept the key"),
        (library.ModelNotFoundError, "The provider does not know the model, or its base URL is wrong"),
        (library.ModelContextWindowExceededError, "The prompt is longer than the model reads"),
        (library.ModelRequestRejectedError, "The model's provider refused the request"),
    ):
        if isinstance(error, kind):
            return ModelRefused(f"{words}{said}.")
    wait = getattr(error, "retry_after", None) or 0.0
    if isinstance(error, library.ModelRateLimitError) or status == 429:
        return ModelLimited(f"The model's provider limits how often it is asked{said}.", wait)
    if isinstance(error, library.ModelTimeoutError | library.ModelRequestTimeout):
        return ModelUnavailable("The model's server did not answer in time.")
    if isinstance(error, library.ModelConnectionError):
        return ModelUnavailable("The model's server cannot be reached.")
    if status is not None and status < 500 and status not in (408, 409, 425):
        return ModelRefused(f"The model's provider refused the request{said}.")
    return ModelUnavailable(f"The model's server is not able to answer now{said}.", wait)
