"""Guard against restored databases: compares the database with its checkpoints, and writes new ones.

A checkpoint is written after the commit of every decision and of every start of a dangerous call. The ticker writes
more: a minute or a thousand entries after the last checkpoint. A database that is behind its checkpoints or differs
from them has been restored from a backup. No call may start on it: calls that are approved there may already have run.
"""

import json
import logging
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from django.db import transaction

from approvals.audit import checkpoints
from approvals.audit.checkpoints import Checkpoint
from approvals.audit.entries import is_authentic
from approvals.errors import AuditUnavailable
from approvals.models import AuditEntry, Instance
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.tracing import log_extra
from catalog.core.transactions import log_unexpected
from catalog.definitions.levels import SafetyLevel
from catalog.errors import RestoredDatabase
from catalog.models import Call
from catalog.signals import Fact

log = logging.getLogger("toolgate.audit")
EPOCH_BEGAN = "epoch.began"
CHECK_INTERVAL_SECONDS = 5.0
CHECKPOINT_INTERVAL = timedelta(seconds=60)
CHECKPOINT_ENTRIES = 1000
RECOVERY_INSTRUCTIONS = (
    "No further calls are started. If the database was restored from a backup, stop all processes, run "
    "`manage.py new_epoch --reason …` and start them again. Otherwise change nothing and run `manage.py verify_audit`."
)
RESTART_REQUIRED = "This server was started on a restored database and executes nothing. Restart it."
CHECKPOINTS_UNREADABLE = (
    "The audit checkpoints cannot be read ({}). Check the file named by TOOLGATE_AUDIT_CHECKPOINTS."
)
CHECKPOINTS_UNWRITABLE = (
    "The audit checkpoints cannot be written ({}). Make the file named by TOOLGATE_AUDIT_CHECKPOINTS writable, or free "
    "space on its disk. No dangerous call starts until then."
)

_cached_fault = ""
_write_fault = ""
_needs_restart = False


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Write a checkpoint when a decision or the start of a dangerous call is committed, before its handler begins."""
    is_due = fact.kind == "approval.decided"
    if fact.kind == "call.started":  # only for this kind is the call's version loaded
        level = fact.data.get("level") or (fact.call.version.safety_level if fact.call else "")
        is_due = level == SafetyLevel.DANGEROUS
    if is_due:
        transaction.on_commit(write_checkpoint, robust=True)


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
    known = checkpoints.newest_checkpoint(instance.name)
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


def checkpoint_write_fault() -> str:
    """Return why the next checkpoint probably cannot be written; empty if no reason is known."""
    try:
        checkpoints.check_writable()
    except OSError as error:
        return CHECKPOINTS_UNWRITABLE.format(error.strerror)
    return _write_fault


def ensure_start_checkpoint(call: Call) -> bool:
    """Write a checkpoint if this call's start is not covered yet; return True if the start is covered now."""
    entries = AuditEntry.objects.filter(object_ref=call.public_id, action="call.started").order_by("-seq")
    started = entries.values_list("seq", flat=True).first()
    return started is not None and (_is_entry_covered(started) or (write_checkpoint() and _is_entry_covered(started)))


def _is_entry_covered(seq: int) -> bool:
    instance = Instance.objects.get(pk=1)
    try:
        known = checkpoints.newest_checkpoint(instance.name)
    except OSError:
        return False
    return known is not None and known.place >= (instance.epoch, seq)


def ensure_not_restored() -> None:
    """Raise RestoredDatabase if this process has detected it already. For work that does not arrive by HTTP."""
    if _cached_fault:
        raise RestoredDatabase(_cached_fault)


def checkpoint_contradiction(instance: Instance, checkpoint: Checkpoint | None) -> str:
    """Return the contradiction between the last checkpoint and the log; empty if there is none."""
    if checkpoint is None:
        return ""
    if checkpoint.epoch > instance.epoch:
        return f"The database is older than epoch {checkpoint.epoch}, which its checkpoints record."
    if checkpoint.epoch < instance.epoch:
        began = AuditEntry.objects.filter(action=EPOCH_BEGAN).order_by("-seq").values_list("seq", "details").first()
        if began and is_authentic(began[0], instance.name) and json.loads(began[1])["epoch"] == instance.epoch:
            return ""
        return f"The log has no entry that starts epoch {instance.epoch}: the database was changed by hand."
    if checkpoint.seq > instance.audit_seq:
        entries = f"entry {checkpoint.seq:,}, but its audit log ends at {instance.audit_seq:,}"
        return f"The database is older than its checkpoints: they record {entries}."
    entry = AuditEntry.objects.filter(seq=checkpoint.seq).values_list("hash", flat=True).first()
    return "" if entry == checkpoint.head else f"Entry {checkpoint.seq:,} differs from its checkpoint."


def write_checkpoint() -> bool:
    """Write a checkpoint if the log has grown since the last one; return True if written. Errors are logged."""
    global _write_fault
    try:
        instance = Instance.objects.get(pk=1)
        known = checkpoints.newest_checkpoint(instance.name)
        is_due = instance.audit_seq and (known is None or known.place < (instance.epoch, instance.audit_seq))
        # A restored database must not get checkpoints of its own.
        written = bool(is_due) and not checkpoint_contradiction(instance, known) and store_checkpoint(instance)
    except Exception as error:  # noqa: BLE001 - the decision or start is committed already; the ticker tries again
        was_known = bool(_write_fault)
        if isinstance(error, OSError):
            _write_fault = CHECKPOINTS_UNWRITABLE.format(error.strerror)
        if not was_known:
            log.error("audit checkpoint could not be written")
            log_unexpected(error)
        return False
    _write_fault = ""
    return written


def store_checkpoint(instance: Instance) -> bool:
    """Append a checkpoint of the current head to the file. Also log it, so that log shipping keeps a copy elsewhere."""
    place = (instance.name, instance.epoch, instance.audit_seq, instance.audit_head)
    checkpoint = Checkpoint(*place, at=format_utc(clock.now()))
    written = checkpoints.append_checkpoint(checkpoint)
    if written:
        log.info("audit checkpoint", extra=log_extra(**checkpoint.document()))
    return written


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
        if not self.fault and _is_checkpoint_due(clock.now()):
            write_checkpoint()
        return self.fault


def _is_checkpoint_due(now: datetime) -> bool:
    """Return True if the last write failed, or if the last checkpoint is a minute or a thousand entries behind."""
    if _write_fault:
        return True
    instance = Instance.objects.filter(pk=1).first()
    if instance is None or not instance.audit_seq:
        return False
    try:
        known = checkpoints.newest_checkpoint(instance.name)
    except OSError:
        return True  # the attempt to write will log the error
    if known is None:
        return True
    missing = instance.audit_seq - known.seq
    try:
        age = now - datetime.fromisoformat(known.at)
    except ValueError:
        age = CHECKPOINT_INTERVAL
    return missing >= CHECKPOINT_ENTRIES or (missing > 0 and age >= CHECKPOINT_INTERVAL)
