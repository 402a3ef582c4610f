"""Requests about a tool that has changed since: what people were asked about is not what would run, so they are void.

Each ends in a transaction of its own, after the change: who changes the catalog never waits for a plan, and for a few
requests only. The ticker ends the others, and those that were opened while the change was under way.
"""

import threading
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F

from approvals.errors import Drift
from approvals.models import ApprovalRequest
from approvals.requests import void
from approvals.states import OPEN
from catalog.batches import do_each
from catalog.facts import Fact

AT_ONCE = 100
A_FEW = 10
"""Requests that whoever changes a tool ends before the answer."""


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """End the requests about earlier versions of tools that have drifted, once for all when that is committed."""
    if fact.kind == "tool.drifted":
        _noted.last += 1
        transaction.on_commit(partial(_void_a_few, _noted.last), robust=True)


class _Noted(threading.local):
    """The numbers of this thread's drifted tools: the last one, and up to which their requests were looked for."""

    last = 0
    done = 0


_noted = _Noted()


def _void_a_few(number: int) -> None:
    """Look once for all that was committed together: the first of them does, for the others as well."""
    if number > _noted.done:
        _noted.done = _noted.last
        void_outdated(A_FEW)


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
