"""`check_invariants_s`: the seconds that `manage.py check_invariants` takes over a million events."""

import os
from time import perf_counter

from django.conf import settings
from django.db import connection

from benchmarks import long_history
from benchmarks.ground import prepare
from catalog.core import clock
from plans.invariants.base import CheckInput, check_invariants
from plans.models import Event

EVENTS = 1_000_000


def measure(runs: int) -> list[float]:
    """Return the seconds of each run on one database; TOOLGATE_BENCH_EVENTS sets its number of events."""
    prepare()
    wanted = int(os.environ.get("TOOLGATE_BENCH_EVENTS", EVENTS))
    if Event.objects.count() < wanted:
        long_history.write(wanted)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return [_checked() for _ in range(runs)]


def _checked() -> float:
    world = CheckInput(now=clock.now(), lease_seconds=settings.TOOLGATE_LEASE_SECONDS)
    started = perf_counter()
    report = check_invariants(world)
    seconds = perf_counter() - started
    if not report.ok:
        broken = [(each.invariant.id, each.ids[:3], dict(each.reasons)) for each in report.violations()]
        raise RuntimeError(f"The database that was made is not whole: {broken}.")
    return seconds
