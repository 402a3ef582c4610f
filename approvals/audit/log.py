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
from catalog.core.canonical_json import canonical_text, time_text
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict
from catalog.models import Call
from catalog.signals import Fact

NOBODY = "Toolgate"
"""Who did what no person did: time, or the engine."""
KEPT_OF_CALLS = ("approval.", "grant.", "call.refused", "call.revealed", "call.settled", "step.outcome_unknown")
TOLD_OTHERWISE = ("call.changing", "call.voided", "approval.snoozed", "approval.reminded")
KEPT_WITHOUT_CALL = ("tool.", "token.", "policy.", "grant.", "notifications.", "agent.")
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


Row = tuple[int, str, int | None, str, str, str, str, str, str, str, str]
"""An entry as its hash covers it: `COLUMNS`, the time as clients are told it, without the hash itself."""
COLUMNS = (
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
SHORT = 1024
LENGTHS = [length.to_bytes(8, "big") for length in range(SHORT)]
# Every dangerous call waits for these three: as statements they cost a fraction of what models make of them.
READ_HEAD = "SELECT name, audit_seq, audit_head FROM approvals_instance WHERE id = 1"
INSERT = (
    "INSERT INTO approvals_auditentry (seq, at, actor_id, actor_name, action, object_ref, tool_name, plan_ref, digest, "
    "details, prev_hash, hash) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
MOVE_HEAD = (
    "UPDATE approvals_instance SET audit_seq = %s, audit_head = %s WHERE id = 1 AND audit_seq = %s AND audit_head = %s"
)


def append(line: Line) -> int:
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
        row = _row(line, seq + 1, now, previous)
        digest = hasher(name)(row)
        stored = (row[0], connection.ops.adapt_datetimefield_value(now), *row[2:], digest)
        cursor.execute(INSERT, stored)
        cursor.execute(MOVE_HEAD, (seq + 1, digest, seq, previous))
        if cursor.rowcount != 1:
            raise Conflict("The head of the audit log moved while an entry was written.")
    return int(seq) + 1


def _row(line: Line, seq: int, now: datetime, previous: str) -> Row:
    return (
        seq,
        time_text(now),
        line.by.pk if line.by else None,
        line.actor_name or (line.by.get_username() if line.by else NOBODY),
        line.action,
        line.object_ref,
        line.tool_name,
        line.plan_ref,
        line.digest,
        _details_text(line.details),
        previous,
    )


def _details_text(details: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in details.items() if name not in NEVER_KEPT}
    return canonical_text(to_jsonable_python(kept))


def hasher(instance_name: str) -> Callable[[Row], str]:
    """Return what gives an entry's HMAC-SHA256: over the instance and every field, each led by its length.

    What all entries begin with is computed once and copied, so that a log is verified at 100,000 entries a second:
    `hmac` does the same as the two hashes here (RFC 2104) at half the speed.
    """
    key = settings.TOOLGATE_AUDIT_KEY.encode()
    padded = (key if len(key) <= HMAC_BLOCK else hashlib.sha256(key).digest()).ljust(HMAC_BLOCK, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
    inner.update(_led(instance_name))
    copy_inner, copy_outer = inner.copy, hashlib.sha256(bytes(byte ^ 0x5C for byte in padded)).copy

    def hash_of(row: Row) -> str:
        seq, moment, actor, *texts = row
        parts: list[bytes] = []
        for text in (str(seq), moment, str(actor or ""), *texts):
            data = text.encode()
            length = len(data)
            parts += (LENGTHS[length] if length < SHORT else length.to_bytes(8, "big"), data)
        within, around = copy_inner(), copy_outer()
        within.update(b"".join(parts))
        around.update(within.digest())
        return around.hexdigest()

    return hash_of


def _led(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(8, "big") + data


def entry_hash(entry: AuditEntry, instance_name: str) -> str:
    """Return the hash that an entry must have."""
    values = [getattr(entry, name) for name in COLUMNS[2:]]
    return hasher(instance_name)((entry.seq, time_text(entry.at), *values))


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
    if fact.kind in TOLD_OTHERWISE:
        return False
    if fact.kind.startswith(KEPT_OF_CALLS):
        return True
    if not fact.kind.startswith("call."):
        return False
    level = fact.data.get("level") or fact.call.version.safety_level
    return bool(level != SafetyLevel.SAFE)
