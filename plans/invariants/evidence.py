"""I10 and I14: evidence from outside the database, given as files, agrees with the database.

The effects file has one line for each start and end of an effect: `<call id> <attempt> began|ended [<digest>]`. The
optional digest is the hexadecimal SHA-256 of the tool's arguments as RFC 8785 text.

The history file of a client has one JSON object per line. `type` is `invoke`, `ok`, `fail` or `info`; `f` the action
(`plan`, `call`, `review`, …); `key` the Idempotency-Key, `id` the public id in the answer, `digest` the digest of what
was sent, `code` the reason of a refusal. The names `status`, `op`, `idempotency_key` and `resource` are also accepted.

Files are read line by line; invalid content raises CannotCheck.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from approvals.models import ApprovalRequest, Review
from catalog.definitions.levels import SafetyLevel
from catalog.models import Call, IdempotencyKey
from catalog.states import CallStatus
from plans.invariants.base import AT_ONCE, CannotCheck, CheckInput, Finding, invariant
from plans.models import Plan

LONGEST_LINE = 64 * 1024


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each non-empty line of a file. Raises CannotCheck with the line number."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise CannotCheck(f"{path}, line {number}: a line has at most {LONGEST_LINE:,} bytes.")
                try:
                    text = line.decode().strip()
                except UnicodeDecodeError:
                    raise CannotCheck(f"{path}, line {number}: this is not UTF-8.") from None
                if text:
                    yield number, text
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror or type(error).__name__}.") from None


def objects_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and JSON object of each line of a file. Raises CannotCheck with the line number."""
    for number, line in lines_of(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise CannotCheck(f"{path}, line {number}: this is not JSON.") from None
        if not isinstance(value, dict):
            raise CannotCheck(f"{path}, line {number}: this is not a JSON object.")
        if not can_be_stored(json.dumps(value, ensure_ascii=False)) or "\\u0000" in line:
            raise CannotCheck(f"{path}, line {number}: this contains characters that a database cannot store.")
        yield number, value


def can_be_stored(text: str) -> bool:
    """Return whether a database can store the text: no lone surrogates, no NUL."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


KINDS = ("invoke", "ok", "fail", "info")
TABLES: Mapping[str, Any] = {"plan": Plan, "call": Call, "apr": ApprovalRequest}
CREATES = frozenset({"plan", "call", "create_plan", "create_call"})
DECIDES = frozenset({"review", "decide", "approve", "reject"})
KEY_REUSED = "key_reused"
"""Code of a refusal because the key was used for another request, whose result exists."""


@dataclass(frozen=True, slots=True)
class HistoryLine:
    number: int
    kind: str
    action: str
    key: str
    ref: str
    digest: str
    code: str = ""


def read_history(path: Path) -> Iterator[HistoryLine]:
    """Yield the lines of the history file. Raises CannotCheck for an invalid line."""
    for number, entry in objects_of(path):
        plain = "type" not in entry
        kind, action = str(entry.get("status" if plain else "type", "")), str(entry.get("op" if plain else "f", ""))
        if kind not in KINDS or not action:
            message = f"`type` must be one of {', '.join(KINDS)}, and `f` must name the action"
            raise CannotCheck(f"{path}, line {number}: {message}.")
        key, ref = entry.get("idempotency_key" if plain else "key"), entry.get("resource" if plain else "id")
        texts = (str(each or "") for each in (key, ref, entry.get("digest"), entry.get("code")))
        yield HistoryLine(number, kind, action, *texts)


def needs_history(check: CheckInput) -> str:
    return "" if check.history else "Pass --history FILE with a client's actions and the answers it got."


@dataclass(slots=True)
class _ResourcesByKey:
    """Resources created by earlier lines, by Idempotency-Key."""

    refs: dict[tuple[str, str], str] = field(default_factory=dict)


@invariant(14, "Everything acknowledged to a client exists, and nothing refused does.", needs=needs_history)
def nothing_acknowledged_is_lost(check: CheckInput) -> Iterator[Finding]:
    resources, waiting = _ResourcesByKey(), list[HistoryLine]()
    for line in read_history(check.history) if check.history else ():
        if line.kind in ("ok", "fail"):
            waiting.append(line)
        if len(waiting) >= AT_ONCE:
            yield from _check_answers(waiting, resources)
            waiting.clear()
    yield from _check_answers(waiting, resources)


def _check_answers(lines: list[HistoryLine], resources: _ResourcesByKey) -> Iterator[Finding]:
    """Yield findings about these lines, with the id of the resource or else the line number."""
    there: set[str] = set()
    for prefix, table in TABLES.items():
        refs = {line.ref for line in lines if line.ref.startswith(f"{prefix}_")}
        there |= set(table.objects.filter(public_id__in=refs).values_list("public_id", flat=True))
    # The stored answers, for keys used by a single caller.
    rows = list(IdempotencyKey.objects.filter(key__in={line.key for line in lines if line.key}))
    owners = Counter(row.key for row in rows)
    ended = (row for row in rows if row.answer_status is not None and owners[row.key] == 1)
    answers = {row.key: (row.answer_status or 0, _id_in(row.answer)) for row in ended}
    for line in lines:
        name = line.ref or f"line {line.number}"
        if line.kind == "ok":
            yield from (Finding(name, why) for why in _find_lost(line, there, answers, resources))
            continue
        if line.action in CREATES and line.ref in there:
            yield Finding(name, "It was refused but exists.")
        if line.code != KEY_REUSED and answers.get(line.key, (400, ""))[0] < 400:
            yield Finding(name, "It was refused, but its Idempotency-Key is stored as successful.")


def _id_in(answer: str) -> str:
    try:
        value = json.loads(answer or "{}")
    except ValueError:
        return answer
    return str(value.get("id", "")) if isinstance(value, dict) else ""


def _find_lost(
    line: HistoryLine, there: set[str], answers: Mapping[str, tuple[int, str]], resources: _ResourcesByKey
) -> Iterator[str]:
    if line.ref.partition("_")[0] in TABLES and line.ref not in there:
        yield "It was acknowledged but does not exist."
    elif line.digest and not _has_digest(line):
        yield "It was acknowledged but has other content."
    if line.key and line.ref and resources.refs.setdefault((line.action, line.key), line.ref) != line.ref:
        yield "One Idempotency-Key created more than one resource."
    status, ref = answers.get(line.key, (200, line.ref))
    if status >= 400 or (ref and line.ref and ref != line.ref):
        yield "Its Idempotency-Key is stored with another answer."


def _has_digest(line: HistoryLine) -> bool:
    """Return whether the stored content matches: the arguments of a call, or the digest of a review."""
    if line.action in DECIDES:
        return Review.objects.filter(request__public_id=line.ref, seen_digest=line.digest).exists()
    if line.ref.startswith("call_"):
        arguments = Call.objects.values_list("arguments", flat=True).get(public_id=line.ref)
        return hashlib.sha256(arguments.encode()).hexdigest() == line.digest
    return True


EFFECT_LINE = re.compile(r"([A-Za-z0-9_-]{1,40}) ([0-9]{1,9}) (began|ended)(?: ([0-9a-f]{64}))?")
EFFECT_LINE_SHAPE = "a line is `<call id> <attempt> began|ended [<SHA-256 of the arguments>]`"


@dataclass(slots=True)
class Effect:
    """Effects of one call in the file: how often each attempt began and ended, and the digests of its arguments."""

    began: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)
    digests: set[str] = field(default_factory=set)


def read_effects(path: Path) -> dict[str, Effect]:
    """Return the effects in the file by call. Raises CannotCheck for an invalid line."""
    found: dict[str, Effect] = {}
    for number, line in lines_of(path):
        match = EFFECT_LINE.fullmatch(line)
        if match is None:
            raise CannotCheck(f"{path}, line {number}: {EFFECT_LINE_SHAPE}.")
        effect = found.setdefault(match[1], Effect())
        (effect.began if match[3] == "began" else effect.ended)[int(match[2])] += 1
        if match[4]:
            effect.digests.add(match[4])
    return found


def needs_effects(check: CheckInput) -> str:
    return "" if check.effects else "Pass --effects FILE with the effects recorded by the tools."


@invariant(
    10,
    "The database started every effect once, and completed calls had their effect.",
    needs=needs_effects,
)
def effects_match(check: CheckInput) -> Iterator[Finding]:
    """Compare each effect with its call, and find completed calls of the same tools that have no effect."""
    effects = read_effects(check.effects) if check.effects else {}
    calls = sorted(effects)
    tools: set[str] = set()
    for start in range(0, len(calls), AT_ONCE):
        rows = Call.objects.select_related("version").filter(public_id__in=calls[start : start + AT_ONCE])
        there = {call.public_id: call for call in rows}
        tools |= {call.tool_name for call in there.values()}
        for ref in calls[start : start + AT_ONCE]:
            reasons = _faults_of(there[ref], effects[ref]) if ref in there else ["The call does not exist."]
            yield from (Finding(ref, why) for why in reasons)
    completed = Call.objects.filter(tool_name__in=tools, status=CallStatus.COMPLETED, attempt__gt=0)
    for call in completed.iterator(AT_ONCE):
        if call.public_id not in effects and not _is_settled(call):
            yield Finding(call.public_id, "It is completed but had no effect.")


def _faults_of(call: Call, effect: Effect) -> Iterator[str]:
    if max(effect.began.values(), default=0) > 1 or max(effect.ended.values(), default=0) > 1:
        yield "One attempt had its effect twice."
    if set(effect.ended) - set(effect.began):
        yield "An effect ended that never began."
    if max(effect.began, default=0) > call.attempt:
        yield "It had an effect without being started."
    level = call.version.safety_level
    may_repeat = level == SafetyLevel.SAFE or (level != SafetyLevel.DANGEROUS and call.version.retry_safe)
    if effect.began.total() > 1 and not may_repeat:
        yield "It had its effect more than once although it must not repeat."
    if effect.digests - {hashlib.sha256(call.arguments.encode()).hexdigest()}:
        yield "It ran with other arguments."
    if call.status == CallStatus.COMPLETED and not effect.ended.get(call.attempt) and not _is_settled(call):
        yield "It is completed, but the effect of its last attempt did not end."
    if call.status in (CallStatus.CREATED, CallStatus.HELD):
        yield "It had an effect, but is stored as not started."


def _is_settled(call: Call) -> bool:
    """Return whether a person settled the call as having happened."""
    return bool(call.response) and bool(json.loads(call.response).get("settled"))
