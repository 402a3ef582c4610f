"""Guard against restored databases: compares the database with its checkpoints.

A database that is behind its checkpoints or differs from them has been restored from a backup. No call may start on it:
calls that are approved there may already have run.
"""

import logging
from contextlib import suppress
from time import monotonic

from approvals.audit import checkpoint_file
from approvals.audit.checkpoints import (
    checkpoint_contradiction,
    checkpoint_write_fault,
    is_checkpoint_due,
    write_checkpoint,
)
from approvals.errors import AuditUnavailable
from approvals.models import Instance
from catalog.core import clock
from catalog.errors import RestoredDatabase
from toolgate.places import COMMAND

log = logging.getLogger("toolgate.audit")
CHECK_INTERVAL_SECONDS = 5.0
RECOVERY_INSTRUCTIONS = (
    "No further calls are started. If the database was restored from a backup, stop all processes, run "
    f"`{COMMAND} new_epoch --reason …` and start them again. Otherwise change nothing and run `{COMMAND} verify_audit`."
)
RESTART_REQUIRED = "This server was started on a restored database and executes nothing. Restart it."
CHECKPOINTS_UNREADABLE = (
    "The audit checkpoints cannot be read ({}). Check the file named by TOOLGATE_AUDIT_CHECKPOINTS."
)

_cached_fault = ""
_needs_restart = False


def detect_restore() -> str:
    """Return evidence that the database was restored, or the reason why this cannot be checked; otherwise empty."""
    try:
        return compare_with_checkpoints()
    except OSError as error:
        return CHECKPOINTS_UNREADABLE.format(error.strerror)


def compare_with_checkpoints() -> str:
    """Return evidence that the database was restored, or "". Raises OSError. Needs an up-to-date snapshot."""
    instance = Instance.objects.filter(pk=1).first()
    if instance is None:
        return ""
    known = checkpoint_file.newest_checkpoint(instance.name)
    # Read again: the checkpoint may be about an entry committed after the first read.
    instance.refresh_from_db()
    fault = checkpoint_contradiction(instance, known)
    return f"{fault} {RECOVERY_INSTRUCTIONS}" if fault else ""


def ensure_start_allowed() -> None:
    """Raise RestoredDatabase if the database was restored, AuditUnavailable if no checkpoint can be read or written."""
    try:
        fault = compare_with_checkpoints()
    except OSError as error:
        raise AuditUnavailable(CHECKPOINTS_UNREADABLE.format(error.strerror)) from error
    if fault:
        raise RestoredDatabase(fault)
    if fault := checkpoint_write_fault():
        raise AuditUnavailable(fault)


def ensure_not_restored() -> None:
    """Raise RestoredDatabase if this process has detected it already. For work that does not arrive by HTTP."""
    if _cached_fault:
        raise RestoredDatabase(_cached_fault)


def cached_fault() -> str:
    return _cached_fault


def refresh_status() -> str:
    """Check for a restored database, cache the result for this process, and return it.

    If the checkpoints cannot be read, the cached result stays; no dangerous call starts meanwhile.
    """
    global _cached_fault
    with suppress(OSError):
        _cached_fault = compare_with_checkpoints() or restart_reason()
    return _cached_fault


def restart_reason() -> str:
    """Return the reason why this process must be restarted; empty if it need not be."""
    return RESTART_REQUIRED if _needs_restart else ""


def require_restart() -> None:
    """Refuse new work until this process is restarted: it was started on a restored database and executes nothing."""
    global _needs_restart
    _needs_restart = True


class RestoreMonitor:
    """Periodic check by the ticker for a restored database and for entries without a checkpoint."""

    def __init__(self) -> None:
        self._checked_at = float("-inf")
        self.fault = ""

    def check(self) -> str:
        """Repeat the check if it is a few seconds old, and write due checkpoints; return evidence of a restore."""
        if monotonic() - self._checked_at < CHECK_INTERVAL_SECONDS:
            return self.fault
        self._checked_at = monotonic()
        before, self.fault = self.fault, refresh_status()
        if self.fault and not before:
            log.error("restored database detected: no further calls are started")
        if not self.fault and is_checkpoint_due(clock.now()):
            write_checkpoint()
        return self.fault
