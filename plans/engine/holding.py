"""Previews with a timeout, each computed in its own thread, so a hanging tool cannot block a request.

After a timeout the approval request is opened with a notice instead; the preview is computed again and compared before
the call starts. A requester waits for few previews at once, so that others need not wait behind them.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.db import connection

from catalog.dispatch import pipeline
from catalog.errors import RateLimited
from catalog.models import Call
from catalog.results import Preview
from plans.engine import calls, loop
from plans.engine.work import PlanSnapshot, PreparedCall, load_snapshot
from plans.models import Plan

PREVIEWS_AT_ONCE = 4
SLOT_WAIT_SECONDS = 1.0
"""Longest time in seconds that a request waits for a free preview slot."""
PREVIEW_TIMED_OUT = "The preview timed out."
TOO_MANY_PREVIEWS = "The preview was not computed because too many other previews are running."

PREVIEWS_PER_REQUESTER = 2
"""Previews that the direct calls of one token, or of one person on pages, wait for at once."""
SHARE_WAIT_SECONDS = 0.25
"""Longest time in seconds that a direct call waits for another one of its requester; it keeps a thread waiting."""
BUSY_RETRY_SECONDS = 5
TOO_MANY_CALLS = "Too many of your calls are being previewed at this moment. Make this one again in a few seconds."

_preview_slots = threading.BoundedSemaphore(PREVIEWS_AT_ONCE)
_waiting: Counter[str] = Counter()
_waiting_changed = threading.Condition()


class CallBusy(RateLimited):
    """A call cannot be stored now, because others of the same requester are, and that takes long. → 429"""

    code = "call_busy"

    def __init__(self, message: str = TOO_MANY_CALLS) -> None:
        super().__init__(message, retry_after=BUSY_RETRY_SECONDS)


def preview_in_share(plan: PlanSnapshot, step_id: int, order: PreparedCall) -> Preview | None:
    """Return the preview of a direct call as `preview_with_timeout` does. Raises CallBusy beyond its requester's share.

    A preview that timed out is not counted: its tool may never return.
    """
    with _share_of(order):
        return preview_with_timeout(plan, step_id, order)


@contextmanager
def _share_of(order: PreparedCall) -> Iterator[None]:
    asker = order.asker
    owner = "" if asker is None else f"token {asker.token_id}" if asker.token_id else f"user {asker.user_id}"
    with _waiting_changed:
        if not _waiting_changed.wait_for(lambda: _waiting[owner] < PREVIEWS_PER_REQUESTER, SHARE_WAIT_SECONDS):
            raise CallBusy
        _waiting[owner] += 1
    try:
        yield
    finally:
        with _waiting_changed:
            _waiting[owner] -= 1
            if not _waiting[owner]:
                del _waiting[owner]
            _waiting_changed.notify_all()


def preview_with_timeout(plan: PlanSnapshot, step_id: int, order: PreparedCall) -> Preview | None:
    """Return the preview of a call, or a notice if it timed out or no slot was free.

    Raises ToolError if the tool refuses the call.
    """
    if not _preview_slots.acquire(timeout=SLOT_WAIT_SECONDS):
        return Preview(TOO_MANY_PREVIEWS, "none")
    answer: Future[Preview | None] = Future()
    work = (answer, plan, step_id, order)
    # Daemon thread: a tool that never returns must not prevent the process from exiting.
    threading.Thread(target=_compute, args=work, name="toolgate-preview", daemon=True).start()
    try:
        return answer.result(pipeline.PREVIEW_SECONDS)
    except TimeoutError:
        return Preview(PREVIEW_TIMED_OUT, "none")


def preview_again(call: Call, arguments: Mapping[str, Any]) -> Preview | None:
    """Return the preview of a stored call with other arguments.

    Raises what `preview_with_timeout` and `prepare_call` raise.
    """
    plan = load_snapshot(Plan.objects.only("pk").get(public_id=call.plan_ref).pk)
    order = calls.prepare_call(call.tool_name, arguments, plan_ref=plan.ref, kept=call.implementation_id)
    return preview_with_timeout(plan, int(call.step_ref), replace(order, asker=calls.requester_ids_of(call)))


def _compute(answer: "Future[Preview | None]", plan: PlanSnapshot, step_id: int, order: PreparedCall) -> None:
    try:
        answer.set_result(loop.preview(plan, step_id, order))
    except BaseException as error:  # noqa: BLE001 - raised by answer.result()
        answer.set_exception(error)
    finally:
        connection.close()
        _preview_slots.release()
