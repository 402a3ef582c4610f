"""`audit_append_ms`, `audit_verify_per_s`: the time to append an entry to the audit log, and the speed of verification.

Appending is measured inside a transaction, without the commit, which an entry shares with the action it records.
"""

from collections.abc import Iterator
from time import perf_counter

from django.contrib.auth.models import User
from django.db import transaction

from approvals.audit.checkpoints import write_checkpoint
from approvals.audit.log import AuditRecord, append_entry
from approvals.audit.verification import verify
from approvals.models import Instance
from benchmarks.ground import prepare

ENTRIES = 1000
LOG = 50_000


def measure(runs: int) -> list[float]:
    """Return the milliseconds of each append."""
    by = prepare()
    with transaction.atomic():
        return list(_appended([_line(by, number) for number in range(runs * ENTRIES)]))


def verify_per_s(runs: int) -> list[float]:
    """Return the entries verified per second, in a long log with checkpoints."""
    by = prepare()
    for part in range(10):
        with transaction.atomic():
            for number in range(LOG // 10):
                append_entry(_line(by, part * LOG + number))
        write_checkpoint()
    return [_verified() for _ in range(runs)]


def _line(by: User, number: int) -> AuditRecord:
    """Return a record as large as that of the start of a dangerous call."""
    ids = {"call": f"call_{number:026}", "approval": f"apr_{number:026}", "level": "dangerous", "attempt": 1}
    return AuditRecord(
        action="call.started",
        by=by,
        object_ref=f"call_{number:026}",
        tool_name="write_file",
        plan_ref=f"plan_{number:026}",
        digest="d" * 64,
        details=ids,
    )


def _appended(lines: list[AuditRecord]) -> Iterator[float]:
    for line in lines:
        started = perf_counter()
        append_entry(line)
        yield (perf_counter() - started) * 1000


def _verified() -> float:
    started = perf_counter()
    found = verify()
    seconds = perf_counter() - started
    if not found.intact or found.entries != Instance.objects.get(pk=1).audit_seq or not found.checkpoints:
        raise RuntimeError(f"The log is not intact: {found}.")
    return found.entries / seconds
