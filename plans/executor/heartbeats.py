"""Heartbeats of executors: one row for each process with an executor, refreshed by its ticker."""

import os
import socket
from datetime import timedelta

from django.db.models.functions import Now

from plans.models import Executor

BEAT_SECONDS = 5.0
ALIVE_FOR = timedelta(seconds=15)
FORGET_AFTER = timedelta(hours=1)


def record_heartbeat(owner: str, threads: int) -> None:
    """Record, by the database's clock, that the executor is alive, with its number of threads."""
    row = Executor(owner=owner, host=socket.gethostname()[:255], pid=os.getpid(), threads=threads)
    row.started_at = row.seen_at = Now()
    Executor.objects.bulk_create([row], update_conflicts=True, unique_fields=["owner"], update_fields=["seen_at"])


def remove_executor(owner: str) -> None:
    """Delete the row of an executor that ends, and rows not refreshed for FORGET_AFTER."""
    Executor.objects.filter(owner=owner).delete()
    Executor.objects.filter(seen_at__lt=Now() - FORGET_AFTER).delete()


def live_executors() -> list[Executor]:
    """Return the executors on all machines with a heartbeat in the last 15 seconds."""
    return list(Executor.objects.filter(seen_at__gt=Now() - ALIVE_FOR).order_by("host", "pid"))
