"""Guard against restored databases: compares the database with its checkpoints, and writes new ones.

A checkpoint is written after the commit of every decision and of every start of a dangerous call, and by the ticker: a
minute or a thousand entries after the last one. A database that is behind its checkpoints, or differs from them, has
been restored from a backup: nothing more may start on it, since calls that were approved there may already have run.
"""

import logging
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from django.db import transaction

from approvals.audit import checkpoints
from approvals.audit.checkpoints import Checkpoint
from approvals.audit.log import entry_hash
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
    "Nothing more is started on it. If it was restored from a backup, stop what runs, run "
    "`manage.py new_epoch --reason …` and start again; if not, keep it as it is and run `manage.py verify_audit`."
)
RESTART_REQUIRED = "This server was started while the database was set back, and executes nothing: start it again."

CHECKPOINTS_UNREADABLE = "The audit checkpoints cannot be read ({}): TOOLGATE_AUDIT_CHECKPOINTS names their file."
CHECKPOINTS_UNWRITABLE = (
    "The audit checkpoints cannot be written ({}): let the file that TOOLGATE_AUDIT_CHECKPOINTS names be written, or "
    "free space on its disk. No dangerous call starts until then."
)

_cached_fault = ""
_write_fault = ""
_needs_restart = False


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Have what weighs most witnessed: a decision, and the start of a dangerous call before its handler begins."""
    if fact.kind == "approval.decided" or (fact.kind == "call.started" and _is_dangerous(fact)):
        transaction.on_commit(write_checkpoint, robust=True)


def _is_dangerous(fact: Fact) -> bool:
    level = fact.data.get("level") or (fact.call.version.safety_level if fact.call else "")
    return bool(level == SafetyLevel.DANGEROUS)


def detect_restore() -> str:
    """Return in words what shows that the database was set back, or why nobody can tell; empty when nothing does."""
    try:
        return compare_with_checkpoints()
    except OSError as error:
        return CHECKPOINTS_UNREADABLE.format(error.strerror)


def compare_with_checkpoints() -> str:
    """Return in words what shows that the database was set back; empty when nothing does. Raises OSError.

    Reads the end of a file and two rows. Not for use inside a transaction that has read already.
    """
    instance = Instance.objects.filter(pk=1).first()
    if instance is None:
        return ""
    known = checkpoints.newest_checkpoint(instance.name)
    # Read again: what was committed since the first look may have been witnessed since.
    instance.refresh_from_db()
    fault = checkpoint_contradiction(instance, known)
    return f"{fault} {RECOVERY_INSTRUCTIONS}" if fault else ""


def ensure_start_allowed() -> None:
    """Raise RestoredDatabase when the database was set back, AuditUnavailable when a start could not be witnessed."""
    try:
        fault = compare_with_checkpoints()
    except OSError as error:
        raise AuditUnavailable(CHECKPOINTS_UNREADABLE.format(error.strerror)) from error
    if fault:
        raise RestoredDatabase(fault)
    if fault := checkpoint_write_fault():
        raise AuditUnavailable(fault)


def checkpoint_write_fault() -> str:
    """Return why the next checkpoint could not be written, as far as can be known without writing one; else empty."""
    try:
        checkpoints.check_writable()
    except OSError as error:
        return CHECKPOINTS_UNWRITABLE.format(error.strerror)
    return _write_fault


def ensure_start_checkpoint(call: Call) -> bool:
    """Say whether a checkpoint on the disk tells of this call's start; writes one where none does."""
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
    """Raise RestoredDatabase where this process has seen that the database was set back; asks nothing of anyone.

    For the doors: what creates, decides or lets go on says why it does not. A start that weighs looks for itself.
    """
    if _cached_fault:
        raise RestoredDatabase(_cached_fault)


def checkpoint_contradiction(instance: Instance, known: Checkpoint | None) -> str:
    """Return how the last checkpoint contradicts the log; empty when it does not."""
    if known is None:
        return ""
    if known.epoch > instance.epoch:
        return f"The database is older than epoch {known.epoch}, which its checkpoints tell of."
    if known.epoch < instance.epoch:
        return (
            ""
            if _has_epoch_entry(instance)
            else f"Nobody began epoch {instance.epoch}: the database was changed by hand."
        )
    if known.seq > instance.audit_seq:
        there = f"entry {known.seq:,}, and its audit log ends at {instance.audit_seq:,}"
        return f"The database is older than its checkpoints: they tell of {there}."
    entry = AuditEntry.objects.filter(seq=known.seq).values_list("hash", flat=True).first()
    return "" if entry == known.head else f"Entry {known.seq:,} is another than its checkpoint tells of."


