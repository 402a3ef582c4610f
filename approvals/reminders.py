"""Telling those who may answer that time passes: at half and at nine tenths of it, each once, also after a restart.

The fact is stated here; who is told, and how, is for whoever listens.
"""

from datetime import datetime

from django.db import transaction
from django.db.models import F

from approvals.models import ApprovalRequest
from approvals.reminding import next_reminder
from approvals.selectors import NOT_ASKED_YET
from approvals.states import RequestStatus
from catalog.core.canonical_json import time_text
from catalog.core.transactions import do_each, retried
from catalog.signals import announce, record


def remind_due(now: datetime, limit: int = 100) -> int:
    """Remind of what is due, each request in its own transaction; return how many were spoken of.

    Where both times passed unseen, it is spoken of once.
    """
    waiting = ApprovalRequest.objects.filter(status=RequestStatus.PENDING, remind_at__lte=now, expires_at__gt=now)
    due = waiting.exclude(NOT_ASKED_YET).select_related("call").order_by("remind_at")
    return do_each(lambda request: _remind(request, now), due[:limit])


@retried
def _remind(request: ApprovalRequest, now: datetime) -> bool:
    """Take the reminder that is due, unless someone else has, and say so."""
    began = request.escalated_at or request.opened_at
    following = next_reminder(began, request.expires_at, now)
    with transaction.atomic():
        announce(request.call)
        unspoken = ApprovalRequest.objects.filter(
            pk=request.pk, status=RequestStatus.PENDING, remind_at=request.remind_at, expires_at__gt=now
        )
        if not unspoken.update(reminders=F("reminders") + 1, remind_at=following):
            return False
        record(
            "approval.reminded",
            call=request.call,
            approval=request.public_id,
            number=request.reminders + 1,
            expires_at=time_text(request.expires_at),
        )
        return True
