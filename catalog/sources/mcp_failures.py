"""Everything that can go wrong with a request to an upstream MCP server, and the consequences (docs/sources.md).

The upstream chooses error codes and texts, so they decide nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from catalog.errors import EffectUnknown, ToolgateError, UpstreamError, UpstreamUnavailable
from catalog.sources.definitions import visible_text

MAX_RESPONSE = 8 * 1024 * 1024
"""Bytes of one HTTP response of an upstream."""
PATIENCE = 10
"""Longest wait for a call that reports progress, as a multiple of the timeout of its source."""
MAX_WORDS = 1000


class Fault(StrEnum):
    """The place at which a failure was seen."""

    NOT_SENT = "not_sent"
    SESSION_LOST = "session_lost"
    REFUSED = "refused"
    DENIED = "denied"
    RATE_LIMITED = "rate_limited"
    REDIRECTED = "redirected"
    INPUT_REQUIRED = "input_required"
    NO_MESSAGE = "no_message"
    UNANSWERED = "unanswered"
    NOT_MCP = "not_mcp"
    TOO_LARGE = "too_large"
    TIMED_OUT = "timed_out"


class Effect(StrEnum):
    NONE = "none"
    """The upstream did not run the call, or reported how it ended: the call fails."""
    UNKNOWN = "unknown"
    """The call may have run, but its answer is lost: it runs again if that is harmless, else its outcome is unknown."""
    UNKNOWN_ONCE = "unknown_once"
    """The call may have run and would fail in the same way again: it is never repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The consequences of a fault.

    `seen` describes the fault in docs/sources.md. `sentence` is the error message; its placeholders are `source`,
    `request` (such as "the call"), `status`, `seconds`, `said` (": " and the upstream's words, or a full stop) and
    `wait`. `kind` is the error's kind, unless the effect is unknown. If `new_session`, later calls open a new session.
    """

    seen: str
    sentence: str
    effect: Effect = Effect.NONE
    kind: str = "upstream_refused"
    new_session: bool = False


MEANINGS: Mapping[Fault, Meaning] = {
    Fault.NOT_SENT: Meaning(
        seen="The upstream cannot be reached, or its program has ended: nothing was sent",
        sentence="{source} cannot be reached.",
        kind="upstream_unavailable",
        new_session=True,
    ),
    Fault.SESSION_LOST: Meaning(
        seen="HTTP 404, or 400, to a request of a session, with any body",
        sentence="{source} did not accept the session ({status}){said}",
        new_session=True,
    ),
    Fault.REFUSED: Meaning(
        seen="A JSON-RPC error with any code, over HTTP with any other status, or another 4xx status",
        sentence="{source} refused {request}{said}",
    ),
    Fault.DENIED: Meaning(
        seen="HTTP 401 or 403",
        sentence="{source} did not accept the stored credential ({status}){said}",
        kind="upstream_denied",
    ),
    Fault.RATE_LIMITED: Meaning(
        seen="HTTP 429",
        sentence="{source} is rate-limiting requests ({status}){said}{wait}",
        kind="upstream_rate_limited",
    ),
    Fault.REDIRECTED: Meaning(
        seen="HTTP 307 or 308 to another origin",
        sentence="{source} redirects requests to another origin ({status}). Nothing ran; check its URL.",
    ),
    Fault.INPUT_REQUIRED: Meaning(
        seen="The upstream answers that it needs input from a person or a model",
        sentence="{source} asks for input, which Toolgate does not forward{said}",
    ),
    Fault.NO_MESSAGE: Meaning(
        seen="HTTP 202, another 3xx, or 5xx without a JSON-RPC error",
        sentence="{source} answered {request} with the status {status} and no result.",
        effect=Effect.UNKNOWN,
        new_session=True,
    ),
    Fault.UNANSWERED: Meaning(
        seen="The connection, the stream of events or the program ends before the answer",
        sentence="The connection to {source} broke before it answered {request}.",
        effect=Effect.UNKNOWN,
        new_session=True,
    ),
    Fault.NOT_MCP: Meaning(
        seen="An answer with status 2xx that is no MCP message",
        sentence="{source} answered {request} with something that is not MCP.",
        effect=Effect.UNKNOWN_ONCE,
        kind="upstream_malformed",
        new_session=True,
    ),
    Fault.TOO_LARGE: Meaning(
        seen="An answer over HTTP of more than 8 MiB, or a compressed one",
        sentence="{source} answered {request} with more than 8 MiB, or compressed.",
        effect=Effect.UNKNOWN_ONCE,
        kind="upstream_too_large",
    ),
    Fault.TIMED_OUT: Meaning(
        seen="No answer and no progress within the source's timeout, or no answer within ten times that",
        sentence=(
            "{source} did not answer {request} within {seconds:g} seconds. "
            "An administrator can change the timeout of the source on its page."
        ),
        effect=Effect.UNKNOWN_ONCE,
        kind="timeout",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure: `words` of the upstream, `status` of its HTTP answer, `seconds` that it had to answer.

    The transport stores it as the data of a JSON-RPC error. An upstream cannot forge it: its data is plain JSON.
    """

    fault: Fault
    words: str = ""
    status: int | None = None
    retry_after: int | None = None
    seconds: float = 0.0

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.fault]

    def sentence(self, source: str, request: str) -> str:
        """Return the error message; `request` is what failed, such as "the call"."""
        said = visible_text(self.words)[:MAX_WORDS]
        wait = f" Try again in {self.retry_after} seconds." if self.retry_after is not None else ""
        return self.meaning.sentence.format(
            source=source,
            request=request,
            status=self.status,
            seconds=self.seconds,
            said=f": {said}" if said else ".",
            wait=wait,
        )


class RequestFailed(Exception):
    """A request to an upstream that has no result."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.fault)
        self.failure = failure


def call_error(failure: Failure, source: str, *, is_repeatable: bool) -> ToolgateError:
    message, meaning = failure.sentence(source, "the call"), failure.meaning
    if failure.fault is Fault.NOT_SENT:
        return UpstreamUnavailable(message)
    is_lost = meaning.effect is Effect.UNKNOWN or (meaning.effect is Effect.UNKNOWN_ONCE and not is_repeatable)
    if is_lost and failure.fault is not Fault.TIMED_OUT:  # the kind of a timeout has the same consequence
        return EffectUnknown(message)
    return UpstreamError(message, meaning.kind, http_status=failure.status, retry_after=failure.retry_after)


def words_of(error: Mapping[str, Any]) -> str:
    """Return the message in a JSON-RPC error, or in another JSON error that HTTP servers send."""
    for name in ("message", "detail", "error_description", "title", "error"):
        if isinstance(error.get(name), str) and error[name].strip():
            return str(error[name])
    return ""
