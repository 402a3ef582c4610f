"""When what a page shows of a call's effect was true."""

from datetime import datetime

from django import template

from approvals.models import ApprovalRequest
from approvals.requests.queries import current_round

register = template.Library()


@register.filter
def previewed_at(held: ApprovalRequest) -> datetime:
    """Return when the tool said what the call would do: its target may have changed since, and is looked at again."""
    return current_round(held).created_at
