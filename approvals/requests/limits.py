"""Limits on open requests in reviewers' lists, per requester, per token and per plan. 0 means no limit.

The caller has locked the plan. A lock per requester serialises their plans; take it before that of the audit head.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest
from approvals.requests.queries import HIDDEN_PRE_APPROVALS
from approvals.states import RequestStatus
from catalog.core.locks import LockSpace, lock_until_commit
from catalog.errors import RateLimited

RETRY_AFTER_SECONDS = 60
"""Value of Retry-After: short, since a single answer frees a slot."""


class TooManyWaiting(RateLimited):
    """A limit of open requests is reached; the message says which limit, and what to do. → 429"""

    code = "too_many_waiting"


@dataclass(frozen=True, slots=True)
class RequesterScope:
    """Requester, token and plan of a new request, for their limits; `plan_ref` is empty if the plan is new too."""

    user_id: int | None
    token_id: int | None = None
    plan_ref: str = ""


def reserve_slot(scope: RequesterScope) -> None:
    """Reserve a slot for one more request until the transaction ends. Raises TooManyWaiting."""
    lock_slots(scope)
    check_pending_limit(scope)


def lock_slots(scope: RequesterScope) -> None:
    """Lock this requester's slots until the transaction ends; must precede the lock of the audit head."""
    is_limited = settings.TOOLGATE_MAX_PENDING_PER_REQUESTER or settings.TOOLGATE_MAX_PENDING_PER_TOKEN
    if scope.user_id is not None and is_limited:
        lock_until_commit(LockSpace.REQUESTER, str(scope.user_id))


def check_pending_limit(scope: RequesterScope) -> None:
    """Raise TooManyWaiting if no further request may be opened now."""
    for condition, most, whose in _pending_limits(scope):
        if _waiting_requests().filter(condition)[:most].count() >= most:
            words = f"{whose} already has {most} open requests, the maximum."
            raise TooManyWaiting(f"{words} Wait until some are answered, or withdraw some.", RETRY_AFTER_SECONDS)


def free_slots(scope: RequesterScope, requested: int) -> int:
    """Return the number of further requests that may be opened now, at most `requested`."""
    counts = (
        most - _waiting_requests().filter(condition)[:most].count() for condition, most, _ in _pending_limits(scope)
    )
    return max(0, min(requested, *counts)) if _pending_limits(scope) else requested


def _pending_limits(scope: RequesterScope) -> list[tuple[Q, int, str]]:
    """Return the limits that apply: condition for the requests to count, maximum, and name for messages."""
    per_requester = settings.TOOLGATE_MAX_PENDING_PER_REQUESTER if scope.user_id else 0
    per_token = settings.TOOLGATE_MAX_PENDING_PER_TOKEN if scope.token_id else 0
    per_plan = settings.TOOLGATE_MAX_PENDING_PER_PLAN if scope.plan_ref else 0
    caps = [
        (Q(call__requested_by=scope.user_id), per_requester, "This requester"),
        (Q(call__token=scope.token_id), per_token, "This token"),
        (Q(plan_ref=scope.plan_ref), per_plan, "This plan"),
    ]
    return [cap for cap in caps if cap[1]]


def _waiting_requests() -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.filter(status=RequestStatus.PENDING).exclude(HIDDEN_PRE_APPROVALS).order_by()