def _has_epoch_entry(instance: Instance) -> bool:
    """Say whether the log itself tells that this epoch was begun."""
    entry = AuditEntry.objects.filter(action=EPOCH_BEGAN).order_by("-seq").first()
    if entry is None or entry.hash != entry_hash(entry, instance.name):
        return False
    return bool(entry.details_json.get("epoch") == instance.epoch)


def write_checkpoint() -> bool:
    """Write down where the log stands, unless that is known; say whether it was written. What fails is logged."""
    global _write_fault
    try:
        written = _write_checkpoint()
    except Exception as error:  # noqa: BLE001 - who decided or started something has done so; the ticker tries again
        was_known = bool(_write_fault)
        if isinstance(error, OSError):
            _write_fault = CHECKPOINTS_UNWRITABLE.format(error.strerror)
        if not was_known:
            log.error("a checkpoint of the audit log could not be written")
            log_unexpected(error)
        return False
    _write_fault = ""
    return written


def _write_checkpoint() -> bool:
    instance = Instance.objects.get(pk=1)
    known = checkpoints.newest_checkpoint(instance.name)
    if not instance.audit_seq or (known is not None and known.place >= (instance.epoch, instance.audit_seq)):
        return False
    if checkpoint_contradiction(instance, known):
        return False  # a database that was set back must not become what its checkpoints tell of
    return store_checkpoint(instance)


def store_checkpoint(instance: Instance) -> bool:
    """Append a checkpoint of this head to the file and log it, so that a log shipper keeps a copy on another host."""
    place = (instance.name, instance.epoch, instance.audit_seq, instance.audit_head)
    checkpoint = Checkpoint(*place, at=format_utc(clock.now()))
    written = checkpoints.append_checkpoint(checkpoint)
    if written:
        log.info("audit checkpoint", extra=log_extra(**checkpoint.document()))
    return written


def cached_fault() -> str:
    """Return what this process found when it last looked, at no cost."""
    return _cached_fault


def refresh_status() -> str:
    """Return what shows that the database was set back, and let this process's doors and pages know it.

    Checkpoints that cannot be read now show nothing: what was known stands, and no dangerous call starts meanwhile.
    """
    global _cached_fault
    with suppress(OSError):
        _cached_fault = compare_with_checkpoints() or restart_reason()
    return _cached_fault


def restart_reason() -> str:
    """Say why this process takes nothing although the database is itself again; empty when it does."""
    return RESTART_REQUIRED if _needs_restart else ""


def require_restart() -> None:
    """Keep this process's doors shut until it is started again: whatever it would take, nothing here would execute."""
    global _needs_restart
    _needs_restart = True


class RestoreMonitor:
    """The ticker's look: at a database that was set back, and at entries that no checkpoint covers."""

    def __init__(self) -> None:
        self._looked_at = float("-inf")
        self.fault = ""

    def look(self) -> str:
        """Look every few seconds and write what is due; return what shows that the database was set back."""
        if monotonic() - self._looked_at < CHECK_INTERVAL_SECONDS:
            return self.fault
        self._looked_at = monotonic()
        before, self.fault = self.fault, refresh_status()
        if self.fault and not before:
            log.error("the database was set back: nothing more is started here")
        if not self.fault and _is_checkpoint_due(clock.now()):
            write_checkpoint()
        return self.fault


def _is_checkpoint_due(now: datetime) -> bool:
    """Say whether a checkpoint is to be written: where one failed, or a minute or a thousand entries after the last."""
    if _write_fault:
        return True
    instance = Instance.objects.filter(pk=1).first()
    if instance is None or not instance.audit_seq:
        return False
    try:
        known = checkpoints.newest_checkpoint(instance.name)
    except OSError:
        return True  # to be tried, and said
    if known is None:
        return True
    missing = instance.audit_seq - known.seq
    return missing >= CHECKPOINT_ENTRIES or (missing > 0 and _checkpoint_age(known, now) >= CHECKPOINT_INTERVAL)


def _checkpoint_age(known: Checkpoint, now: datetime) -> timedelta:
    try:
        return now - datetime.fromisoformat(known.at)
    except ValueError:
        return CHECKPOINT_INTERVAL
