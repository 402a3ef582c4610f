"""Whether an attempt is still the one that counts, asked outside of any transaction."""

from datetime import timedelta

from django.conf import settings
from django.db import connection

from catalog.core import clock
from catalog.states import CallStatus
from plans.models import Step
from plans.states import SETTLED
from plans.store import statements
from plans.work import Run

SURELY_OURS = 0.9
"""The part of a lease during which a worker need not ask whether it still has it."""


def is_ours(run: Run) -> bool:
    """Say whether the call is still this worker's to run; only after a lease's time can it be anyone else's.

    Asked a little earlier than that: this process's measure of the database's time lies a little behind.
    """
    now, seconds = clock.now(), timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS)
    if run.call.started_at is None or now < run.call.started_at + SURELY_OURS * seconds:
        return True
    with connection.cursor() as cursor:
        return statements.renew_lease(cursor, run.step, until=now + seconds)


def may_undo(run: Run) -> bool:
    """Say whether what this attempt changed may be undone: nobody has begun another, or said what became of the call.

    Another attempt may have written the very same, and whoever settles a call may count on what is there. A call that
    ended while its handler could not be stopped is undone when that comes back.
    """
    mine = Step.objects.filter(pk=run.step.pk, attempt=run.step.attempt, call=run.call.pk, call__fence=run.call.fence)
    return mine.exclude(call__status=CallStatus.COMPLETED).exclude(call__error_kind=SETTLED).exists()
