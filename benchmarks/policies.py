"""`policy_us`: a verdict of the gate with 500 rules about the same tool, all of which must be compared with the call.

`policy_recent_us` is one for which 50 of the rules count the calls of an hour, 20 each, in the database.
`policy_plain_us` is a verdict with the three rules of a new installation. The gate reloads its rules each second, which
is included in the measurement.
"""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from approvals.models import Policy, PolicyRevision
from approvals.policies.gate import gate, invalidate_rules, rules_in_force
from approvals.policies.history import CallOrigin, History
from benchmarks.ground import prepare
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts, Hold
from catalog.models import Call, ToolVersion

BATCHES = 40
CALLS = 250
RULES = 500
COUNTING = 50
COUNTED = 20
COUNTED_BY = ("requester", "tool", "argument:to.iban", "argument:note", "token")
TOOL = "send_money"
ARGUMENTS: dict[str, Any] = {"to": {"iban": "DE02120300000000202051"}, "amount": 250, "note": "Rent for November."}
CONDITIONS = (
    {"path": "amount", "operator": "greater_than", "value": 1_000_000},
    {"path": "to.iban", "operator": "starts_with", "value": "XX"},
    {"path": "note", "operator": "matches", "value": "(?i)urgent|at once"},
    {"path": "to.iban", "operator": "in", "value": ["A", "B", "C"]},
    {"path": "reference", "operator": "exists"},
)


def measure(runs: int) -> list[float]:
    """Return the microseconds of a verdict, each the mean of a batch."""
    _set_up(RULES)
    return _timed(runs)


def measure_recent(runs: int) -> list[float]:
    """Return the microseconds of a verdict with 50 rules that look back, with what they read from the database."""
    person = prepare()
    _set_up(RULES - COUNTING)
    version, now = ToolVersion.objects.first(), clock.now()
    ended = {"status": "completed", "created_at": now, "started_at": now, "finished_at": now}
    text = canonical_text(ARGUMENTS)
    calls = Call.objects.bulk_create(
        Call(tool_name=TOOL, version=version, arguments=text, requested_by=person, **ended) for _ in range(COUNTED)
    )
    origin = CallOrigin(requested_by=person.pk, tool_name=TOOL, forms=(ARGUMENTS,))
    for number in range(COUNTING):
        policy = Policy.objects.create(name=f"Counting policy {number}", order=0)
        recent = {"count": 1000 + number, "seconds": 3600, "by": COUNTED_BY[number % len(COUNTED_BY)]}
        policy.revision = PolicyRevision.objects.create(
            policy=policy, number=1, tool="send_*", effect="deny", recent=recent
        )
        policy.save()
    invalidate_rules()
    rules = [clause.match for clause in rules_in_force().clauses if clause.match.looks_back]
    for call in calls:
        history = History(origin, now)
        history.answers(rules)
        history.keep(call, is_started=True)
    return _timed(runs, lambda: History(origin, clock.now()).answers)


def measure_plain(runs: int) -> list[float]:
    """Return the microseconds of a verdict with the rules of a new installation."""
    _set_up(0)
    return _timed(runs)


def _set_up(count: int) -> None:
    """Create this many policies before the three existing ones; none of them matches the call."""
    prepare()
    for number in range(count):
        policy = Policy.objects.create(name=f"Policy {number}", order=0)
        condition = CONDITIONS[number % len(CONDITIONS)]
        terms = {"tool": "send_*", "conditions": [condition], "effect": "deny"}
        hours = "Mon-Sun 00:00-23:59 Europe/Berlin" if number % 10 == 0 else ""
        policy.revision = PolicyRevision.objects.create(policy=policy, number=1, hours=hours, **terms)
        policy.save()


def _timed(runs: int, find_history: Callable[[], Any] = lambda: None) -> list[float]:
    facts = CallFacts(tool_name=TOOL, safety_level=SafetyLevel.DANGEROUS, categories=(), arguments=ARGUMENTS)
    if not isinstance(gate(replace(facts, find_history=find_history())), Hold):
        raise AssertionError("The call must reach the last rule.")

    def batch() -> float:
        began = perf_counter()
        for _ in range(CALLS):
            gate(replace(facts, find_history=find_history()))
        return (perf_counter() - began) * 1_000_000 / CALLS

    return [batch() for _ in range(runs * BATCHES)]
