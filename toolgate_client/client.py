"""The clients: `Client` for ordinary code, `AsyncClient` for asyncio.

Both have the methods of `Operations`, each written once; those of `AsyncClient` are awaited.
"""

import asyncio
import json
import logging
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import cache, cached_property, update_wrapper
from inspect import isawaitable, iscoroutine
from itertools import starmap
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx

from toolgate_client.errors import ConfigurationError, NotAllowed, ToolgateError
from toolgate_client.records import Approval, Call, Event, Fields, Permission, Plan, RunReport
from toolgate_client.transport import (
    IDENTIFIER,
    Act,
    Flow,
    Pause,
    Request,
    Wish,
    drive,
    drive_async,
    exchange,
    path_to,
    send,
    send_async,
)

logger = logging.getLogger("toolgate_client")

LONGEST_POLL = 50.0
"""Seconds for which the server is asked to hold one answer: proxies often end a request after a minute."""
SHORTEST_POLL = 1.0
MAX_OUTPUT_BYTES = 256 * 1024
MAX_MESSAGE = 2000
PAGE_SIZE = 200

NAME = re.compile(r"[a-z0-9-]{1,40}")
TOKEN = re.compile(r"[\x21-\x7e]{1,500}")

LATER = (Generator, AsyncGenerator, Future, filter, map, starmap)
"""Results of functions that have not done their work when they return."""

P = ParamSpec("P")
T = TypeVar("T")
Verdict = Literal["approve", "reject", "request_changes", "respond"]
PlanAction = Literal["start", "pause", "resume", "cancel", "retry"]


