"""`fsync_ms`: one page of a file overwritten and synced, as a commit does with its log: the cost of the disk alone."""

import os
from pathlib import Path
from time import perf_counter

from django.conf import settings

SYNCS = 100
PAGE = b"\0" * 4096


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each sync."""
    path = Path(settings.TOOLGATE_WORKSPACE) / "fsync"
    path.write_bytes(PAGE * SYNCS)
    with path.open("r+b", buffering=0) as file:
        os.fsync(file.fileno())
        return [_sync(file.fileno(), number % SYNCS) for number in range(runs * SYNCS)]


def _sync(descriptor: int, page: int) -> float:
    started = perf_counter()
    os.pwrite(descriptor, PAGE, page * len(PAGE))
    os.fsync(descriptor)
    return (perf_counter() - started) * 1000
