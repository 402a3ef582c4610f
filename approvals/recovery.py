"""Recovery after a restore: a new epoch, in which nothing that was approved before may run.

A new epoch is begun by hand (`manage.py new_epoch`), because approved calls may have run since the backup. It ends
every open request and every grant, and records the reason and the lost entries in the audit log.
"""

from dataclasses import dataclass

from django.db import transaction

from approvals.audit import checkpoints, restore_guard
from approvals.audit.log import Line, append
from approvals.grants.services import end_all, in_force
from approvals.models import ApprovalRequest, AuditEntry, Grant, Instance
from approvals.requests.lifecycle import void
from approvals.states import OPEN
from catalog.core import clock
from catalog.core.transactions import do_each, retried
from catalog.errors import ParameterError

AT_ONCE = 100
MOST_REASON = 1000


@dataclass(frozen=True, slots=True)
class Begun:
    """A new epoch: how many requests and grants it ended, and how many entries are lost, as far as checkpoints tell."""

    epoch: int
    requests: int
    grants: int
    lost_entries: int


def begin_epoch(reason: str) -> Begun:
    """Begin the next epoch; repeated after a crash it ends what is left. Raises ParameterError, OSError.

    What waits is ended before and after: in between, who runs in spite of what `restored` says may have asked anew.
    """
    reason = reason.strip()
    if not reason or len(reason) > MOST_REASON:
        raise ParameterError(f"Say in up to {MOST_REASON:,} characters why a new epoch begins.", {"field": "reason"})
    why = f"A new epoch began: {reason}"
    instance = Instance.objects.get(pk=1)
    lines = [line.checkpoint for line in checkpoints.read(instance.name) if not line.forged]
    kept_to = _common(lines, instance.audit_seq)
    ended = _void_open(why)
    known_to = max((each.seq for each in lines), default=0)
    instance = _raise(max((each.epoch for each in lines), default=1), reason, kept_to=kept_to, known_to=known_to)
    ended += _void_open(why)
    grants = _end_grants(instance.epoch, why)
    instance.refresh_from_db()
    restore_guard.write(instance)
    return Begun(instance.epoch, ended, grants, max(0, known_to - kept_to))


@retried
def _raise(known_epoch: int, reason: str, **told: int) -> Instance:
    """Raise the epoch over all that is known, tell of it and of what was lost; return this installation."""
    with transaction.atomic():
        instance = Instance.objects.select_for_update().get(pk=1)
        epoch = max(instance.epoch, known_epoch) + 1
        Instance.objects.filter(pk=1).update(epoch=epoch)
        details = {"epoch": epoch, "reason": reason, **told}
        append(Line(action=restore_guard.EPOCH_BEGAN, object_ref=f"epoch_{epoch}", details=details))
        instance.refresh_from_db()
    return instance


def _common(lines: list[checkpoints.Checkpoint], end: int) -> int:
    """Return up to which entry log and checkpoints tell of the same: to its end, where none contradicts it."""
    hashes = dict(AuditEntry.objects.filter(seq__in={each.seq for each in lines}).values_list("seq", "hash"))
    differing = [each.seq for each in lines if each.seq <= end and hashes.get(each.seq) != each.head]
    agreed = [each.seq for each in lines if hashes.get(each.seq) == each.head]
    if not differing:
        return end
    return max([0, *(seq for seq in agreed if seq < min(differing))])


def _void_open(why: str) -> int:
    """End the open requests, each with its call; return how many were. Their steps ask anew, in the new epoch."""
    last = ApprovalRequest.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    ended = 0
    while True:
        waiting = ApprovalRequest.objects.filter(status__in=OPEN, pk__lte=last).select_related("call")
        done = do_each(lambda request: void(request, reason=why), list(waiting.order_by("pk")[:AT_ONCE]))
        ended += done
        if not done:
            return ended


def _end_grants(epoch: int, why: str) -> int:
    """End the grants of earlier epochs that are in force."""
    return end_all(Grant.objects.filter(in_force(clock.now()), epoch__lt=epoch), why)