class Operation(Generic[P, T]):
    """A method of both clients, written once as a flow: `Client` returns its result, `AsyncClient` a coroutine."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self.flow = flow
        update_wrapper(self, flow)  # type: ignore[arg-type] # it takes any object with attributes

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> Any:
        """Return the method of one client."""
        if client is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.follow(self.flow(client, *args, **kwargs))

        return update_wrapper(method, self.flow)


@cache
def process_session() -> str:
    """Return the session of this process for questions of clients that were given none."""
    return uuid4().hex


class Operations:
    """The methods of both clients.

    `url` and `token` default to the environment variables `TOOLGATE_URL` and `TOOLGATE_TOKEN`, `session` to
    `TOOLGATE_SESSION`. `name` is the source of the tools that run in this process. A server that is away is asked again
    for `retry_seconds`. `transport` is an httpx transport in place of the network, for tests. `proxy` is the address of
    a proxy, and `certificates` a file of the authorities to trust in place of the usual ones; neither is taken from the
    environment. Every method raises ToolgateError; before anything is sent, ValueError or TypeError for an id that is
    none or a value that JSON does not have. Nothing logs arguments or results.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        session: str | None = None,
        name: str = "python",
        retry_seconds: float = 60.0,
        transport: Any = None,
        proxy: str | None = None,
        certificates: str | os.PathLike[str] | None = None,
    ) -> None:
        self.url = _base_url(url or os.environ.get("TOOLGATE_URL", ""))
        self.session = session or os.environ.get("TOOLGATE_SESSION") or None
        self.name = name
        self.retry_seconds = retry_seconds
        self._token = (token or os.environ.get("TOOLGATE_TOKEN", "")).strip()
        if not TOKEN.fullmatch(self._token):
            raise ConfigurationError("There is no token. Set TOOLGATE_TOKEN, or pass one.")
        if self.session is not None and not IDENTIFIER.fullmatch(self.session):
            raise ConfigurationError("A session has 1 to 128 letters, digits, `_` and `-`.")
        if not NAME.fullmatch(name):
            raise ConfigurationError("The name of a client has 1 to 40 lower-case letters, digits and `-`.")
        # The token goes to one address: no redirect takes it elsewhere.
        self._http_options: dict[str, Any] = {
            "base_url": f"{self.url}/api/v1/",
            "headers": {
                "Authorization": f"Bearer {self._token}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
            "follow_redirects": False,
            "transport": transport,
            # A proxy of the environment would get the token, and could answer in Toolgate's place.
            "trust_env": False,
            "proxy": proxy,
            "verify": _tls_context(certificates) if certificates is not None else True,
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    def exchange(self, request: Request) -> Flow[Any]:
        """Send a request until it is answered."""
        return exchange(request, retry_seconds=self.retry_seconds)

    def _post(self, path: str, body: Any, *, key: str | None = None, wait_seconds: float = 0.0) -> Flow[Any]:
        """Post a body under an idempotency key, a new one by default, and in the client's session if it has one."""
        headers = {"Idempotency-Key": key or uuid4().hex}
        if self.session is not None:
            headers["Toolgate-Session"] = self.session
        return self.exchange(Request("POST", path, {}, body, headers, wait_seconds))

    @Operation
    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        reason: str = "",
        wait_seconds: float | None = None,
        idempotency_key: str | None = None,
    ) -> Flow[Call]:
        """Call a tool and wait until the call has ended, or for `wait_seconds`; 0 returns at once.

        A call that waits for a person is returned as `waiting` when the time is over, and `wait` goes on waiting, in
        any process. A program that may die here passes an `idempotency_key` of its own: a repeat within 24 hours
        returns the same call.
        """
        ends = _end_of(wait_seconds)
        seconds = _seconds_until(ends)
        body = {"tool": tool, "arguments": arguments, "wait_seconds": seconds, **({"reason": reason} if reason else {})}
        made = Call.read((yield from self._post("calls/", body, key=idempotency_key, wait_seconds=seconds)))
        return made if made.has_ended and not made.replaced_by else (yield from self._wait_until(made.id, ends))

    @Operation
    def wait(self, call: Call | str, *, wait_seconds: float | None = None) -> Flow[Call]:
        """Wait until a call has ended, or for `wait_seconds`, and return it as it is then.

        The id of the call is enough, so another process may wait on. If a new call has replaced it, that is returned.
        """
        return self._wait_until(_id_of(call), _end_of(wait_seconds))

    def _wait_until(self, call: str, ends: float | None) -> Flow[Call]:
        """Read a call until it has ended or the time has come."""
        while True:
            asked, seconds = monotonic(), _seconds_until(ends)
            request = Request("GET", path_to("calls", call), {"wait_seconds": seconds}, wait_seconds=seconds)
            found = Call.read((yield from self.exchange(request)))
            if found.has_ended and not found.succeeded and found.replaced_by:
                call = found.replaced_by
                continue
            if found.has_ended or _is_over(ends):
                return found
            call = found.id
            if monotonic() - asked < SHORTEST_POLL:
                yield Pause(SHORTEST_POLL)

    @Operation
    def approvals(
        self, *, status: str | None = None, tool: str | None = None, plan: str | None = None, limit: int = PAGE_SIZE
    ) -> Flow[tuple[Approval, ...]]:
        """Return the newest approval requests that this token may see, at most `limit`."""
        wanted = {"status": status, "tool": tool, "plan": plan}
        query: dict[str, str | int | float] = {name: value for name, value in wanted.items() if value is not None}
        found: list[Approval] = []
        while len(found) < limit:
            query["page_size"] = min(PAGE_SIZE, limit - len(found))
            page = Fields((yield from self.exchange(Request("GET", "approvals/", query))), "page")
            found += map(Approval.read, page.items("results"))
            # The link is another address's word; only its cursor is used.
            cursor = parse_qs(urlsplit(page.optional("next", str) or "").query).get("cursor")
            if not cursor:
                break
            query["cursor"] = cursor[0]
        return tuple(found[:limit])

    @Operation
    def approval(self, approval: str) -> Flow[Approval]:
        """Return one approval request."""
        return _read(Approval.read, self.exchange(Request("GET", path_to("approvals", approval))))

    @Operation
    def review(
        self,
        approval: Approval,
        verdict: Verdict,
        *,
        comment: str = "",
        arguments: Mapping[str, Any] | None = None,
        response: Any = None,
    ) -> Flow[Approval]:
        """Decide a request as it was read, with a personal token that has the scope `approvals:decide`.

        `arguments` are those to approve in place of the given ones, `response` is the result for the verdict `respond`.
        Raises Conflict if the request has changed since.
        """
        body: dict[str, Any] = {"verdict": verdict, "seen_digest": approval.digest, "comment": comment}
        if arguments is not None:
            body["arguments"] = arguments
        if verdict == "respond":
            body["response"] = response
        return _read(Approval.read, self._post(path_to("approvals", approval.id, "reviews"), body))

    @Operation
    def withdraw(self, approval: str, *, comment: str = "") -> Flow[Approval]:
        """Withdraw one's own request: the call will not run."""
        return _read(Approval.read, self._post(path_to("approvals", approval, "withdraw"), {"comment": comment}))

    @Operation
    def create_plan(self, document: Mapping[str, Any], *, idempotency_key: str | None = None) -> Flow[Plan]:
        """Store a plan, `{"goal", "steps": […], …}`, and start it unless its `start` is false."""
        return _read(Plan.read, self._post("plans/", document, key=idempotency_key))

    @Operation
    def plan(self, plan: str) -> Flow[Plan]:
        """Return one plan with its steps."""
        return _read(Plan.read, self.exchange(Request("GET", path_to("plans", plan))))

    @Operation
    def control_plan(self, plan: str, action: PlanAction) -> Flow[Plan]:
        """Start, pause, resume, cancel or retry a plan. Raises Conflict if its state does not allow that."""
        return _read(Plan.read, self._post(path_to("plans", plan, action), {}))

    @Operation
    def events_after(self, plan: str, after: int) -> Flow[tuple[Event, ...]]:
        """Return the events of a plan that follow the number `after`, at most 1,000."""
        request = Request("GET", path_to("plans", plan, "events"), {"after": after, "page_size": 1000})
        page = Fields((yield from self.exchange(request)), "page")
        return tuple(map(Event.read, page.items("results")))

    def _still_open(self, plan: str, after: int) -> Flow[bool]:
        """Return whether events of a plan are to come after the number `after`."""
        found = Plan.read((yield from self.exchange(Request("GET", path_to("plans", plan)))))
        return not found.has_ended or found.last_seq > after

    @Operation
    def ask(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str | None = None,
        cwd: str | None = None,
        wait_seconds: float = 0.0,
    ) -> Flow[Permission]:
        """Ask whether something may run in this process, and wait for a decision for up to `wait_seconds`.

        `call_id` identifies the question: with it, a repeat gets the answer as of now. Whatever is allowed must be
        reported. `run` and `gated` do all of it.
        """
        return self._ask_once(self._question(tool, arguments, call_id, cwd), wait_seconds)

    def _question(
        self, tool: str, arguments: Mapping[str, Any], call_id: str | None, cwd: str | None = None
    ) -> dict[str, Any]:
        """Return the body of a question."""
        session = self.session or process_session()
        parts = {"client": self.name, "session": session, "tool": tool, "input": arguments}
        return parts | {name: value for name, value in (("call_id", call_id), ("cwd", cwd)) if value is not None}

    def _ask_once(self, question: Mapping[str, Any], wait_seconds: float) -> Flow[Permission]:
        """Ask a question. It has no idempotency key: a repeat is to get the answer as of now, not the first one."""
        body = {**question, "wait_seconds": wait_seconds}
        return _read(
            Permission.read, self.exchange(Request("POST", "permissions/", {}, body, wait_seconds=wait_seconds))
        )

    @Operation
    def report(self, call: str, report: RunReport) -> Flow[None]:
        """Report the end of something that was allowed to run in this process."""
        return self._post_report(call, report)

    def _post_report(self, call: str, report: RunReport) -> Flow[None]:
        """Post the report of a run."""
        yield from self._post(path_to("permissions", call, "result"), report.document())

    @Operation
    def run(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        function: Callable[[dict[str, Any]], Any],
        *,
        call_id: str | None = None,
        wait_seconds: float | None = None,
        report_of: Callable[[Any], RunReport] = lambda value: RunReport(succeeded=True, output=value),
    ) -> Flow[Any]:
        """Run a function of this process once Toolgate has allowed it, and report its result or exception.

        The function is called with the approved arguments, which a reviewer may have edited; `AsyncClient` awaits what
        it returns. Raises NotAllowed if it was refused or if nobody decided in `wait_seconds`, by default as long as it
        takes, and ToolgateError if Toolgate cannot be asked: in both cases the function was not called. A `call_id` is
        for one run; the default is a new one. `report_of` makes the report of a result.
        """
        question = self._question(tool, json_copy(arguments), call_id or uuid4().hex)
        permission = yield from self._ask_until_decided(question, _end_of(wait_seconds))
        if permission.decision != "allow" or permission.call is None or permission.input is None:
            raise NotAllowed(
                permission.message or f"{tool} was not allowed.",
                call=permission.call,
                approval=permission.approval,
                url=permission.url,
            )
        started = monotonic()
        try:
            value = yield Act(function, dict(permission.input))
        except Exception as error:
            message = f"{type(error).__name__}: {_text_of(error)}"[:MAX_MESSAGE]
            failure = RunReport(succeeded=False, message=message, duration_ms=_milliseconds_since(started))
            yield from self._report_or_log(permission.call, failure)
            raise
        report, duration_ms = report_of(value), _milliseconds_since(started)
        ended = replace(report, output=reportable(report.output), duration_ms=duration_ms)
        yield from self._report_or_log(permission.call, ended)
        return value

    def _ask_until_decided(self, question: Mapping[str, Any], ends: float | None) -> Flow[Permission]:
        """Ask until somebody has decided. Raises NotAllowed if the time is over before."""
        while True:
            asked, seconds = monotonic(), _seconds_until(ends)
            permission = yield from self._ask_once(question, seconds)
            if permission.decision in ("allow", "deny"):
                return permission
            if _is_over(ends):
                raise NotAllowed(
                    "Nobody has decided in time, so it did not run.",
                    call=permission.call,
                    approval=permission.approval,
                    url=permission.url,
                )
            if monotonic() - asked < SHORTEST_POLL:
                yield Pause(SHORTEST_POLL)

    def _report_or_log(self, call: str, report: RunReport) -> Flow[None]:
        """Report a run. If that fails, Toolgate does not know the outcome, but the result still is the caller's."""
        try:
            yield from self._post_report(call, report)
        except ToolgateError as error:
            logger.warning("The end of %s could not be reported (%s).", call, type(error).__name__)


class Client(Operations):
    """A client for ordinary code; safe to share between threads. A context manager; or call `close`."""

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(**self._http_options)

    def follow(self, flow: Flow[T]) -> T:
        """Run a flow."""
        return drive(flow, self._perform)

    def _perform(self, wish: Wish) -> Any:
        if isinstance(wish, Request):
            return send(self._http, wish)
        if isinstance(wish, Pause):
            return time.sleep(wish.seconds)
        value = wish.function(wish.arguments)
        if isawaitable(value):  # nothing would run it, and its end would be reported all the same
            if iscoroutine(value):
                value.close()
            raise TypeError("An asynchronous function needs an AsyncClient.")
        return _ended(value)

    def events(self, plan: str, *, after: int = 0, poll_seconds: float = 1.0) -> Iterator[Event]:
        """Yield the events of a plan as they happen, from the number `after` on, until the plan has ended."""
        was_quiet = False
        while True:
            page = self.events_after(plan, after)
            for event in page:
                yield event
                after = event.seq
            if page and page[-1].ends_plan:
                return
            if not page and not was_quiet and not self.follow(self._still_open(plan, after)):
                return
            was_quiet = not page
            time.sleep(0 if page else poll_seconds)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Operations):
    """A client for asyncio, within one event loop. An asynchronous context manager; or await `close`."""

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._http_options)

    async def follow(self, flow: Flow[T]) -> T:
        """Run a flow."""
        return await drive_async(flow, self._perform)

    async def _perform(self, wish: Wish) -> Any:
        if isinstance(wish, Request):
            return await send_async(self._http, wish)
        if isinstance(wish, Pause):
            return await asyncio.sleep(wish.seconds)
        value = wish.function(wish.arguments)
        return _ended(await value if isawaitable(value) else value)

    async def events(self, plan: str, *, after: int = 0, poll_seconds: float = 1.0) -> AsyncIterator[Event]:
        """Yield the events of a plan as they happen, from the number `after` on, until the plan has ended."""
        was_quiet = False
        while True:
            page = await self.events_after(plan, after)
            for event in page:
                yield event
                after = event.seq
            if page and page[-1].ends_plan:
                return
            if not page and not was_quiet and not await self.follow(self._still_open(plan, after)):
                return
            was_quiet = not page
            await asyncio.sleep(0 if page else poll_seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _base_url(text: str) -> str:
    """Return an address without its final slash. Raises ConfigurationError."""
    if not text:
        raise ConfigurationError("There is no address. Set TOOLGATE_URL, such as https://toolgate.example.org.")
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address = is_address and not (parts.query or parts.fragment or "@" in parts.netloc)
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigurationError(
            "The address must be http:// or https:// with a host, without name, query or fragment."
        )
    return text.rstrip("/")


def _ended(value: T) -> T:
    """Return the result of a function. Raises TypeError if its work comes later: its end would be reported before."""
    if isinstance(value, LATER):
        kind = type(value).__name__
        raise TypeError(f"The function returned a {kind}, whose work comes later. Return its result.")
    return value


def _tls_context(certificates: str | os.PathLike[str]) -> ssl.SSLContext:
    """Return the context that trusts the authorities in a file alone. Raises ConfigurationError."""
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise ConfigurationError(f"The certificates {certificates} cannot be read: {error.strerror}.") from None


def _id_of(call: Call | str) -> str:
    return call.id if isinstance(call, Call) else call


def _end_of(wait_seconds: float | None) -> float | None:
    return None if wait_seconds is None else monotonic() + wait_seconds


def _seconds_until(ends: float | None) -> float:
    return LONGEST_POLL if ends is None else round(min(LONGEST_POLL, max(0.0, ends - monotonic())), 3)


def _is_over(ends: float | None) -> bool:
    return ends is not None and monotonic() >= ends


def _milliseconds_since(moment: float) -> int:
    return round(1000 * (monotonic() - moment))


def _read(read: Callable[[Any], T], flow: Flow[Any]) -> Flow[T]:
    return read((yield from flow))


def json_copy(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as JSON would keep them, apart from the caller's objects.

    Raises TypeError for a value that JSON does not have, or that is nested too deeply: a function must get what a
    person approved.
    """
    for name, value in arguments.items():
        try:
            is_json = _is_json(value)
        except RecursionError:
            raise TypeError(f"The argument {name!r} is nested too deeply.") from None
        if not is_json:
            raise TypeError(f"The argument {name!r} holds a value that JSON does not have.")
    copy: dict[str, Any] = json.loads(json.dumps(dict(arguments), allow_nan=False))
    return copy


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_json(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    return value is None or isinstance(value, str | int)


def reportable(value: Any) -> Any:
    """Return a result as JSON, or else its text, or else a note that it is too large to report."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        value = _text_of(value)
        text = json.dumps(value)
    return value if len(text) <= MAX_OUTPUT_BYTES else f"[{len(text):,} bytes, not reported]"


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a result that cannot be written is still the caller's
        return f"<{type(value).__name__}>"


def is_same_json(first: Any, second: Any) -> bool:
    """Return whether two values are the same JSON; unlike Python, JSON tells `true` from `1`."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
