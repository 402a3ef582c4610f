"""Whether the audit log is what was written: recomputes the chain from its first entry to the head."""

import hmac
from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Subquery

from approvals.audit import entry_hash
from approvals.models import AuditEntry, Instance

CHUNK = 2000


@dataclass(frozen=True, slots=True)
class Verification:
    """What a walk along the chain found; `first_bad` is the first number that is wrong or missing."""

    intact: bool
    entries: int
    first_bad: int | None = None


def verify() -> Verification:
    """Recompute every entry's hash and compare the chain's end with its head; entries written meanwhile are left out.

    Finds changed, added, moved and missing entries. Without checkpoints kept elsewhere it cannot find that the log
    and its head were both set back to an earlier state.
    """
    instance = Instance.objects.get(pk=1)
    last, previous = 0, ""
    for entry in _entries_up_to(instance.audit_seq):
        good = entry.seq == last + 1 and entry.prev_hash == previous
        if not good or not hmac.compare_digest(entry.hash, entry_hash(entry, instance.name)):
            return _broken_after(last)
        last, previous = entry.seq, entry.hash
    if (last, previous) != (instance.audit_seq, instance.audit_head):
        return _broken_after(last)
    stray = _first_beyond_the_head()
    return Verification(intact=stray is None, entries=last, first_bad=stray)


def head_fault() -> str:
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


def _broken_after(last: int) -> Verification:
    return Verification(intact=False, entries=last, first_bad=last + 1)


def _entries_up_to(head: int) -> Iterator[AuditEntry]:
    """Yield the entries in order, a chunk at a time, so that a long log needs little memory."""
    reached = AuditEntry.objects.filter(seq__lte=head).order_by("seq")
    last: int | None = None
    while chunk := list((reached if last is None else reached.filter(seq__gt=last))[:CHUNK]):
        yield from chunk
        last = chunk[-1].seq


def _first_beyond_the_head() -> int | None:
    """Return the first number after the head as it is now: an entry that nobody appended."""
    newest = AuditEntry.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    head = Instance.objects.values_list("audit_seq", flat=True).get(pk=1)
    return head + 1 if newest > head else None
