"""Verification of the audit log: recomputes the chain from its first entry to the head.

The chain reveals changed, added, moved and removed entries. Only checkpoints reveal that it was truncated together with
its head, or rewritten by someone with the key.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field

from django.db.models import Subquery

from approvals.audit import checkpoint_file
from approvals.audit.checkpoints import EPOCH_BEGAN
from approvals.audit.entries import is_authentic, stored_entries
from approvals.audit.log import ENTRY_COLUMNS, make_hasher
from approvals.models import AuditEntry, Instance
from catalog.definitions.levels import SafetyLevel

ACTION, DETAILS, PREVIOUS = map(ENTRY_COLUMNS.index, ("action", "details", "prev_hash"))
DANGEROUS = f'"level":"{SafetyLevel.DANGEROUS}"'
CHECKPOINTS_MISSING = (
    "The checkpoint file is missing or has no checkpoints of this installation, although the log has entries that "
    "require them. Restore the file named by TOOLGATE_AUDIT_CHECKPOINTS: without it, a truncated or rewritten log "
    "cannot be detected."
)


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of a verification; `first_bad` is the number of the first wrong or missing entry, `reason` the finding.

    If only the checkpoints are missing, the log is not intact and `first_bad` is None.
    """

    intact: bool
    entries: int
    first_bad: int | None = None
    checkpoints: int = 0
    reason: str | None = None


@dataclass(slots=True)
class _Walk:
    """State of a walk along the chain: hashes at checkpoints, and epochs recorded in the log."""

    checkpoint_seqs: frozenset[int]
    last: int = 0
    previous: str = ""
    hashes: dict[int, str] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Epochs after the first, each with the last entry that checkpoints of earlier epochs are compared with."""
    was_witnessed: bool = False
    """True if the log contains a decision or a dangerous start, which are followed by a checkpoint."""

    def go(self, instance: Instance) -> bool:
        """Walk to the head recorded in `instance`; return False if the chain breaks after entry `last`."""
        hash_of, checkpoint_seqs, hashes = make_hasher(instance.name), self.checkpoint_seqs, self.hashes
        last, previous = 0, ""
        for row, found in stored_entries(0, instance.audit_seq):
            if row is None or row[0] != last + 1 or row[PREVIOUS] != previous or found != hash_of(row):
                break
            last, previous = row[0], found
            if last in checkpoint_seqs:
                hashes[last] = found
            action = row[ACTION]
            if action == EPOCH_BEGAN:
                data = json.loads(str(row[DETAILS]))
                self.epochs.append((int(data["epoch"]), int(data["kept_to"])))
            elif action == "approval.decided" or (action == "call.started" and DANGEROUS in str(row[DETAILS])):
                self.was_witnessed = True
        self.last, self.previous = last, previous
        return (last, previous) == (instance.audit_seq, instance.audit_head)


def verify() -> Verification:
    """Recompute all hashes; compare the chain with its stored head and the checkpoints. Raises OSError."""
    name = Instance.objects.values_list("name", flat=True).get(pk=1)
    lines = list(checkpoint_file.read_checkpoints(name))
    # Read the head after the checkpoints, so that it is at least as recent as all of them.
    instance = Instance.objects.get(pk=1)
    walk = _Walk(frozenset(line.checkpoint.seq for line in lines))
    if not walk.go(instance):
        reason = "An entry was changed, added, moved or removed, or was written with another key."
        return _broken_chain(walk.last, reason)
    head = Instance.objects.values_list("audit_seq", flat=True).get(pk=1)
    if AuditEntry.objects.filter(seq__gt=head).exists():
        return _broken_chain(head, "There is an entry after the head of the log.")
    if walk.was_witnessed and not lines and next(checkpoint_file.read_checkpoints(name), None) is None:
        return Verification(intact=False, entries=walk.last, reason=CHECKPOINTS_MISSING)
    bad = _compare_with_checkpoints(walk, lines, instance)
    return bad or Verification(intact=True, entries=walk.last, checkpoints=len(lines))


def _compare_with_checkpoints(
    walk: _Walk, checkpoint_lines: list[checkpoint_file.CheckpointLine], instance: Instance
) -> Verification | None:
    """Compare the chain with its checkpoints; return None if they agree."""
    if instance.epoch != max([1, *(epoch for epoch, _ in walk.epochs)]):
        return _broken_chain(walk.last, f"The log has no entry that starts epoch {instance.epoch}.")
    good = 0
    bad: dict[str, list[int]] = defaultdict(list)
    for line in checkpoint_lines:
        seq = line.checkpoint.seq
        if line.forged:
            bad["forged"].append(seq)
        elif any(line.checkpoint.epoch < epoch and line.checkpoint.seq > kept_to for epoch, kept_to in walk.epochs):
            continue
        elif line.checkpoint.epoch > instance.epoch or seq > walk.last:
            bad["missing"].append(seq)
        elif walk.hashes.get(seq) != line.checkpoint.head:
            bad["rewritten"].append(seq)
        else:
            good = max(good, seq)
    last = walk.last
    if bad["rewritten"]:
        seq = min(bad["rewritten"])
        reason = f"Entries were rewritten: entry {seq:,} differs from its checkpoint (the log is good to {good:,})."
        return Verification(intact=False, entries=last, first_bad=seq, reason=reason)
    if bad["missing"]:
        reason = f"The log was truncated or restored: a checkpoint records entry {max(bad['missing']):,}."
        return _broken_chain(last, reason)
    if bad["forged"]:
        reason = "A line of the checkpoint file was changed or written with another key."
        return Verification(intact=False, entries=last, first_bad=min(bad["forged"]), reason=reason)
    return None


def chain_end_fault() -> str:
    """Return the fault at the end of the chain; empty if there is none. Runs two queries, however long the log is.

    Detects a log that was truncated without its head, and a wrong TOOLGATE_AUDIT_KEY.
    """
    newest = AuditEntry.objects.order_by("-seq")
    instances = Instance.objects.annotate(last_seq=Subquery(newest.values("seq")[:1]))
    instance = instances.annotate(last_hash=Subquery(newest.values("hash")[:1])).filter(pk=1).first()
    if instance is None:
        return "the row of this installation is missing"
    if (instance.last_seq or 0, instance.last_hash or "") != (instance.audit_seq, instance.audit_head):
        return "its last entry does not match its head"
    if instance.last_seq and not is_authentic(instance.last_seq, instance.name):
        return "its last entry was changed or written with another key"
    return ""


def _broken_chain(last: int, reason: str) -> Verification:
    return Verification(intact=False, entries=last, first_bad=last + 1, reason=reason)
