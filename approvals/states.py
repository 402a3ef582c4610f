"""The states of an approval request and the moves between them; ARCHITECTURE.md has the diagram."""

from django.db import models
from django.utils.translation import gettext_lazy as _

FAIL, SKIP, CANCEL_PLAN = "fail", "skip", "cancel_plan"


REJECTION_EFFECTS = (FAIL, SKIP, CANCEL_PLAN)


class RequestStatus(models.TextChoices):
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
"""Statuses in which an open request ends without an answer."""

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
# Open requests hold a call; all others are closed.
OPEN = frozenset({RequestStatus.PENDING, RequestStatus.APPROVED})
UNDOABLE = frozenset({RequestStatus.APPROVED, RequestStatus.REJECTED, RequestStatus.RESPONDED})
"""Statuses of decisions that a reviewer can undo until they take effect."""
APPLYING = UNDOABLE | {RequestStatus.CHANGES_REQUESTED}
"""Statuses after an answer, which is applied to the call once."""


REVIEWED = APPLYING | {RequestStatus.CONSUMED}
"""Statuses that the last review caused; its reviewer is shown as the one who decided."""


class ReviewVerdict(models.TextChoices):
    APPROVE = "approve", _("Approved")
    REJECT = "reject", _("Rejected")
    RESPOND = "respond", _("Answered instead of the tool")
    REQUEST_CHANGES = "request_changes", _("Requested changes")


VERDICT_PHRASES: dict[str, str] = {
    ReviewVerdict.APPROVE: "approved {}",
    ReviewVerdict.REJECT: "rejected {}",
    ReviewVerdict.RESPOND: "answered {} instead of the tool",
    ReviewVerdict.REQUEST_CHANGES: "requested changes to {}",
}
"""Verdicts as verbs, with a placeholder for the request."""
END_SENTENCES: dict[str, str] = {
    RequestStatus.EXPIRED: "This request expired before the call could start.",
    RequestStatus.WITHDRAWN: "This request was withdrawn.",
    RequestStatus.REVOKED: "The approval was revoked before the call started.",
    RequestStatus.INVALIDATED: "This request is no longer valid: the call, its target or its terms have changed.",
    RequestStatus.SUPERSEDED: "This request was replaced by a newer one.",
}
"""Sentences for requests that ended without a verdict."""


class EnvelopeStatus(models.TextChoices):
    PROPOSED = "proposed"
    OPEN = "open"
    USED = "used"
    ENDED = "ended"
    REFUSED = "refused"


ENVELOPE_MOVES: dict[str, frozenset[str]] = {
    EnvelopeStatus.PROPOSED: frozenset({EnvelopeStatus.OPEN, EnvelopeStatus.REFUSED}),
    EnvelopeStatus.OPEN: frozenset({EnvelopeStatus.USED, EnvelopeStatus.ENDED}),
    EnvelopeStatus.USED: frozenset(),
    EnvelopeStatus.ENDED: frozenset(),
    EnvelopeStatus.REFUSED: frozenset(),
}
