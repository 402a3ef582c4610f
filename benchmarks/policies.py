"""`policy_us`: a verdict of the gate with 500 rules about the same tool, all of which must be compared with the call.

`policy_plain_us` is a verdict with the three rules of a new installation. The gate reloads its rules each second, which
is included in the measurement.
"""

from time import perf_counter
from typing import Any

from approvals.models import Policy, PolicyRevision
from approvals.policies.gate import gate
from benchmarks.ground import prepare
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts, Hold

BATCHES = 40
CALLS = 250
RULES = 500
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


def _timed(runs: int) -> list[float]:
    facts = CallFacts(tool_name=TOOL, safety_level=SafetyLevel.DANGEROUS, categories=(), arguments=ARGUMENTS)
    if not isinstance(gate(facts), Hold):
        raise AssertionError("The call must reach the last rule.")

    def batch() -> float:
        began = perf_counter()
        for _ in range(CALLS):
            gate(facts)
        return (perf_counter() - began) * 1_000_000 / CALLS

    return [batch() for _ in range(runs * BATCHES)]
