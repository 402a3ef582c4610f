"""Renewal of leases in a separate thread, so that a slow tick cannot lose a lease."""

import threading
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic

from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorWrapper

from catalog.core import clock
from catalog.core.database import bind_datetime, on_sqlite
from catalog.core.transactions import log_unexpected
from plans.executor.pool import ExecutorPool

RENEWALS_PER_LEASE = 3
"""Renewals per lease period; two may be missed without losing the lease."""
CHECKS_PER_RENEWAL = 4
"""Checks between two renewals; fewer would delay a renewal and shorten the rest of the lease."""
POLL_SECONDS = 1.0


RENEW_ALL = (
    "UPDATE plans_step SET lease_until = %s WHERE id IN (SELECT id FROM plans_step WHERE id IN ({marks}) "
    "AND claimed_by = %s AND lease_until IS NOT NULL ORDER BY id{skip})"
)


class Renewer:
    def __init__(self, executor: ExecutorPool) -> None:
        self._executor = executor
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name="toolgate-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)

    def _live(self) -> None:
        renewed_at = monotonic()
        while not self._stopping.wait(
            min(POLL_SECONDS, settings.TOOLGATE_LEASE_SECONDS / RENEWALS_PER_LEASE / CHECKS_PER_RENEWAL)
        ):
            if monotonic() - renewed_at < settings.TOOLGATE_LEASE_SECONDS / RENEWALS_PER_LEASE:
                continue
            try:
                renew(self._executor)
                renewed_at = monotonic()
            except Exception as error:  # noqa: BLE001 - the thread must keep renewing; the next check tries again
                log_unexpected(error)
                with suppress(Exception):
                    connection.close()
        connection.close()


def renew(executor: ExecutorPool) -> None:
    """Renew the leases of the steps of this executor. Raises OperationalError if the database is unavailable."""
    steps = executor.working_on()
    if steps:
        lease_until = clock.now() + timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS)
        with connection.cursor() as cursor:
            renew_all(cursor, steps, owner=executor.owner, lease_until=lease_until)


def renew_all(cursor: CursorWrapper, step_pks: list[int], *, owner: str, lease_until: datetime) -> None:
    """Renew the leases of these steps, in one statement outside of any transaction.

    Rows locked by others are skipped until the next renewal, so the statement cannot deadlock although no plan is
    locked.
    """
    if not step_pks:
        return
    marks, skip = ", ".join(["%s"] * len(step_pks)), "" if on_sqlite() else " FOR NO KEY UPDATE SKIP LOCKED"
    cursor.execute(RENEW_ALL.format(marks=marks, skip=skip), [bind_datetime(lease_until), *step_pks, owner])
