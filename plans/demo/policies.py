"""The demo's policies, in addition to the three defaults: two reviewers, a refusal, and a disabled one."""

from typing import Any

from django.contrib.auth.models import User

from approvals.models import Policy, PolicyRevision
from approvals.policies.services import change_policy, create_policy
from catalog.core.workspace_files import KEY_FILES

LONG_WAIT_SECONDS = 30 * 86_400
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
        "name": "Files with keys are blocked",
        "order": 4,
        "match": {
            "tool": "*_file*",
            "arguments": [{"path": "path", "operator": "matches", "value": KEY_FILES.pattern}],
        },
        "effect": "deny",
        "message": "Agents may not open files with keys. Ask a person for the value you need.",
    },
    {
        "name": "No deletions on weekends",
        "order": 6,
        "enabled": False,
        "match": {"tool": "delete_*", "hours": "Sat,Sun 00:00-24:00"},
        "effect": "deny",
        "message": "Deletions are blocked until Monday.",
    },
)


def make_policies() -> None:
    """Create policies that do not exist yet, so that changes by users are kept."""
    known = set(Policy.objects.values_list("name", flat=True))
    admin = User.objects.get(username="admin")
    for document in POLICIES:
        if document["name"] not in known:
            create_policy(document, by=admin)


def allow_long_waits() -> None:
    """Give people a month for the requests that follow, so that they still wait when the demo is opened again."""
    admin = User.objects.get(username="admin")
    for policy in Policy.objects.filter(ended_at=None, revision__effect=PolicyRevision.Effect.HOLD):
        change_policy(policy, {"expires_seconds": LONG_WAIT_SECONDS}, by=admin)
