"""Checkpoints of the audit log: when they are written, and how the log is compared with the last one.

A checkpoint is written after the commit of every decision and of every start of a dangerous call. The ticker writes
more: a minute or a thousand entries after the last checkpoint.
"""

import json
import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from approvals.audit import checkpoint_file
from approvals.audit.checkpoint_file import Checkpoint
from approvals.audit.entries import is_authentic
from approvals.models import AuditEntry, Instance
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.tracing import log_extra
from catalog.core.transactions import log_unexpected
from catalog.definitions.levels import SafetyLevel
from catalog.models import Call
from catalog.signals import Fact

log = logging.getLogger("toolgate.audit")
EPOCH_BEGAN = "epoch.began"
CHECKPOINT_INTERVAL = timedelta(seconds=60)
CHECKPOINT_ENTRIES = 1000
CHECKPOINTS_UNWRITABLE = (
    "The audit checkpoints cannot be written ({}). Make the file named by TOOLGATE_AUDIT_CHECKPOINTS writable, or free "
    "space on its disk. No dangerous call starts until then."
)

_write_fault = ""


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Write a checkpoint when a decision or the start of a dangerous call is committed, before its handler begins."""
    is_due = fact.kind == "approval.decided"
    if fact.kind == "call.started":  # only for this kind is the call's version loaded
        level = fact.data.get("level") or (fact.call.version.safety_level if fact.call else "")
        is_due = level == SafetyLevel.DANGEROUS
    if is_due:
        transaction.on_commit(write_checkpoint, robust=True)


def write_checkpoint() -> bool:
    """Write a checkpoint if the log has grown since the last one; return True if written. Errors are logged."""
    global _write_fault
    try:
        instance = Instance.objects.get(pk=1)
        known = checkpoint_file.newest_checkpoint(instance.name)
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
    written = checkpoint_file.append_checkpoint(checkpoint)
    if written:
        log.info("audit checkpoint", extra=log_extra(**checkpoint.document()))
    return written


def ensure_start_checkpoint(call: Call) -> bool:
    """Write a checkpoint if this call's start is not covered yet; return True if the start is covered now."""
    entries = AuditEntry.objects.filter(object_ref=call.public_id, action="call.started").order_by("-seq")
    started = entries.values_list("seq", flat=True).first()
    return started is not None and (_is_entry_covered(started) or (write_checkpoint() and _is_entry_covered(started)))


def _is_entry_covered(seq: int) -> bool:
    instance = Instance.objects.get(pk=1)
    try:
        known = checkpoint_file.newest_checkpoint(instance.name)
    except OSError:
        return False
    return known is not None and known.place >= (instance.epoch, seq)


def is_checkpoint_due(now: datetime) -> bool:
    """Return True if the last write failed, or if the last checkpoint is a minute or a thousand entries behind."""
    if _write_fault:
        return True
    instance = Instance.objects.filter(pk=1).first()
    if instance is None or not instance.audit_seq:
        return False
    try:
        known = checkpoint_file.newest_checkpoint(instance.name)
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


def checkpoint_write_fault() -> str:
    """Return why the next checkpoint probably cannot be written; empty if no reason is known."""
    try:
        checkpoint_file.check_writable()
    except OSError as error:
        return CHECKPOINTS_UNWRITABLE.format(error.strerror)
    return _write_fault


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
