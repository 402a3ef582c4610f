"""The invariants at the end of any test: `assert_invariants()` fails with what does not hold, and where."""

from pathlib import Path
from typing import Any

from django.conf import settings

from catalog.core import clock
from plans.invariants.base import CheckInput, Report, check_invariants

PAST_THE_LOG = ("user_", "group_", "pol_", "token:", "source:", "tool:", "agent:")
"""Ids of what the builders of tests write without entries in the audit log."""
GRACE_SECONDS = 3600.0
"""In tests nobody has to come back to what is due: threads and clocks are the test's own."""


def world(**given: Any) -> CheckInput:
    """Return what is checked, as the command would, with time to spare."""
    given.setdefault("grace_seconds", GRACE_SECONDS)
    return CheckInput(now=clock.now(), lease_seconds=settings.TOOLGATE_LEASE_SECONDS, **given)


def report(**given: Any) -> Report:
    """Check everything that can be; leave out the people and rules that builders write past the log."""
    found = check_invariants(world(**given))
    for result in found.results:
        left_out = PAST_THE_LOG if result.invariant.id == "I21" else ("user_",)
        result.ids = [each for each in result.ids if not each.startswith(left_out)]
        result.count = result.count if result.ids else 0
    return found


def broken(**given: Any) -> dict[str, list[str]]:
    """Return the ids that break each invariant, by its id; without I21, which finds any change of these rows."""
    return {each.invariant.id: each.ids for each in report(**given).violations() if each.invariant.id != "I21"}


def assert_invariants(effects: Path | None = None, history: Path | None = None, **given: Any) -> None:
    """Fail unless every invariant that can be checked holds over the database as it is now."""
    found = report(effects=effects, history=history, **given)
    findings = {each.invariant.id: (dict(each.reasons), each.ids[:5]) for each in found.violations()}
    assert findings == {}
