"""Requests about a tool that has changed since: what people were asked about is not what would run, so they are void.

Each ends in a transaction of its own, after the change: who changes the catalog never waits for a plan, and for a few
requests only. The ticker ends the others, and those that were opened while the change was under way.
"""

from typing import Any

from django.db import connection, transaction
from django.db.models import F

from approvals.errors import Drift
from approvals.models import ApprovalRequest
from approvals.requests import invalidate
from approvals.states import OPEN
from catalog.batches import do_each
from catalog.errors import Conflict
from catalog.facts import Fact, announce, record

AT_ONCE = 100
A_FEW = 10
"""Requests that whoever changes a tool ends before the answer."""


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """End the requests about earlier versions of tools that have drifted, once for all when that is committed."""
    if fact.kind == "tool.drifted" and not any(due[1] is _void_a_few for due in connection.run_on_commit):
        transaction.on_commit(_void_a_few, robust=True)


def _void_a_few() -> None:
    void_outdated(A_FEW)


def void_outdated(most: int = AT_ONCE) -> int:
    """End open requests about earlier versions of their tools; return how many were. Their calls are asked for anew."""
    requests = ApprovalRequest.objects.filter(status__in=OPEN)
    outdated = requests.exclude(tool_version=F("tool_version__tool__current_version")).order_by("pk")
    return do_each(_void, outdated.select_related("call", "tool_version__tool__current_version")[:most])


def _void(request: ApprovalRequest) -> bool:
    try:
        with transaction.atomic():
            announce(request.call)
            invalidate(request, reason=_reason(request), what=Drift.DEFINITION)
            record("call.voided", call=request.call)
    except Conflict:  # it was answered, withdrawn or started meanwhile
        return False
    return True


def _reason(request: ApprovalRequest) -> str:
    before, tool = request.tool_version, request.tool_version.tool
    now = tool.current_version.number if tool.current_version else before.number
    return f"The definition of {tool.name} changed from version {before.number} to {now} while this waited."
