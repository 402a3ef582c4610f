"""The gate: all that the pipeline is handed to learn whether a call may run, must wait for people, or is refused.

The rules are kept in memory, and read again after a second; what they say of a tool is worked out once. Never writes.
"""

import threading
from dataclasses import dataclass, field
from time import monotonic

from approvals.policies.rulebook import Rulebook, build_rulebook, requesters_named, revisions_in_force
from catalog.dispatch.pipeline import CallFacts, GateDecision
from catalog.inventory import snapshot

MAX_RULES_AGE_SECONDS = 5.0
"""For how long rules are gone on with while another thread reads; then one reads oneself: that thread may hang."""


@dataclass(frozen=True, slots=True)
class _View:
    """The rules, and when they were read."""

    read_at: float = float("-inf")
    book: Rulebook = field(default_factory=Rulebook)


_EMPTY = _View()
_view = _EMPTY
_reading = threading.Lock()


def gate(facts: CallFacts) -> GateDecision:
    """Judge one call by the rules in force; a level nobody knows is judged as dangerous."""
    return _fresh().book.verdict(facts)


def refuses(facts: CallFacts) -> bool:
    """Say whether the rules in force refuse every such call, whatever its arguments: those of `facts` do not count."""
    return _fresh().book.refuses(facts)


def can_require_approval(facts: CallFacts) -> bool:
    """Say whether the rules in force can hold such a call: with some arguments, for some requester, at some time."""
    return _fresh().book.can_require_approval(facts)


def _fresh() -> _View:
    view = _view
    return _refresh_view() if monotonic() - view.read_at > snapshot.SNAPSHOT_SECONDS else view


def invalidate_rules() -> None:
    """Read the rules again at the next look: this process has just changed them."""
    global _view  # one reference, replaced whole: readers need no lock
    with _reading:
        _view = _EMPTY


def _refresh_view() -> _View:
    """Return a view that is fresh; one thread reads while the others go on with the old one, for a while."""
    global _view  # as above
    old = _view
    if not _reading.acquire(blocking=False):
        return old if monotonic() - old.read_at < MAX_RULES_AGE_SECONDS else _read()
    try:
        if monotonic() - _view.read_at > snapshot.SNAPSHOT_SECONDS:
            _view = _read()
        return _view
    finally:
        _reading.release()


def _read() -> _View:
    now, revisions = monotonic(), revisions_in_force()
    return _View(now, build_rulebook(revisions, requesters_named(revisions)))
