"""The gate: all that the pipeline is handed to learn whether a call may run, must wait for people, or is refused.

Today's rules match on the safety level alone, so one verdict per level is kept in memory and read again after a
second. Never writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

from approvals.policy import current_rules, judge
from catalog.definitions import SafetyLevel
from catalog.dispatch import CallFacts, Verdict

SECONDS_TRUSTED = 1.0


@dataclass(frozen=True, slots=True)
class _View:
    read_at: float = float("-inf")
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


_view = _View()


def gate(facts: CallFacts) -> Verdict:
    """Judge one call by the rules in force; a level nobody knows is judged as dangerous."""
    view = _view
    if monotonic() - view.read_at > SECONDS_TRUSTED:
        view = _read()
    return view.verdicts.get(facts.safety_level) or view.verdicts[SafetyLevel.DANGEROUS]


def _read() -> _View:
    global _view  # one reference, replaced whole: readers need no lock
    now, rules = monotonic(), current_rules()
    _view = _View(now, {level.value: judge(rules, level.value) for level in SafetyLevel})
    return _view
