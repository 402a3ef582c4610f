"""The audit log: an append-only chain whose hashes need a key that is not in the database.

Keeps who did what to which call, request, tool or token: ids, digests and reasons, never arguments or results. An
entry is written in the transaction of what it tells, or neither is.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import transaction
from pydantic_core import to_jsonable_python

from approvals.models import AuditEntry, Instance
from catalog import clock
from catalog.canonical import canonical_text, time_text
from catalog.definitions import SafetyLevel
from catalog.errors import Conflict
from catalog.facts import Fact
from catalog.models import Call

if TYPE_CHECKING:
    from django.contrib.auth.models import User

NOBODY = "Toolgate"
"""Who did what no person did: time, or the engine."""
KEPT_OF_CALLS = ("approval.", "call.refused", "call.revealed", "call.settled", "step.outcome_unknown")
TOLD_OTHERWISE = ("call.changing", "call.voided")
KEPT_WITHOUT_CALL = ("tool.", "token.")
NEVER_KEPT = frozenset({"arguments", "parameters", "result", "results", "response", "message", "value"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is to be kept of one thing that happened."""

    action: str
    by: "User | None" = None
    actor_name: str = ""
    object_ref: str = ""
    tool_name: str = ""
    plan_ref: str = ""
    digest: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


def append(line: Line) -> AuditEntry:
    """Add one line at the head of the chain. Raises Conflict when someone else moved the head meanwhile."""
    with transaction.atomic(savepoint=False):
        instance = Instance.objects.select_for_update().get(pk=1)
        entry = _entry(line, instance)
        entry.hash = entry_hash(entry, instance.name)
        entry.save(force_insert=True)
        head = Instance.objects.filter(pk=1, audit_seq=instance.audit_seq, audit_head=instance.audit_head)
        if not head.update(audit_seq=entry.seq, audit_head=entry.hash):
            raise Conflict("The head of the audit log moved while an entry was written.")
    return entry


def _entry(line: Line, instance: Instance) -> AuditEntry:
    return AuditEntry(
        seq=instance.audit_seq + 1,
        at=clock.now(),
        actor=line.by,
        actor_name=line.actor_name or (line.by.get_username() if line.by else NOBODY),
        action=line.action,
        object_ref=line.object_ref,
        tool_name=line.tool_name,
        plan_ref=line.plan_ref,
        digest=line.digest,
        details=_details_text(line.details),
        prev_hash=instance.audit_head,
    )


def _details_text(details: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in details.items() if name not in NEVER_KEPT}
    return canonical_text(to_jsonable_python(kept))


def entry_hash(entry: AuditEntry, instance_name: str) -> str:
    """Return the HMAC-SHA256 over every field of an entry and the hash before it, each led by its length."""
    fields = (
        instance_name,
        str(entry.seq),
        time_text(entry.at),
        str(entry.actor_id or ""),
        entry.actor_name,
        entry.action,
        entry.object_ref,
        entry.tool_name,
        entry.plan_ref,
        entry.digest,
        entry.details,
        entry.prev_hash,
    )
    mac = hmac.new(settings.TOOLGATE_AUDIT_KEY.encode(), digestmod=hashlib.sha256)
    for text in fields:
        data = text.encode()
        mac.update(len(data).to_bytes(8, "big") + data)
    return mac.hexdigest()


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Keep what the audit keeps."""
    if not _is_kept(fact):
        return
    append(_line_about_a_call(fact, fact.call) if fact.call else _line_about_the_catalog(fact))


def _line_about_a_call(fact: Fact, call: Call) -> Line:
    """Return the line under the request's id where there is one, else under the call's."""
    data = {"call": call.public_id, **fact.data}
    return Line(
        action=fact.kind,
        by=fact.by,
        object_ref=data.pop("approval", None) or data.pop("call"),
        tool_name=call.tool_name,
        plan_ref=call.plan_ref,
        digest=data.pop("digest", ""),
        details=data,
    )


def _line_about_the_catalog(fact: Fact) -> Line:
    """Return the line about a tool or a token, named in the data under its own kind."""
    noun = fact.kind.partition(".")[0]
    ref = str(fact.data.get(noun, ""))[:64]
    tool_name = ref if noun == "tool" else ""
    return Line(action=fact.kind, by=fact.by, object_ref=ref, tool_name=tool_name, details=fact.data)


def _is_kept(fact: Fact) -> bool:
    """Say whether a fact belongs in the log: safe calls that nobody refused leave events only."""
    if fact.call is None:
        return fact.kind.startswith(KEPT_WITHOUT_CALL)
    if fact.kind.startswith(KEPT_OF_CALLS):
        return True
    if fact.kind in TOLD_OTHERWISE or not fact.kind.startswith("call."):
        return False
    level = fact.data.get("level") or fact.call.version.safety_level
    return bool(level != SafetyLevel.SAFE)
