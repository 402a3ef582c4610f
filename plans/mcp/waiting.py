"""Bounded waits for calls: coroutines that hold neither a thread nor a connection, with progress for the client.

A wait ends when the call ends, its time is over, the server stops, or the client cancels it. The call itself continues.
If a client closes the connection while it waits, its later waits are shorter (`catalog.access.learnt_waits`).
"""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from weakref import WeakSet

from mcp.shared.exceptions import MCPError

from catalog.access import learnt_waits
from catalog.access.roles import NotAllowed
from catalog.core.asgi import measure_as
from catalog.core.transactions import is_unavailable, log_unexpected
from plans.live.broadcast import BroadcastChannel
from plans.live.waits import until_one_ends, until_settled
from plans.mcp import calls
from plans.mcp.callers import (
    CHECK_SECONDS,
    Caller,
    Context,
    TokenEnded,
    caller_of,
    client_of,
    in_thread,
    scope_of,
)
from plans.mcp.calls import CallState


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds after which a client is answered, with and without a request for progress: less than it waits itself."""

    with_progress: float
    without_progress: float


OTHERS = Patience(with_progress=50.0, without_progress=4.0)
"""Clients give up after five seconds at the soonest; those that ask for progress, after a minute."""
PATIENCE: Mapping[str, Patience] = {
    "claude-code": Patience(240.0, 240.0),
    "codex": Patience(240.0, 240.0),
    "gemini-cli": Patience(500.0, 500.0),
    "opencode": Patience(500.0, 50.0),
}
"""By the beginning of the client's name, as measured: Claude Code 2.1.332 and Codex 0.171.0 give up after 300 s, Gemini
CLI 0.61.0 after 600 s, opencode 1.18.33 after 60 s without progress."""
PROGRESS_SECONDS = 10.0
"""Seconds between two reports of progress of a call that waits for a person."""
UNAUTHORIZED = -32001
PAUSE_SECONDS = 0.1
"""The shortest time between two reads of one call."""
CANCELLATION_SECONDS = 2.0
"""Time after a closed connection in which the client's cancellation of the same request may still arrive."""
MAX_SHARED_KEY = 1_000
"""Limit in characters. A cancellation with a longer key is not sent to other processes."""


def usual_seconds(context: Context) -> float:
    """Return how long a held call of this client waits: as its token says, or else by the client's name."""
    held: int | None = caller_of(context).token.hold_seconds
    if held is not None:
        return float(held)
    name = client_of(context).lower()
    patience = next((each for start, each in PATIENCE.items() if name.startswith(start)), OTHERS)
    wants_progress = context.meta is not None and context.meta.get("progress_token") is not None
    return patience.with_progress if wants_progress else patience.without_progress


@dataclass(eq=False, slots=True)
class Wait:
    """One waiting request. Setting `over` ends the wait, and the request is answered with the call's current state."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    over: asyncio.Event = field(default_factory=asyncio.Event)


WaitKey = tuple[int, str, str]
"""Token, User-Agent and JSON-RPC id: clients that share a token often count their requests from 1."""

_waits: dict[WaitKey, set[Wait]] = {}
_hung_up: dict[WaitKey, set[Wait]] = {}
"""Waits whose connection was closed a moment ago."""
_stopped: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Event loops whose server is stopping."""


@contextmanager
def listed_wait(caller: Caller, request_id: object) -> Iterator[Wait]:
    """Register a wait, so that `Cancellations` and `end_waits_here` can end it."""
    key, wait = _key(caller, request_id), Wait()
    _waits.setdefault(key, set()).add(wait)
    if wait.loop in _stopped:
        wait.over.set()
    try:
        yield wait
    finally:
        _waits[key].discard(wait)
        if not _waits[key]:
            del _waits[key]


def _key(caller: Caller, request_id: object) -> WaitKey:
    return caller.token.pk, caller.user_agent, str(request_id)


class Cancellations:
    """Passes on clients' cancellations to the waits of this process and, over Redis, of the other processes.

    A cancellation is a separate HTTP request, so another process may receive it than the process that waits.
    """

    def __init__(self) -> None:
        self._others: BroadcastChannel[int] = BroadcastChannel(self._cancel_sent, "cancellations")

    def stop(self) -> None:
        self._others.stop()

    def cancel(self, caller: Caller, request_id: object) -> None:
        """End the waits of a token's request. They are answered with the current state of their calls."""
        key = _key(caller, request_id)
        _cancel(key)
        text = json.dumps(key)
        if len(text) <= MAX_SHARED_KEY:
            self._others.send({text: 1})

    def _cancel_sent(self, cancelled: dict[str, int]) -> None:
        for text in cancelled:
            token_pk, user_agent, request_id = json.loads(text)
            _cancel((token_pk, user_agent, request_id))


