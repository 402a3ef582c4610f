"""Errors of model requests. Their messages contain nothing of the prompt, the answer or a key."""

import asyncio

from catalog.errors import DeadlineExceededError, ToolError, ToolgateError

LONGEST_WAIT = 60.0
"""Upper limit in seconds for a provider's retry-after."""


class ModelUnavailable(ToolgateError):
    """The provider is unreachable or overloaded; an attempt after `retry_after` seconds may succeed."""

    kind = "model_unavailable"

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = min(max(retry_after, 0.0), LONGEST_WAIT)


class ModelLimited(ModelUnavailable):
    """The provider's rate limit was reached."""

    kind = "model_rate_limited"


class ModelRefused(ToolError):
    """The provider refused the request and a retry will not help: wrong key, unknown model or prompt too long."""

    kind = "model_refused"


class ModelTooSlow(ToolError):
    """The model did not answer before the call's deadline."""

    kind = "model_timeout"


class AnswerUnreadable(ToolError):
    """The answer does not have the requested shape; `text` is the raw answer, `tokens` the tokens used."""

    kind = "model_unreadable"

    def __init__(self, message: str, text: str, tokens: int = 0) -> None:
        super().__init__(message)
        self.text = text
        self.tokens = tokens


def failure_message(problem: BaseException) -> str:
    """Return a message for people that says why there is no answer."""
    if isinstance(problem, ToolgateError) and not isinstance(problem, DeadlineExceededError):
        return problem.message
    if isinstance(problem, asyncio.CancelledError):
        return "The call was stopped before the model answered."
    return f"The request to the model failed: {type(problem).__name__}."


def failure_from_error(error: Exception) -> ToolgateError:
    """Return the error for an exception of the library; the library's own message is dropped."""
    from pydantic_ai import exceptions as library  # noqa: PLC0415 (it costs seconds to load)

    if isinstance(error, TimeoutError):
        return ModelTooSlow("The model did not answer in time.")
    if isinstance(error, library.ContentFilterError):
        return ModelRefused("The provider's content filter withheld the answer.")
    if isinstance(error, library.UnexpectedModelBehavior):
        return ModelUnavailable("The model's server sent an invalid response.")
    if isinstance(error, library.ModelAPIError):
        return _provider_failure(error)
    return ModelUnavailable(f"The request to the model failed: {type(error).__name__}.")


def _provider_failure(error: Exception) -> ToolgateError:
    from pydantic_ai import exceptions as library  # noqa: PLC0415 (as above)

    status = getattr(error, "status_code", None)
    detail = f" (status {status})" if status else ""
    for kind, words in (
        (library.ModelQuotaExceededError, "The account at the model's provider has no quota or credit left"),
        (library.ModelAuthenticationError, "The model's provider did not accept the key"),
        (library.ModelNotFoundError, "The provider does not know the model, or its base URL is wrong"),
        (library.ModelContextWindowExceededError, "The prompt exceeds the model's context window"),
        (library.ModelRequestRejectedError, "The model's provider refused the request"),
    ):
        if isinstance(error, kind):
            return ModelRefused(f"{words}{detail}.")
    wait = getattr(error, "retry_after", None) or 0.0
    if isinstance(error, library.ModelRateLimitError) or status == 429:
        return ModelLimited(f"The model provider's rate limit was reached{detail}.", wait)
    if isinstance(error, library.ModelTimeoutError | library.ModelRequestTimeout):
        return ModelUnavailable("The model's server did not answer in time.")
    if isinstance(error, library.ModelConnectionError):
        return ModelUnavailable("The model's server cannot be reached.")
    if status is not None and status < 500 and status not in (408, 409, 425):
        return ModelRefused(f"The model's provider refused the request{detail}.")
    return ModelUnavailable(f"The model's server is temporarily unavailable{detail}.", wait)
