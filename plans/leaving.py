"""What is sent at once of a request that no longer waits: its row goes before a list is drawn without it."""

from django.template.loader import render_to_string

from plans.live.approval_changes import CLOSED, Change


def gone_from_lists(change: Change) -> list[str]:
    """Return what takes a closed request out of the lists of what waits."""
    return [render_to_string("approvals/_left.html", {"change": change})] if change.type == CLOSED else []
