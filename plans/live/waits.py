"""Waits for a call: a thread waits for 50 ms; longer waits are coroutines, which hold no thread and no connection."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TypeVar

from approvals.requests.lifecycle import CHANGED_PREFIX
from catalog.core.asgi import Receive
from catalog.models import Call
from catalog.states import PUBLIC_STATUS, TERMINAL, CallStatus
from plans.live.feed import current_feed
from plans.states import StepStatus
from plans.store.transactions import latest_transaction

BRIEF_WAIT_SECONDS = 0.05
PLANS_REMEMBERED = 1024
LOOKED_AT_AGAIN_SECONDS = 1.0
ResultT = TypeVar("ResultT")
_waiters: dict[str, set[threading.Event]] = {}
_last_seqs: dict[str, int] = {}
"""For the plans with the latest commits of this process, the number of their last event."""
_lock = threading.Lock()


def read_soon(call: Call, read: Callable[[], ResultT], is_running: Callable[[ResultT], bool]) -> ResultT:
    """Return `read()` once the call no longer runs, or after 50 ms. This spares clients of fast tools a request.

    It reads after each commit for the plan and at the end, not in between: more reads would slow down the thread that
    runs the call. It must be called in the thread that stored the call.
    """
    if PUBLIC_STATUS[call.status] != "running":
        return read()
    plan_ref, tx, ends = call.plan_ref, latest_transaction(), monotonic() + BRIEF_WAIT_SECONDS
    stored_seq = tx.last_seq if tx is not None and tx.plan_ref == plan_ref else 0
    committed = threading.Event()
    with _lock:
        _waiters.setdefault(plan_ref, set()).add(committed)
        if _last_seqs.get(plan_ref, 0) > stored_seq:
            committed.set()
    try:
        while True:
            committed.wait(max(0.0, ends - monotonic()))
            committed.clear()
            found = read()
            if not is_running(found) or monotonic() >= ends:
                return found
    finally:
        with _lock:
            _waiters[plan_ref].discard(committed)
            if not _waiters[plan_ref]:
                del _waiters[plan_ref]


def wait_briefly(call: Call) -> None:
    """Return once the call no longer runs, or after 50 ms."""
    status = Call.objects.filter(pk=call.pk).values_list("status", flat=True)
    read_soon(call, status.get, lambda found: PUBLIC_STATUS[found] == "running")


def wake_waiters(plan_ref: str, last_seq: int) -> None:
    """Wake the threads that wait for this plan. Called after each commit, usually without waiting threads."""
    with _lock:
        _last_seqs[plan_ref] = max(last_seq, _last_seqs.pop(plan_ref, 0))
        if len(_last_seqs) > PLANS_REMEMBERED:
            del _last_seqs[next(iter(_last_seqs))]
        for committed in _waiters.get(plan_ref, ()):
            committed.set()


async def until_settled(call_id: str, seconds: float) -> str:
    """Wait until the call has ended or `seconds` have passed. Returns at once if no such call exists.

    Returns the id of the last call waited for: if a new call replaces the call, the wait continues with that.
    """
    feed = current_feed()
    open_call = Call.objects.filter(public_id=call_id).exclude(status__in=TERMINAL).values_list("plan_ref", flat=True)
    plan_ref = await feed.run(open_call.first)
    if plan_ref is None:
        return call_id
    with feed.listen(plan_ref) as news, suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                call_id, goes_on = await feed.run(standing_in, call_id)
                if not goes_on:
                    break
                await news.wait()
                news.clear()
    return call_id


async def until_decided(call_id: str, seconds: float) -> str:
    """Wait until a held call is decided, or `seconds` have passed; return its id.

    For a call that its client runs: once it is decided, the client asks again. A call that is not held and cannot start
    yet is looked at again after a second.
    """
    feed = current_feed()
    held = Call.objects.filter(public_id=call_id, status=CallStatus.HELD).values_list("plan_ref", flat=True)
    plan_ref = await feed.run(held.first)
    if plan_ref is None:
        await asyncio.sleep(min(seconds, LOOKED_AT_AGAIN_SECONDS))
        return call_id
    with feed.listen(plan_ref) as news, suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await feed.run(held.exists):
                await news.wait()
                news.clear()
    return call_id


def standing_in(call_id: str) -> tuple[str, bool]:
    """Return the call that replaced a call whose approval was invalidated, or else this call; and whether it is open.

    An invalidated call that is not replaced yet counts as open while its step is in progress.
    """
    columns = "status", "error_kind", "replacements__public_id", "step__status"
    status, kind, successor, step = Call.objects.values_list(*columns).get(public_id=call_id)
    if status != CallStatus.CANCELLED or not kind.startswith(CHANGED_PREFIX):
        return call_id, status not in TERMINAL
    return standing_in(successor) if successor else (call_id, step == StepStatus.IN_PROGRESS)


_stop_events: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()


def end_waits() -> None:
    """End all waits, because the process stops. For any thread."""
    for loop, stop in list(_stop_events):
        loop.call_soon_threadsafe(stop.set)


@contextmanager
def until_stopped() -> Iterator[asyncio.Event]:
    mine = asyncio.get_running_loop(), asyncio.Event()
    _stop_events.add(mine)
    try:
        yield mine[1]
    finally:
        _stop_events.discard(mine)


async def until_one_ends(*jobs: Awaitable[ResultT]) -> ResultT:
    """Run jobs concurrently until one ends, cancel the others, and return its result or raise its exception.

    If several end at the same time, the first in `jobs` counts.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    first, *_ = [task.result() for task in tasks if task in ended]
    return first


async def until_disconnected(receive: Receive) -> None:
    """Return when the client has disconnected. Other messages are ignored."""
    while not (await receive())["type"].endswith(".disconnect"):
        continue
