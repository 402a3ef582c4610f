"""Checks every invariant over one view of the database, and says what was found: ids, counted and cut."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from plans.invariants import base
from plans.invariants.base import Finding, Invariant, World
from plans.invariants.seeing import long_view

MOST_IDS = 100
Watcher = Callable[[Invariant], None]


@dataclass(slots=True)
class Result:
    """What became of one invariant: not checked for want of `missing`, or how many findings there were, and which."""

    invariant: Invariant
    missing: str = ""
    count: int = 0
    ids: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def is_checked(self) -> bool:
        """Whether there was all that the check needs."""
        return not self.missing

    @property
    def holds(self) -> bool:
        """Whether nothing was found that breaks it."""
        return not self.count

    def add(self, finding: Finding) -> None:
        """Count one finding; its id is kept while there are few."""
        self.count += 1
        self.reasons[finding.why] += 1
        if len(self.ids) < MOST_IDS and finding.id not in self.ids:
            self.ids.append(finding.id)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all invariants, by their numbers."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that could be checked holds."""
        return all(each.holds for each in self.results)

    def violations(self) -> list[Result]:
        """Return the results of what does not hold."""
        return [each for each in self.results if not each.holds]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "ok": self.ok,
            "checked": [each.invariant.id for each in self.results if each.is_checked],
            "not_checked": [each.invariant.id for each in self.results if not each.is_checked],
            "violations": [
                {
                    "invariant": each.invariant.id,
                    "ids": each.ids,
                    "count": each.count,
                    "reasons": dict(each.reasons.most_common()),
                }
                for each in self.violations()
            ],
        }


def check_invariants(world: World, *, watcher: Watcher = lambda invariant: None) -> Report:
    """Check all that can be; `watcher` is told what is checked next. Raises CannotCheck for what was given wrong."""
    with long_view():
        return Report(tuple(_results(world, watcher)))


def _results(world: World, watcher: Watcher) -> Iterator[Result]:
    for invariant in base.known_invariants():
        result = Result(invariant, invariant.needs(world))
        if result.is_checked:
            watcher(invariant)
            for finding in invariant.check(world):
                result.add(finding)
        yield result
