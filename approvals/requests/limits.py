"""How many requests may wait for people at once: of one requester, of one token, of one plan. 0 means no limit.

An agent that asks for everything at once buries what matters; whoever answers sees no more of it than this. Counted
are requests that are in people's lists. The caller has locked the plan; two plans of one requester take turns at a lock
of the requester's own, which is taken before the audit log's.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest
from approvals.requests.queries import HIDDEN_PRE_APPROVALS
from approvals.states import RequestStatus
from catalog.errors import RateLimited

RETRY_AFTER_SECONDS = 60
"""When a client may ask again: people need longer, but one of them may have answered."""
ADVISORY_LOCK_CLASS = 8_042
"""The first half of the keys of PostgreSQL's advisory locks; the second is the requester."""


class TooManyWaiting(RateLimited):
    """As many requests wait for people as may; the message says whose, and what can be done. → 429"""

    code = "too_many_waiting"


@dataclass(frozen=True, slots=True)
class RequesterScope:
    """Whose request it would be: a person's, through which token, in which plan; "" for a plan of its own."""

    user_id: int | None
    token_id: int | None = None
    plan_ref: str = ""


def reserve_slot(asking: RequesterScope) -> None:
    """See that one more request may wait, and that nobody else takes its place before the transaction ends.

    Raises TooManyWaiting.
    """
    lock_slots(asking)
    check_pending_limit(asking)


def lock_slots(asking: RequesterScope) -> None:
    """Let nobody else take this requester's room before the transaction ends; must precede the audit head's lock."""
    if asking.user_id is not None and (_per_requester() or _per_token()) and connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [ADVISORY_LOCK_CLASS, asking.user_id])


def check_pending_limit(asking: RequesterScope) -> None:
    """See whether one more request may wait now. Raises TooManyWaiting."""
    for condition, most, whose in _pending_limits(asking):
        if _waiting_requests().filter(condition)[:most].count() >= most:
            words = f"{most} requests of {whose} wait for people already, and no more may."
            raise TooManyWaiting(f"{words} Ask again when some are answered, or withdraw some.", RETRY_AFTER_SECONDS)


def free_slots(asking: RequesterScope, wanted: int) -> int:
    """Return how many more requests may wait now, `wanted` at most."""
    counts = (
        most - _waiting_requests().filter(condition)[:most].count() for condition, most, _ in _pending_limits(asking)
    )
    return max(0, min(wanted, *counts)) if _pending_limits(asking) else wanted


def _pending_limits(asking: RequesterScope) -> list[tuple[Q, int, str]]:
    """Return each limit that holds here: which requests it counts, how many may be, and whose they are called."""
    caps = [
        (Q(call__requested_by=asking.user_id), _per_requester() if asking.user_id else 0, "yours"),
        (Q(call__token=asking.token_id), _per_token() if asking.token_id else 0, "this token"),
        (Q(plan_ref=asking.plan_ref), settings.TOOLGATE_MAX_PENDING_PER_PLAN if asking.plan_ref else 0, "this plan"),
    ]
    return [cap for cap in caps if cap[1]]


def _waiting_requests() -> QuerySet[ApprovalRequest]:
    return ApprovalRequest.objects.filter(status=RequestStatus.PENDING).exclude(HIDDEN_PRE_APPROVALS).order_by()


def _per_requester() -> int:
    most: int = settings.TOOLGATE_MAX_PENDING_PER_REQUESTER
    return most


def _per_token() -> int:
    most: int = settings.TOOLGATE_MAX_PENDING_PER_TOKEN
    return most
