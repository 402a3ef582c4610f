"""I10: what tools did, seen from outside of the database, is what the database says they did.

The file has a line for each moment of an effect: `<call id> <attempt> began|ended [<digest>]`. The digest, where one
is given, is the SHA-256 in hexadecimal of the arguments that the tool was given, as their RFC 8785 text.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from catalog.definitions.levels import SafetyLevel
from catalog.models import Call
from catalog.states import CallStatus
from plans.invariants.base import AT_ONCE, CannotCheck, Finding, World, invariant
from plans.invariants.given import lines_of

LINE = re.compile(r"([A-Za-z0-9_-]{1,40}) ([0-9]{1,9}) (began|ended)(?: ([0-9a-f]{64}))?")
SHAPE = "a line is `<call id> <attempt> began|ended [<SHA-256 of the arguments>]`"


@dataclass(slots=True)
class Effect:
    """What the file says of one call: the attempts that began and ended, how often, and with what arguments."""

    began: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)
    digests: set[str] = field(default_factory=set)


def read_effects(path: Path) -> dict[str, Effect]:
    """Return what the file says, by call. Raises CannotCheck for a line of another shape."""
    found: dict[str, Effect] = {}
    for number, line in lines_of(path):
        match = LINE.fullmatch(line)
        if match is None:
            raise CannotCheck(f"{path}, line {number}: {SHAPE}.")
        effect = found.setdefault(match[1], Effect())
        (effect.began if match[3] == "began" else effect.ended)[int(match[2])] += 1
        if match[4]:
            effect.digests.add(match[4])
    return found


def needs_effects(world: World) -> str:
    """Say what is missing."""
    return "" if world.effects else "Give --effects FILE: what tools did, written by themselves."


@invariant(
    10,
    "Every effect was started by the database, once, and everything that completed had its effect.",
    needs=needs_effects,
)
def effects_match(world: World) -> Iterator[Finding]:
    """Hold the file against the calls, and the calls of the tools that are in it against the file."""
    effects = read_effects(world.effects) if world.effects else {}
    calls = sorted(effects)
    tools: set[str] = set()
    for start in range(0, len(calls), AT_ONCE):
        rows = Call.objects.select_related("version").filter(public_id__in=calls[start : start + AT_ONCE])
        there = {call.public_id: call for call in rows}
        tools |= {call.tool_name for call in there.values()}
        for ref in calls[start : start + AT_ONCE]:
            reasons = _judge(there[ref], effects[ref]) if ref in there else ["The call is not there."]
            yield from (Finding(ref, why) for why in reasons)
    yield from _without_effect(tools, effects)


def _judge(call: Call, effect: Effect) -> Iterator[str]:
    """Yield what is wrong with the effects of one call."""
    if max(effect.began.values(), default=0) > 1 or max(effect.ended.values(), default=0) > 1:
        yield "One attempt had its effect twice."
    if set(effect.ended) - set(effect.began):
        yield "An effect ended that never began."
    if max(effect.began, default=0) > call.attempt:
        yield "It had an effect without having been started."
    if _at_most_once(call) and effect.began.total() > 1:
        yield "It had its effect more than once, which it must not."
    if effect.digests - {hashlib.sha256(call.arguments.encode()).hexdigest()}:
        yield "It ran with other arguments."
    if call.status == CallStatus.COMPLETED and not effect.ended.get(call.attempt) and not _is_settled(call):
        yield "It is completed, and its last attempt has no whole effect."
    if call.status in (CallStatus.CREATED, CallStatus.HELD):
        yield "It had an effect, and is stored as not having started."


def _at_most_once(call: Call) -> bool:
    level = call.version.safety_level
    return level == SafetyLevel.DANGEROUS or (level != SafetyLevel.SAFE and not call.version.retry_safe)


def _is_settled(call: Call) -> bool:
    """Say whether a person said that it happened, or gave the answer in its place."""
    return bool(call.response) and bool(json.loads(call.response).get("settled"))


def _without_effect(tools: set[str], effects: dict[str, Effect]) -> Iterator[Finding]:
    """Find completed calls of these tools that the file does not know."""
    completed = Call.objects.filter(tool_name__in=tools, status=CallStatus.COMPLETED, attempt__gt=0)
    for call in completed.iterator(AT_ONCE):
        if call.public_id not in effects and not _is_settled(call):
            yield Finding(call.public_id, "It is completed, and had no effect.")
