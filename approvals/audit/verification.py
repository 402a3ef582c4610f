"""Whether the audit log is what was written: recomputes the chain from its first entry to the head.

The chain shows what was changed, added, moved or taken out. That it was cut off together with its head, or written anew
by someone who has the key, is shown by its checkpoints alone.
"""

import hmac
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, Func, Subquery
from django.db.models.sql.compiler import SQLCompiler

from approvals.audit import checkpoints
from approvals.audit.log import ENTRY_COLUMNS, HashedFields, entry_hash, make_hasher
from approvals.audit.restore_guard import EPOCH_BEGAN
from approvals.models import AuditEntry, Instance
from catalog.definitions.levels import SafetyLevel

CHUNK = 5000
ACTION, DETAILS, PREVIOUS = (
    ENTRY_COLUMNS.index("action"),
    ENTRY_COLUMNS.index("details"),
    ENTRY_COLUMNS.index("prev_hash"),
)


DANGEROUS = f'"level":"{SafetyLevel.DANGEROUS}"'
CHECKPOINTS_MISSING = (
    "The checkpoint file is missing, or tells nothing of this installation, though the log has entries that were "
    "witnessed: bring back the file that TOOLGATE_AUDIT_CHECKPOINTS names. Without it nobody can tell whether the log "
    "was cut off or written anew."
)


class TimeText(Func):
    """A moment as `catalog.core.canonical_json.format_utc` writes it, put together by the database: Python takes
    longer for it.
    """

    output_field = CharField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **more: Any) -> Any:
        """Take the text apart that SQLite keeps: it has no fraction at a whole second."""
        at = "%(expressions)s"
        fraction = f"substr(substr({at}, 21) || '000000', 1, 6)"
        text = f"substr({at}, 1, 10) || 'T' || substr({at}, 12, 8) || '.' || {fraction} || 'Z'"
        return self.as_sql(compiler, connection, template=text, **more)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **more: Any) -> Any:
        """Let the server write it."""
        text = """to_char(%(expressions)s AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
        return self.as_sql(compiler, connection, template=text, **more)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a walk along the chain found; `first_bad` is the first number that is wrong or missing, `reason` says how.

    A log whose chain holds is not intact without its checkpoints; then no entry is bad. `checkpoints` is how many of
    them the log was held against.
    """

    intact: bool
    entries: int
    first_bad: int | None = None
    checkpoints: int = 0
    reason: str | None = None


