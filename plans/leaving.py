"""What is sent at once of a request that no longer waits: its row goes, the counts follow, before a list is drawn."""

from django.template.loader import render_to_string

from plans.request_changes import CLOSED, Change

PLACES = ("side", "tab", "list")
"""Where a page says how many requests wait."""


def gone_from_lists(change: Change, waiting: int) -> list[str]:
    """Return what takes a closed request out of the lists of what waits, `waiting` being how many still do."""
    if change.type != CLOSED:
        return []
    row = render_to_string("approvals/_left.html", {"change": change})
    return [row, *(render_to_string("_waiting.html", {"shell": {"waiting": waiting}, "place": at}) for at in PLACES)]
