"""The states of an approval request and the moves between them.

pending ──► approved ──► consumed
   │  ▲        │ ──► pending (undone) | revoked | expired | withdrawn | invalidated
   │  └────────┘
   ├──► rejected | responded ──► pending (undone)
   ├──► changes_requested ──► superseded
   ├──► invalidated ──► superseded
   └──► expired | withdrawn
"""

from django.db import models

FAIL, SKIP, CANCEL_PLAN = "fail", "skip", "cancel_plan"


REJECTION_EFFECTS = (FAIL, SKIP, CANCEL_PLAN)


class RequestStatus(models.TextChoices):
    """Where one approval request stands."""

    PENDING = "pending"
    APPROVED = "approved"
    CONSUMED = "consumed"
    REJECTED = "rejected"
    RESPONDED = "responded"
    CHANGES_REQUESTED = "changes_requested"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    REVOKED = "revoked"
    INVALIDATED = "invalidated"
    SUPERSEDED = "superseded"


ENDED_OTHERWISE = frozenset({RequestStatus.EXPIRED, RequestStatus.WITHDRAWN, RequestStatus.INVALIDATED})
"""How an open request ends without anybody's answer."""

MOVES: dict[str, frozenset[str]] = {
    RequestStatus.PENDING: ENDED_OTHERWISE
    | {
        RequestStatus.APPROVED,
        RequestStatus.REJECTED,
        RequestStatus.RESPONDED,
        RequestStatus.CHANGES_REQUESTED,
    },
    RequestStatus.APPROVED: ENDED_OTHERWISE | {RequestStatus.CONSUMED, RequestStatus.PENDING, RequestStatus.REVOKED},
    RequestStatus.REJECTED: frozenset({RequestStatus.PENDING}),
    RequestStatus.RESPONDED: frozenset({RequestStatus.PENDING}),
    RequestStatus.CHANGES_REQUESTED: frozenset({RequestStatus.SUPERSEDED}),
    RequestStatus.INVALIDATED: frozenset({RequestStatus.SUPERSEDED}),
    RequestStatus.CONSUMED: frozenset(),
    RequestStatus.EXPIRED: frozenset(),
    RequestStatus.WITHDRAWN: frozenset(),
    RequestStatus.REVOKED: frozenset(),
    RequestStatus.SUPERSEDED: frozenset(),
}
# Open requests hold a call; everything else has been answered.
OPEN = frozenset({RequestStatus.PENDING, RequestStatus.APPROVED})
UNDOABLE = frozenset({RequestStatus.APPROVED, RequestStatus.REJECTED, RequestStatus.RESPONDED})
"""What a reviewer may take back until it takes effect."""
APPLYING = UNDOABLE | {RequestStatus.CHANGES_REQUESTED}
"""What people's answers lead to: each is carried to the call once."""


REVIEWED = APPLYING | {RequestStatus.CONSUMED}
"""Where the last review says who brought a request there; every other end is somebody else's doing, or nobody's."""


class ReviewVerdict(models.TextChoices):
    """One person's answer to one request."""

    APPROVE = "approve", "Approved"
    REJECT = "reject", "Rejected"
    RESPOND = "respond", "Answered in the tool's place"
    REQUEST_CHANGES = "request_changes", "Asked for changes"


VERDICT_PHRASES: dict[str, str] = {
    ReviewVerdict.APPROVE: "approved {}",
    ReviewVerdict.REJECT: "rejected {}",
    ReviewVerdict.RESPOND: "answered {} in the tool's place",
    ReviewVerdict.REQUEST_CHANGES: "asked for changes to {}",
}
"""Each verdict as something that a person did to a request."""
END_SENTENCES: dict[str, str] = {
    RequestStatus.EXPIRED: "This request has expired: its time was over before the call could start.",
    RequestStatus.WITHDRAWN: "This request was withdrawn.",
    RequestStatus.REVOKED: "The approval was revoked before the call started.",
    RequestStatus.INVALIDATED: "This request is no longer valid: what was asked for has changed.",
    RequestStatus.SUPERSEDED: "This request was replaced by a newer one.",
}
"""Sentences for the ends of requests without a verdict."""