@dataclass(slots=True)
class _Walk:
    """What is gathered on the way: the hashes where checkpoints stand, and which epochs the log tells of."""

    wanted: frozenset[int]
    last: int = 0
    previous: str = ""
    hashes: dict[int, str] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Each epoch after the first, and the last entry before it that its checkpoints may be held against."""
    was_witnessed: bool = False
    """True when it tells of a decision or a dangerous start, after each of which a checkpoint was written."""

    def go(self, instance: Instance) -> bool:
        """Walk up to the head as `instance` has it; False where the chain breaks, after `last`."""
        hash_of, wanted, hashes = make_hasher(instance.name), self.wanted, self.hashes
        last, previous = 0, ""
        for row, found in _rows_up_to(instance.audit_seq):
            if row[0] != last + 1 or row[PREVIOUS] != previous or found != hash_of(row):
                break
            last, previous = row[0], found
            if last in wanted:
                hashes[last] = found
            action = row[ACTION]
            if action == EPOCH_BEGAN:
                self._note_epoch(str(row[DETAILS]))
            elif action == "approval.decided" or (action == "call.started" and DANGEROUS in str(row[DETAILS])):
                self.was_witnessed = True
        self.last, self.previous = last, previous
        return (last, previous) == (instance.audit_seq, instance.audit_head)

    def _note_epoch(self, details: str) -> None:
        data = json.loads(details)
        self.epochs.append((int(data["epoch"]), int(data["kept_to"])))


def verify() -> Verification:
    """Recompute every entry's hash, compare the chain's end with its head, and all of it with the checkpoints.

    Entries written meanwhile are left out. Raises OSError when the checkpoints cannot be read.
    """
    name = Instance.objects.values_list("name", flat=True).get(pk=1)
    lines = list(checkpoints.read_checkpoints(name))
    # Only now: whatever a checkpoint tells of was committed before it was written.
    instance = Instance.objects.get(pk=1)
    walk = _Walk(frozenset(line.checkpoint.seq for line in lines))
    if not walk.go(instance):
        return _broken_chain(walk.last, "An entry was changed, added, moved or taken out, or has another key.")
    stray = _first_after_head()
    if stray is not None:
        return _broken_chain(stray - 1, "An entry stands behind the head of the log.")
    if walk.was_witnessed and not lines and next(checkpoints.read_checkpoints(name), None) is None:
        return Verification(intact=False, entries=walk.last, reason=CHECKPOINTS_MISSING)
    bad = _compare_with_checkpoints(walk, lines, instance)
    return bad or Verification(intact=True, entries=walk.last, checkpoints=len(lines))


def _compare_with_checkpoints(
    walk: _Walk, lines: list[checkpoints.CheckpointLine], instance: Instance
) -> Verification | None:
    """Hold the chain against its checkpoints; None when nothing contradicts it."""
    if instance.epoch != max([1, *(epoch for epoch, _ in walk.epochs)]):
        return _broken_chain(walk.last, f"The log does not tell that epoch {instance.epoch} began.")
    good = 0
    bad: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        seq = line.checkpoint.seq
        if line.forged:
            bad["forged"].append(seq)
        elif _is_declared_lost(line.checkpoint, walk.epochs):
            continue
        elif line.checkpoint.epoch > instance.epoch or seq > walk.last:
            bad["missing"].append(seq)
        elif walk.hashes.get(seq) != line.checkpoint.head:
            bad["rewritten"].append(seq)
        else:
            good = max(good, seq)
    return _worst_contradiction(bad, good, walk.last)


def _is_declared_lost(checkpoint: checkpoints.Checkpoint, epochs: list[tuple[int, int]]) -> bool:
    """Say whether a checkpoint tells of entries that a restore took away, and that a later epoch names as lost."""
    return any(checkpoint.epoch < epoch and checkpoint.seq > kept_to for epoch, kept_to in epochs)


def _worst_contradiction(bad: dict[str, list[int]], good: int, last: int) -> Verification | None:
    if bad["rewritten"]:
        seq = min(bad["rewritten"])
        said = f"Entries were written anew: what stands at {seq:,} is not what its checkpoint tells of"
        return Verification(intact=False, entries=last, first_bad=seq, reason=f"{said} (it is good to {good:,}).")
    if bad["missing"]:
        said = f"The log was cut off or set back: a checkpoint tells of entry {max(bad['missing']):,}."
        return _broken_chain(last, said)
    if bad["forged"]:
        said = "A line of the checkpoint file was changed, or has another key."
        return Verification(intact=False, entries=last, first_bad=min(bad["forged"]), reason=said)
    return None


def chain_end_fault() -> str:
    """Return what is wrong with the end of the chain, empty when nothing is; two statements, however long the log is.

    Finds a log that was cut off or set back without its head, and a TOOLGATE_AUDIT_KEY that is not the one in use.
    """
    newest = AuditEntry.objects.order_by("-seq")
    instances = Instance.objects.annotate(last_seq=Subquery(newest.values("seq")[:1]))
    instance = instances.annotate(last_hash=Subquery(newest.values("hash")[:1])).filter(pk=1).first()
    if instance is None:
        return "this installation's row is missing"
    if (instance.last_seq or 0, instance.last_hash or "") != (instance.audit_seq, instance.audit_head):
        return "its last entry is not the one that its head names"
    last = newest.filter(seq=instance.audit_seq).first()
    if last is not None and not hmac.compare_digest(last.hash, entry_hash(last, instance.name)):
        return "its last entry was changed, or was written with another key"
    return ""


def _broken_chain(last: int, reason: str) -> Verification:
    return Verification(intact=False, entries=last, first_bad=last + 1, reason=reason)


def _rows_up_to(head: int) -> Iterator[tuple[HashedFields, str]]:
    """Yield the entries in order with their hashes, a chunk at a time, so that a long log needs little memory."""
    columns = ["moment" if name == "at" else name for name in ENTRY_COLUMNS]
    entries = AuditEntry.objects.filter(seq__lte=head).annotate(moment=TimeText("at")).order_by("seq")
    rows = entries.values_list(*columns, "hash")
    last: int | None = None
    while chunk := list((rows if last is None else rows.filter(seq__gt=last))[:CHUNK]):
        for row in chunk:
            yield row[:-1], row[-1]
        last = chunk[-1][0]


def _first_after_head() -> int | None:
    """Return the first number after the head as it is now: an entry that nobody appended."""
    newest = AuditEntry.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    head = Instance.objects.values_list("audit_seq", flat=True).get(pk=1)
    return head + 1 if newest > head else None
