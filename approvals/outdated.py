"""Requests about a tool that has changed since: what people were asked about is not what would run, so they are void.

The ticker ends each in a transaction of its own, so changing the catalog never waits for a plan.
"""

from django.db.models import F

from approvals.errors import Drift
from approvals.models import ApprovalRequest
from approvals.requests import void
from approvals.states import OPEN
from catalog.core.transactions import do_each

AT_ONCE = 100


def void_outdated(most: int = AT_ONCE) -> int:
    """End open requests about earlier versions of their tools; return how many were. Their calls are asked for anew."""
    requests = ApprovalRequest.objects.filter(status__in=OPEN)
    outdated = requests.exclude(tool_version=F("tool_version__tool__current_version")).order_by("pk")
    found = outdated.select_related("call", "tool_version__tool__current_version")[:most]
    return do_each(lambda request: void(request, reason=_reason(request), what=Drift.DEFINITION), found)


def _reason(request: ApprovalRequest) -> str:
    before, tool = request.tool_version, request.tool_version.tool
    now = tool.current_version.number if tool.current_version else before.number
    return f"The definition of {tool.name} changed from version {before.number} to {now} while this waited."
