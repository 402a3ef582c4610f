"""I14: what a client was told is true: what was acknowledged is there, what was refused is not.

The file has a JSON object a line. `type` is `invoke`, `ok`, `fail` or `info`; `f` what was done (`plan`, `call`,
`review`, …); `key` the Idempotency-Key, `id` the public id that was answered, `digest` what was sent, `code` why it was
refused. The names `status`, `op`, `idempotency_key` and `resource` are taken as well.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from approvals.models import ApprovalRequest, Review
from catalog.models import Call, IdempotencyKey
from plans.invariants.base import AT_ONCE, CannotCheck, Finding, World, invariant
from plans.invariants.given import objects_of
from plans.models import Plan

KINDS = ("invoke", "ok", "fail", "info")
TABLES: Mapping[str, Any] = {"plan": Plan, "call": Call, "apr": ApprovalRequest}
CREATES = frozenset({"plan", "call", "create_plan", "create_call"})
DECIDES = frozenset({"review", "decide", "approve", "reject"})
KEY_REUSED = "key_reused"
"""The code of a refusal that says that the key stands for something else, which is there."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what the client did and was told."""

    number: int
    kind: str
    action: str
    key: str
    ref: str
    digest: str
    code: str = ""


def read_history(path: Path) -> Iterator[Line]:
    """Yield the lines of the file. Raises CannotCheck for one that is of another shape."""
    for number, said in objects_of(path):
        plain = "type" not in said
        kind, action = str(said.get("status" if plain else "type", "")), str(said.get("op" if plain else "f", ""))
        if kind not in KINDS or not action:
            message = f"type must be one of {', '.join(KINDS)}, and f say what was done"
            raise CannotCheck(f"{path}, line {number}: {message}.")
        key, ref = said.get("idempotency_key" if plain else "key"), said.get("resource" if plain else "id")
        texts = (str(each or "") for each in (key, ref, said.get("digest"), said.get("code")))
        yield Line(number, kind, action, *texts)


def needs_history(world: World) -> str:
    """Say what is missing."""
    return "" if world.history else "Give --history FILE: what a client did, and what it was told."


@dataclass(slots=True)
class _Told:
    """What lines before this one said: which resource each key made."""

    refs: dict[tuple[str, str], str] = field(default_factory=dict)


@invariant(
    14, "Everything that was acknowledged to a client is there, and nothing that was refused.", needs=needs_history
)
def nothing_acknowledged_is_lost(world: World) -> Iterator[Finding]:
    """Look each answer up, a few hundred at a time."""
    told, waiting = _Told(), list[Line]()
    for line in read_history(world.history) if world.history else ():
        if line.kind in ("ok", "fail"):
            waiting.append(line)
        if len(waiting) >= AT_ONCE:
            yield from _judge(waiting, told)
            waiting.clear()
    yield from _judge(waiting, told)


def _judge(lines: list[Line], told: _Told) -> Iterator[Finding]:
    """Yield what is wrong with these lines; a finding names the resource, or else the line."""
    there = _there({line.ref for line in lines})
    answers = _answers({line.key for line in lines if line.key})
    for line in lines:
        name = line.ref or f"line {line.number}"
        reasons = _lost(line, there, answers, told) if line.kind == "ok" else _kept(line, there, answers)
        yield from (Finding(name, why) for why in reasons)


def _there(refs: set[str]) -> set[str]:
    """Return which of these are there, plans, calls and requests."""
    found: set[str] = set()
    for prefix, table in TABLES.items():
        wanted = [ref for ref in refs if ref.startswith(f"{prefix}_")]
        found |= set(table.objects.filter(public_id__in=wanted).values_list("public_id", flat=True))
    return found


def _answers(keys: set[str]) -> dict[str, tuple[int, str]]:
    """Return the status and the id of the answers that are kept under these keys, where one caller used the key."""
    rows = list(IdempotencyKey.objects.filter(key__in=keys))
    owners = Counter(row.key for row in rows)
    ended = (row for row in rows if row.answer_status is not None and owners[row.key] == 1)
    return {row.key: (row.answer_status or 0, _id_in(row.answer)) for row in ended}


def _id_in(answer: str) -> str:
    try:
        value = json.loads(answer or "{}")
    except ValueError:
        return answer
    return str(value.get("id", "")) if isinstance(value, dict) else ""


def _lost(line: Line, there: set[str], answers: Mapping[str, tuple[int, str]], told: _Told) -> Iterator[str]:
    if line.ref.partition("_")[0] in TABLES and line.ref not in there:
        yield "It was acknowledged, and is not there."
    elif line.digest and not _has_digest(line):
        yield "It was acknowledged, and is there with other content."
    if line.key and line.ref and told.refs.setdefault((line.action, line.key), line.ref) != line.ref:
        yield "One Idempotency-Key made more than one."
    status, ref = answers.get(line.key, (200, line.ref))
    if status >= 400 or (ref and line.ref and ref != line.ref):
        yield "Its Idempotency-Key is kept with another answer."


def _kept(line: Line, there: set[str], answers: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    if line.action in CREATES and line.ref in there:
        yield "It was refused, and is there."
    if line.code != KEY_REUSED and answers.get(line.key, (400, ""))[0] < 400:
        yield "It was refused, and its Idempotency-Key is kept as done."


def _has_digest(line: Line) -> bool:
    """Say whether what is stored is what was sent: the arguments of a call, or the digest that an answer named."""
    if line.action in DECIDES:
        return Review.objects.filter(request__public_id=line.ref, seen_digest=line.digest).exists()
    if line.ref.startswith("call_"):
        arguments = Call.objects.values_list("arguments", flat=True).get(public_id=line.ref)
        return hashlib.sha256(arguments.encode()).hexdigest() == line.digest
    return True
