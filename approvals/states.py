"""The states of an approval request and the moves between them.

pending ──► approved ──► consumed
   │  ▲        │ ──► pending (undone) | expired | withdrawn | invalidated
   │  └────────┘
   ├──► rejected ──► pending (undone)
   └──► expired | withdrawn | invalidated
"""

from django.db import models


class RequestStatus(models.TextChoices):
    """Where one approval request stands."""

    PENDING = "pending"
    APPROVED = "approved"
    CONSUMED = "consumed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    INVALIDATED = "invalidated"


MOVES: dict[str, frozenset[str]] = {
    RequestStatus.PENDING: frozenset(
        {
            RequestStatus.APPROVED,
            RequestStatus.REJECTED,
            RequestStatus.EXPIRED,
            RequestStatus.WITHDRAWN,
            RequestStatus.INVALIDATED,
        }
    ),
    RequestStatus.APPROVED: frozenset(
        {
            RequestStatus.CONSUMED,
            RequestStatus.PENDING,
            RequestStatus.EXPIRED,
            RequestStatus.WITHDRAWN,
            RequestStatus.INVALIDATED,
        }
    ),
    RequestStatus.REJECTED: frozenset({RequestStatus.PENDING}),
    RequestStatus.CONSUMED: frozenset(),
    RequestStatus.EXPIRED: frozenset(),
    RequestStatus.WITHDRAWN: frozenset(),
    RequestStatus.INVALIDATED: frozenset(),
}
# Open requests hold a call; everything else has been answered.
OPEN = frozenset({RequestStatus.PENDING, RequestStatus.APPROVED})


class Verdict(models.TextChoices):
    """One person's answer to one request."""

    APPROVE = "approve"
    REJECT = "reject"
