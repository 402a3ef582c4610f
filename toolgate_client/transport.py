"""Requests to Toolgate, apart from the way in which they are sent.

A *flow* is a generator: it yields a `Request`, a `Pause` or an `Act` and is sent the outcome. `Client` and
`AsyncClient` each drive flows in their own way (`drive`, `drive_async`), so that everything else is written once.
"""

import json
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias, TypeVar

import httpx

from toolgate_client.errors import (
    ConnectionLost,
    MalformedAnswer,
    ProblemDocument,
    ServerError,
    ToolgateError,
    problem_for,
)

MAX_ANSWER_BYTES = 16 * 1024 * 1024
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""Time for an answer beyond the seconds that the server was asked to wait."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
JSON_TYPES = ("application/json", "application/problem+json")
STILL_RUNNING = "urn:toolgate:still_running"
IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,128}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be repeated: it reads, has an idempotency key, or names what it asks about by an id.

    `wait_seconds` is how long the server was asked to hold its answer.
    """

    method: str
    path: str
    query: Mapping[str, str | int | float] = field(default_factory=dict)
    body: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: float = 0.0

    def timeout(self) -> httpx.Timeout:
        """Return the limits of connecting, writing and each read."""
        return httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=self.wait_seconds + ANSWER_SECONDS)

    def content(self) -> bytes | None:
        """Return the body as JSON. Raises TypeError or ValueError for a value that JSON does not have."""
        return None if self.body is None else json.dumps(self.body, allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it arrived, whole and within the limits."""

    status: int
    headers: httpx.Headers
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Lost:
    """A request without a usable answer."""

    error: ToolgateError
    may_be_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Act:
    """A user's function to call with its approved arguments; the flow is sent its value or thrown its exception."""

    function: Callable[[dict[str, Any]], Any]
    arguments: dict[str, Any] = field(repr=False)


Wish: TypeAlias = Request | Pause | Act
Flow: TypeAlias = Generator[Wish, Any, T]


def exchange(request: Request, *, retry_seconds: float) -> Flow[Any]:
    """Send a request until it is answered, and return the JSON of the answer.

    A lost connection, a server that is away and a limit with `Retry-After` are tried again for `retry_seconds` after
    the first failure. Raises ToolgateError.
    """
    pause, ends = FIRST_PAUSE, 0.0
    while True:
        reply = yield request
        if isinstance(reply, Answer):
            failure = failure_of(reply)
            if failure is None:
                return json_of(reply)
            delay = seconds_before_retry(failure, reply, pause)
        else:
            failure, delay = reply.error, pause if reply.may_be_repeated else None
        ends = ends or monotonic() + retry_seconds
        if delay is None or monotonic() + delay > ends:
            raise failure
        yield Pause(delay * (1 + secrets.randbelow(200) / 1000))  # clients of one server come back one by one
        pause = min(2 * pause, LONGEST_PAUSE)


