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
from plans.engine.work import Order, PlanFacts, plan_facts
from plans.models import Plan

PREVIEWS_AT_ONCE = 4
PLACE_SECONDS = 1.0
"""How long a request waits for a place while that many previews are being computed, or hang."""
LATE = "The tool did not say in time what this call would do."
CROWDED = "What this call would do was not computed: too many other previews are under way, or hang."

_places = threading.BoundedSemaphore(PREVIEWS_AT_ONCE)


def preview_in_time(plan: PlanFacts, step_id: int, order: Order) -> Preview | None:
    """Compute what a call would do, or say that it did not come in time.

    Raises ToolError when the tool already knows that it cannot do it.
    """
    if not _places.acquire(timeout=PLACE_SECONDS):
        return Preview(CROWDED, "none")
    answer: Future[Preview | None] = Future()
    work = (answer, plan, step_id, order)
    # A daemon: a tool that never returns must not keep the process from ending.
    threading.Thread(target=_compute, args=work, name="toolgate-preview", daemon=True).start()
    try:
        return answer.result(pipeline.PREVIEW_SECONDS)
    except TimeoutError:
        return Preview(LATE, "none")


def preview_again(call: Call, arguments: Mapping[str, Any]) -> Preview | None:
    """Compute what a stored call would do with other arguments. Raises what `preview_in_time` and `order_for` raise."""
    plan = plan_facts(Plan.objects.only("pk").get(public_id=call.plan_ref).pk)
    order = calls.order_for(call.tool_name, arguments, plan_ref=plan.ref, kept=call.implementation_id)
    return preview_in_time(plan, int(call.step_ref), replace(order, asker=calls.asker_of(call)))


def _compute(answer: "Future[Preview | None]", plan: PlanFacts, step_id: int, order: Order) -> None:
    try:
        answer.set_result(execution.preview(plan, step_id, order))
    except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
        answer.set_exception(error)
    finally:
        connection.close()
        _places.release()
