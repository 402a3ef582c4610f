"""Renewing the leases of what runs here, on a thread of its own: nothing that a tick waits for may cost one."""

import threading
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from django.conf import settings
from django.db import connection

from catalog import clock
from catalog.problems import log_unexpected
from plans import claims
from plans.executor import Executor

TIMES = 3
"""How often a lease is renewed while it lasts: two that are missed are harmless."""
LOOK_SECONDS = 1.0


class Renewer:
    """Renews the leases of one executor until it is stopped."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, name="toolgate-leases", daemon=True)

    def start(self) -> None:
        """Start renewing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the renewal that is under way."""
        self._stopping.set()
        self._thread.join(timeout=5)

    def _live(self) -> None:
        renewed_at = monotonic()
        while not self._stopping.wait(min(LOOK_SECONDS, settings.TOOLGATE_LEASE_SECONDS / (TIMES + 1))):
            if monotonic() - renewed_at >= settings.TOOLGATE_LEASE_SECONDS / TIMES and self._renew():
                renewed_at = monotonic()
        connection.close()

    def _renew(self) -> bool:
        """Renew all leases; False when the database was away: the next look tries again."""
        try:
            renew(self._executor)
        except Exception as error:  # noqa: BLE001 - whatever it was, the leases are still to be renewed
            log_unexpected(error)
            with suppress(Exception):
                connection.close()
            return False
        return True


def renew(executor: Executor) -> None:
    """Renew the leases of what this executor works on. Raises OperationalError when the database is away."""
    steps = executor.working_on()
    if steps:
        lease_until = clock.now() + timedelta(seconds=settings.TOOLGATE_LEASE_SECONDS)
        with connection.cursor() as cursor:
            claims.renew_leases(cursor, steps, owner=executor.owner, lease_until=lease_until)