def failure_of(answer: Answer) -> ToolgateError | None:
    """Return the error that an answer means; None for a success."""
    if 200 <= answer.status < 300:
        return None
    if answer.status < 400:
        return MalformedAnswer(f"The server answered with HTTP {answer.status}, a redirect. Check the address.")
    document: Any = None
    if media_type(answer) == "application/problem+json":
        try:
            document = json_of(answer)
        except MalformedAnswer:
            document = None
    found: Mapping[str, Any] = document if isinstance(document, dict) else {}
    detail, errors, policy = found.get("detail"), found.get("errors"), found.get("policy")
    return problem_for(
        ProblemDocument(
            answer.status,
            str(found.get("type", "")),
            detail if isinstance(detail, str) else "The server answered with an error that it does not describe",
            [each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else [],
            policy if isinstance(policy, dict) else None,
            retry_after(answer),
            found,
        )
    )


def seconds_before_retry(error: ToolgateError, answer: Answer, pause: float) -> float | None:
    """Return the seconds after which to repeat a request, or None if a repeat would be answered likewise."""
    document = getattr(error, "document", None)
    if not isinstance(document, ProblemDocument):
        return None
    is_proxy = isinstance(error, ServerError) and not document.type and document.status in (502, 503, 504)
    if is_proxy or document.type == STILL_RUNNING:
        return max(pause, document.retry_after or 0)
    return document.retry_after if answer.status in (429, 503) else None


def retry_after(answer: Answer) -> float | None:
    """Return the seconds of the header `Retry-After`, if it has some."""
    text = answer.headers.get("retry-after", "")
    return float(text) if re.fullmatch(r"\d{1,6}", text) else None


def media_type(answer: Answer) -> str:
    """Return the type of the body without its parameters."""
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()


def json_of(answer: Answer) -> Any:
    """Return the JSON of an answer. Raises MalformedAnswer if it has none, or none that is strict."""
    if media_type(answer) not in JSON_TYPES:
        raise MalformedAnswer("The server answered with something other than JSON. Check the address.")
    try:
        return json.loads(answer.body, object_pairs_hook=_object_of, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise MalformedAnswer("The server answered with malformed JSON.") from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("A key stands twice.")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON.")


def path_to(*segments: str) -> str:
    """Return a path below `/api/v1/`. Raises ValueError for a segment that is no id."""
    for segment in segments:
        if not IDENTIFIER.fullmatch(segment):
            raise ValueError(f"This is not an id: {segment[:40]!r}")
    return "/".join((*segments, ""))


def lost_for(error: httpx.HTTPError | httpx.InvalidURL) -> Lost:
    """Return the outcome of a request that failed below HTTP, without the exception, which holds the token."""
    kind = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Lost(ConnectionLost("The server's certificate is not trusted."))
        cause = cause.__cause__ or cause.__context__
    can_repeat = isinstance(error, httpx.TransportError) and not isinstance(
        error, httpx.UnsupportedProtocol | httpx.LocalProtocolError
    )
    return Lost(ConnectionLost(f"Toolgate did not answer ({kind})."), may_be_repeated=can_repeat)


class Intake:
    """Takes the chunks of one answer, up to MAX_ANSWER_BYTES and within the request's time as a whole."""

    def __init__(self, request: Request) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._ends = monotonic() + CONNECT_SECONDS + request.wait_seconds + 2 * ANSWER_SECONDS

    def refusal(self, chunk: bytes) -> Lost | None:
        """Keep a chunk; return the outcome of the request if it must not be read on."""
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            return Lost(MalformedAnswer(f"The answer has more than {MAX_ANSWER_BYTES:,} bytes."))
        if monotonic() > self._ends:
            return Lost(ConnectionLost("The answer arrived too slowly."), may_be_repeated=True)
        self._chunks.append(chunk)
        return None

    def answer(self, response: httpx.Response) -> Answer | Lost:
        """Return the whole answer. Compressed ones are refused: none was asked for, and their size is unknown."""
        if response.headers.get("content-encoding", "identity") != "identity":
            return Lost(MalformedAnswer("The answer is compressed, although that was not asked for."))
        return Answer(response.status_code, response.headers, b"".join(self._chunks))


def send(http_client: httpx.Client, request: Request) -> Answer | Lost:
    """Send a request and read its answer."""
    intake = Intake(request)
    try:
        with http_client.stream(request.method, request.path, **_options(request)) as response:
            for chunk in response.iter_raw():
                refusal = intake.refusal(chunk)
                if refusal is not None:
                    return refusal
            return intake.answer(response)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return lost_for(error)


async def send_async(http_client: httpx.AsyncClient, request: Request) -> Answer | Lost:
    """Send a request and read its answer."""
    intake = Intake(request)
    try:
        async with http_client.stream(request.method, request.path, **_options(request)) as response:
            async for chunk in response.aiter_raw():
                refusal = intake.refusal(chunk)
                if refusal is not None:
                    return refusal
            return intake.answer(response)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return lost_for(error)


def _options(request: Request) -> dict[str, Any]:
    content = request.content()
    headers = {**request.headers, **({"Content-Type": "application/json"} if content is not None else {})}
    return {"params": request.query or None, "content": content, "headers": headers, "timeout": request.timeout()}


def drive(flow: Flow[T], perform: Callable[[Wish], Any]) -> T:
    """Run a flow to its end and return its result."""
    try:
        wish = next(flow)
        while True:
            try:
                outcome = perform(wish)
            except Exception as error:  # noqa: BLE001 - the flow reports it, and raises it again
                wish = flow.throw(error)
            else:
                wish = flow.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(flow: Flow[T], perform: Callable[[Wish], Awaitable[Any]]) -> T:
    """Run a flow to its end and return its result."""
    try:
        wish = next(flow)
        while True:
            try:
                outcome = await perform(wish)
            except Exception as error:  # noqa: BLE001 - the flow reports it, and raises it again
                wish = flow.throw(error)
            else:
                wish = flow.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
