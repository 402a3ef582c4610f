"""The audit log: an append-only chain whose hashes need a key that is not in the database.

Keeps who did what to which call, request, tool or token: ids, digests and reasons, never arguments or results. An
entry is written in the transaction of what it tells, or neither is.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from pydantic_core import to_jsonable_python

from approvals.models import AuditEntry, Instance
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, format_utc
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict
from catalog.models import Call
from catalog.signals import Fact

SYSTEM_ACTOR = "Toolgate"
"""Who did what no person did: time, or the engine."""
AUDITED_CALL_FACTS = ("approval.", "grant.", "call.refused", "call.revealed", "call.settled", "step.outcome_unknown")
UNAUDITED_FACTS = ("call.changing", "call.voided", "approval.snoozed", "approval.reminded")
AUDITED_CATALOG_FACTS = ("tool.", "token.", "policy.", "grant.", "notifications.", "agent.")
FORBIDDEN_DETAILS = frozenset({"arguments", "parameters", "result", "results", "response", "message", "value"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What is to be kept of one thing that happened."""

    action: str
    by: "User | None" = None
    actor_name: str = ""
    object_ref: str = ""
    tool_name: str = ""
    plan_ref: str = ""
    digest: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


HashedFields = tuple[int, str, int | None, str, str, str, str, str, str, str, str]
"""An entry as its hash covers it: `COLUMNS`, the time as clients are told it, without the hash itself."""
ENTRY_COLUMNS = (
    "seq",
    "at",
    "actor_id",
    "actor_name",
    "action",
    "object_ref",
    "tool_name",
    "plan_ref",
    "digest",
    "details",
    "prev_hash",
)
HMAC_BLOCK = 64
CACHED_LENGTHS = 1024
LENGTH_PREFIXES = [length.to_bytes(8, "big") for length in range(CACHED_LENGTHS)]
# Every dangerous call waits for these three: as statements they cost a fraction of what models make of them.
READ_HEAD = "SELECT name, audit_seq, audit_head FROM approvals_instance WHERE id = 1"
INSERT = (
    "INSERT INTO approvals_auditentry (seq, at, actor_id, actor_name, action, object_ref, tool_name, plan_ref, digest, "
    "details, prev_hash, hash) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
MOVE_HEAD = (
    "UPDATE approvals_instance SET audit_seq = %s, audit_head = %s WHERE id = 1 AND audit_seq = %s AND audit_head = %s"
)


def append_entry(line: AuditRecord) -> int:
    """Add one line at the head of the chain; return its number.

    Raises Instance.DoesNotExist without this installation's row, Conflict when someone moved the head meanwhile.
    """
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.execute(READ_HEAD if connection.vendor == "sqlite" else f"{READ_HEAD} FOR UPDATE")
        head = cursor.fetchone()
        if head is None:
            raise Instance.DoesNotExist("This installation's row is missing.")
        name, seq, previous = head
        now = clock.now()
        row = _hashed_fields(line, seq + 1, now, previous)
        digest = make_hasher(name)(row)
        stored = (row[0], connection.ops.adapt_datetimefield_value(now), *row[2:], digest)
        cursor.execute(INSERT, stored)
        cursor.execute(MOVE_HEAD, (seq + 1, digest, seq, previous))
        if cursor.rowcount != 1:
            raise Conflict("The head of the audit log moved while an entry was written.")
    return int(seq) + 1


def _hashed_fields(line: AuditRecord, seq: int, now: datetime, previous: str) -> HashedFields:
    return (
        seq,
        format_utc(now),
        line.by.pk if line.by else None,
        line.actor_name or (line.by.get_username() if line.by else SYSTEM_ACTOR),
        line.action,
        line.object_ref,
        line.tool_name,
        line.plan_ref,
        line.digest,
        _details_text(line.details),
        previous,
    )


def _details_text(details: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in details.items() if name not in FORBIDDEN_DETAILS}
    return canonical_text(to_jsonable_python(kept))


def make_hasher(instance_name: str) -> Callable[[HashedFields], str]:
    """Return what gives an entry's HMAC-SHA256: over the instance and every field, each led by its length.

    What all entries begin with is computed once and copied, so that a log is verified at 100,000 entries a second:
    `hmac` does the same as the two hashes here (RFC 2104) at half the speed.
    """
    key = settings.TOOLGATE_AUDIT_KEY.encode()
    padded = (key if len(key) <= HMAC_BLOCK else hashlib.sha256(key).digest()).ljust(HMAC_BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
    inner.update(_length_prefixed(instance_name))
    copy_inner, copy_outer = inner.copy, hashlib.sha256(bytes(byte ^ 0x5C for byte in padded)).copy

    def hash_of(row: HashedFields) -> str:
        seq, moment, actor, *texts = row
        parts: list[bytes] = []
        for text in (str(seq), moment, str(actor or ""), *texts):
            data = text.encode()
            length = len(data)
            parts += (LENGTH_PREFIXES[length] if length < CACHED_LENGTHS else length.to_bytes(8, "big"), data)
        within, around = copy_inner(), copy_outer()
        within.update(b"".join(parts))
        around.update(within.digest())
        return around.hexdigest()

    return hash_of


def _length_prefixed(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(8, "big") + data


def entry_hash(entry: AuditEntry, instance_name: str) -> str:
    """Return the hash that an entry must have."""
    values = [getattr(entry, name) for name in ENTRY_COLUMNS[2:]]
    return make_hasher(instance_name)((entry.seq, format_utc(entry.at), *values))


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Keep what the audit keeps."""
    if not _is_audited(fact):
        return
    append_entry(_call_record(fact, fact.call) if fact.call else _catalog_record(fact))


def _call_record(fact: Fact, call: Call) -> AuditRecord:
    """Return the line under the request's id where there is one, else under the call's."""
    data = {"call": call.public_id, **fact.data}
    return AuditRecord(
        action=fact.kind,
        by=fact.by,
        object_ref=data.pop("approval", None) or data.pop("call"),
        tool_name=call.tool_name,
        plan_ref=call.plan_ref,
        digest=data.pop("digest", ""),
        details=data,
    )


def _catalog_record(fact: Fact) -> AuditRecord:
    """Return the line about a tool or a token, named in the data under its own kind."""
    noun = fact.kind.partition(".")[0]
    ref = str(fact.data.get(noun, ""))[:64]
    tool_name = ref if noun == "tool" else ""
    return AuditRecord(action=fact.kind, by=fact.by, object_ref=ref, tool_name=tool_name, details=fact.data)


def _is_audited(fact: Fact) -> bool:
    """Say whether a fact belongs in the log: safe calls that nobody refused leave events only."""
    if fact.call is None:
        return fact.kind.startswith(AUDITED_CATALOG_FACTS)
    if fact.kind in UNAUDITED_FACTS:
        return False
    if fact.kind.startswith(AUDITED_CALL_FACTS):
        return True
    if not fact.kind.startswith("call."):
        return False
    level = fact.data.get("level") or fact.call.version.safety_level
    return bool(level != SafetyLevel.SAFE)