def _cancel(key: WaitKey) -> None:
    for wait in (*_waits.get(key, ()), *_hung_up.get(key, ())):
        wait.over.set()


def end_waits_here() -> None:
    """End all present and future waits on this event loop, because its server is stopping."""
    loop = asyncio.get_running_loop()
    _stopped.add(loop)
    for waits in (*_waits.values(), *_hung_up.values()):
        for wait in waits:
            if wait.loop is loop:
                wait.over.set()


async def wait_for_people(context: Context, state: CallState, seconds: float) -> CallState:
    """Wait until a held call ends, for at most `seconds`, or less if the token or the client's learnt wait says so.

    Raises MCPError if the token ends.
    """
    measure_as(scope_of(context), "mcp-wait")
    caller, client = caller_of(context), client_of(context)
    known = await in_thread(learnt_waits.find, caller.token.pk, client)
    learnt = known.seconds if known is not None else None
    limits = [seconds, *(each for each in (caller.token.hold_seconds, learnt) if each is not None)]
    began = monotonic()
    with listed_wait(caller, context.request_id) as wait:
        try:
            state = await _wait(context, state, began + min(limits), wait.over)
        except asyncio.CancelledError:
            if not wait.over.is_set():
                _record_hang_up(_key(caller, context.request_id), wait, client, monotonic() - began)
            raise
    # A short poll shows nothing of the client's patience, nor does a wait that a cancellation or our shutdown ended.
    if known is not None and not wait.over.is_set():
        patience = known.cut_off_after if known.seconds is None else known.seconds
        if monotonic() - began >= (patience or 0.0):
            _record_later(learnt_waits.record_answered, caller.token.pk, client)
    return state


def _record_hang_up(key: WaitKey, wait: Wait, client: str, seconds: float) -> None:
    """Record that the client closed the connection, unless it cancels the request within CANCELLATION_SECONDS.

    A client that cancels also closes the connection, and either of the two may arrive first.
    """
    _hung_up.setdefault(key, set()).add(wait)

    async def record() -> None:
        try:
            async with asyncio.timeout(CANCELLATION_SECONDS):
                await wait.over.wait()
        except TimeoutError:
            _record_later(learnt_waits.record_cut_off, key[0], client, seconds)
        finally:
            _hung_up[key].discard(wait)
            if not _hung_up[key]:
                del _hung_up[key]

    _keep(record())


async def wait_for_end(context: Context, state: CallState) -> CallState:
    """Wait until a running call has ended or needs approval after all. Raises MCPError if the token ends."""
    measure_as(scope_of(context), "mcp-wait")
    with listed_wait(caller_of(context), context.request_id) as wait:
        return await _wait(context, state, float("inf"), wait.over)


async def _wait(context: Context, state: CallState, ends: float, end_event: asyncio.Event) -> CallState:
    """Wait in slices; after each, verify the token and report progress. Ends early if the call becomes held."""
    caller, began, was_held = caller_of(context), monotonic(), state.is_held
    told, told_at = "", began
    while state.result is None and (left := ends - monotonic()) > 0 and not end_event.is_set():
        if state.is_held and not was_held:
            break
        sliced = monotonic()
        if not state.is_held or state.message != told or sliced - told_at >= PROGRESS_SECONDS:
            told, told_at = state.message, sliced
            await context.session.report_progress(round(sliced - began, 1), None, state.message)
        try:
            await until_one_ends(until_settled(state.call.public_id, min(left, CHECK_SECONDS)), end_event.wait())
            state = await in_thread(calls.check_call, caller, state.call.public_id)
        except (TokenEnded, NotAllowed):
            raise MCPError(UNAUTHORIZED, "This token is no longer valid; the call itself goes on.") from None
        except Exception as error:
            if not is_unavailable(error):
                raise
            log_unexpected(error)
        if state.result is None and monotonic() - sliced < PAUSE_SECONDS:
            # A voided call has ended and its replacement does not exist yet: waiting for its end returns at once.
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS):
                    await end_event.wait()
    return state


_records: set[asyncio.Task[None]] = set()


def _record_later(note: Any, *arguments: Any) -> None:
    """Record how a wait ended, in a separate task, because the request may end first."""

    async def write() -> None:
        with suppress(RuntimeError):  # the threads are gone: the process ends
            try:
                await in_thread(note, *arguments)
            except Exception as error:  # noqa: BLE001 - logged without its message; nothing else depends on the note
                log_unexpected(error)

    _keep(write())


def _keep(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a task that outlives the request."""
    task = asyncio.get_running_loop().create_task(work)
    _records.add(task)
    task.add_done_callback(_records.discard)
