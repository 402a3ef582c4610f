"""Previews that a request waits for, each in a thread of its own: a tool that hangs keeps no request waiting for long.

What does not come in time is left behind: the request is held and says so, and its preview is computed again, and
compared, before the call may start.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from django.db import connection

from catalog.dispatch import pipeline
from catalog.models import Call
from catalog.results import Preview
from plans.engine import calls, execution
from plans.engine.work import PlanSnapshot, PreparedCall, load_snapshot
from plans.models import Plan

PREVIEWS_AT_ONCE = 4
SLOT_WAIT_SECONDS = 1.0
"""How long a request waits for a place while that many previews are being computed, or hang."""
PREVIEW_TIMED_OUT = "The tool did not say in time what this call would do."
TOO_MANY_PREVIEWS = "What this call would do was not computed: too many other previews are under way, or hang."

_preview_slots = threading.BoundedSemaphore(PREVIEWS_AT_ONCE)


def preview_with_timeout(plan: PlanSnapshot, step_id: int, order: PreparedCall) -> Preview | None:
    """Compute what a call would do, or say that it did not come in time.

    Raises ToolError when the tool already knows that it cannot do it.
    """
    if not _preview_slots.acquire(timeout=SLOT_WAIT_SECONDS):
        return Preview(TOO_MANY_PREVIEWS, "none")
    answer: Future[Preview | None] = Future()
    work = (answer, plan, step_id, order)
    # A daemon: a tool that never returns must not keep the process from ending.
    threading.Thread(target=_compute, args=work, name="toolgate-preview", daemon=True).start()
    try:
        return answer.result(pipeline.PREVIEW_SECONDS)
    except TimeoutError:
        return Preview(PREVIEW_TIMED_OUT, "none")


def preview_again(call: Call, arguments: Mapping[str, Any]) -> Preview | None:
    """Compute what a stored call would do with other arguments.

    Raises what `preview_with_timeout` and `prepare_call` raise.
    """
    plan = load_snapshot(Plan.objects.only("pk").get(public_id=call.plan_ref).pk)
    order = calls.prepare_call(call.tool_name, arguments, plan_ref=plan.ref, kept=call.implementation_id)
    return preview_with_timeout(plan, int(call.step_ref), replace(order, asker=calls.requester_ids_of(call)))


def _compute(answer: "Future[Preview | None]", plan: PlanSnapshot, step_id: int, order: PreparedCall) -> None:
    try:
        answer.set_result(execution.preview(plan, step_id, order))
    except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
        answer.set_exception(error)
    finally:
        connection.close()
        _preview_slots.release()
