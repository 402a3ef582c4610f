"""The demo's policies, before the three of every installation: two people, a refusal, and one switched off."""

from typing import Any

from django.contrib.auth.models import User

from approvals.models import Policy
from approvals.policies.services import create_policy

POLICIES: tuple[dict[str, Any], ...] = (
    {
        "name": "Payments over 1,000 need two reviewers",
        "order": 2,
        "match": {
            "tool": "send_*",
            "arguments": [{"path": "amount", "operator": "greater_than", "value": 1000}],
        },
        "effect": "hold",
        "stages": [{"group": "reviewer", "count": 2}],
        "expires_seconds": 4 * 3600,
        "on_expiry": "escalate",
        "escalate_to": "administrator",
        "reason_required": True,
    },
    {
        "name": "Files with keys stay shut",
        "order": 4,
        "match": {
            "tool": "*_file",
            "arguments": [{"path": "path", "operator": "matches", "value": r"(^|/)\.env(\.|$)"}],
        },
        "effect": "deny",
        "message": "Files with keys are for people. Ask for what you need to know instead.",
    },
    {
        "name": "Nothing is deleted at the weekend",
        "order": 6,
        "enabled": False,
        "match": {"tool": "delete_*", "hours": "Sat,Sun 00:00-24:00"},
        "effect": "deny",
        "message": "Deleting waits until Monday.",
    },
)


def make_policies() -> None:
    """Make those that were never made here; who ended or changed one keeps it so."""
    known = set(Policy.objects.values_list("name", flat=True))
    admin = User.objects.get(username="admin")
    for document in POLICIES:
        if document["name"] not in known:
            create_policy(document, by=admin)
