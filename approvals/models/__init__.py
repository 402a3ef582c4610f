"""Models of approvals: policies, requests with rounds and reviews, grants, stops, notifications, the audit log."""

from approvals.models.audit import AuditEntry, Instance
from approvals.models.envelopes import Envelope, EnvelopeItem, EnvelopeMismatch, EnvelopeUse
from approvals.models.grants import Grant, GrantUse
from approvals.models.history import CallHistory, RecentCall
from approvals.models.notifications import Delivery, NotificationChoice, PushDevice
from approvals.models.policies import Policy, PolicyRevision, RefusedCall, TrialResult, new_policy_id
from approvals.models.requests import (
    DECIDED_OR_OPENED_AT,
    ApprovalNonce,
    ApprovalRequest,
    Comment,
    Delegation,
    Review,
    Round,
    Snooze,
    new_request_id,
)
from approvals.models.stops import Stop

__all__ = [
    "DECIDED_OR_OPENED_AT",
    "ApprovalNonce",
    "ApprovalRequest",
    "AuditEntry",
    "CallHistory",
    "Comment",
    "Delegation",
    "Delivery",
    "Envelope",
    "EnvelopeItem",
    "EnvelopeMismatch",
    "EnvelopeUse",
    "Grant",
    "GrantUse",
    "Instance",
    "NotificationChoice",
    "Policy",
    "PolicyRevision",
    "PushDevice",
    "RecentCall",
    "RefusedCall",
    "Review",
    "Round",
    "Snooze",
    "Stop",
    "TrialResult",
    "new_policy_id",
    "new_request_id",
]
