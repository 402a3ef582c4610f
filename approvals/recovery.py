"""Recovery after a restore: `manage.py new_epoch` starts an epoch in which nothing approved before may run."""

from dataclasses import dataclass

from django.db import transaction

from approvals.audit import checkpoint_file, checkpoints
from approvals.audit.log import AuditRecord, append_entry
from approvals.envelopes.services import end_older_epochs
from approvals.grants.services import end_grants, in_force
from approvals.models import ApprovalRequest, AuditEntry, Grant, Instance
from approvals.requests.lifecycle import invalidate_and_reopen
from approvals.states import OPEN
from catalog.core import clock
from catalog.core.transactions import retry_on_deadlock, run_each
from catalog.errors import ParameterError

VOID_BATCH_SIZE = 100
MAX_REASON_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """A new epoch, with the numbers of ended requests, ended grants, and audit entries that the restore lost."""

    epoch: int
    requests: int
    grants: int
    lost_entries: int


def begin_epoch(reason: str) -> EpochSummary:
    """Start the next epoch; safe to repeat after a crash. Raises ParameterError and OSError.

    Ends open requests before and after the change of epoch, since running processes may open new ones meanwhile.
    """
    reason = reason.strip()
    if not reason or len(reason) > MAX_REASON_LENGTH:
        raise ParameterError(
            f"Give a reason for the new epoch, with at most {MAX_REASON_LENGTH:,} characters.", {"field": "reason"}
        )
    why = f"A new epoch began: {reason}"
    instance = Instance.objects.get(pk=1)
    known = [line.checkpoint for line in checkpoint_file.read_checkpoints(instance.name) if not line.forged]
    hashes = dict(AuditEntry.objects.filter(seq__in={each.seq for each in known}).values_list("seq", "hash"))
    differing = [each.seq for each in known if each.seq <= instance.audit_seq and hashes.get(each.seq) != each.head]
    # The last entry up to which log and checkpoints agree: the end of the log if none contradicts it.
    kept_to = instance.audit_seq
    if differing:
        agreed = (each.seq for each in known if hashes.get(each.seq) == each.head)
        kept_to = max([0, *(seq for seq in agreed if seq < min(differing))])
    ended = _void_open(why)
    known_to = max((each.seq for each in known), default=0)
    instance = _raise_epoch(max((each.epoch for each in known), default=1), reason, kept_to=kept_to, known_to=known_to)
    ended += _void_open(why)
    grants = end_grants(Grant.objects.filter(in_force(clock.now()), epoch__lt=instance.epoch), why)
    end_older_epochs(instance.epoch, why)
    instance.refresh_from_db()
    checkpoints.store_checkpoint(instance)
    return EpochSummary(instance.epoch, ended, grants, max(0, known_to - kept_to))


@retry_on_deadlock
def _raise_epoch(known_epoch: int, reason: str, **positions: int) -> Instance:
    """Set an epoch higher than all known ones and record it in the audit log; return this installation."""
    with transaction.atomic():
        instance = Instance.objects.select_for_update().get(pk=1)
        epoch = max(instance.epoch, known_epoch) + 1
        Instance.objects.filter(pk=1).update(epoch=epoch)
        details = {"epoch": epoch, "reason": reason, **positions}
        append_entry(AuditRecord(action=checkpoints.EPOCH_BEGAN, object_ref=f"epoch_{epoch}", details=details))
        instance.refresh_from_db()
    return instance


def _void_open(why: str) -> int:
    """End the open requests with their calls and return their number; their steps request approval again."""
    last = ApprovalRequest.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    ended = 0
    while True:
        waiting = ApprovalRequest.objects.filter(status__in=OPEN, pk__lte=last).select_related("call")
        done = run_each(
            lambda request: invalidate_and_reopen(request, reason=why), list(waiting.order_by("pk")[:VOID_BATCH_SIZE])
        )
        ended += done
        if not done:
            return ended
