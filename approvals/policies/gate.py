"""The gate: decides if a call is allowed, held for approval, or denied. Rules are cached for a second.

The limits of the token through which a call is made come first: no rule lets a tool outside them run.
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic

from approvals.policies.envelope_rules import verdict_of
from approvals.policies.rulebook import KnownClauses, Rulebook, build_rulebook, enabled_revisions, requesters_named
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from catalog.access.limits import refusal_of
from catalog.dispatch.pipeline import CallFacts, GateDecision
from catalog.inventory import snapshot

MAX_RULES_AGE_SECONDS = 5.0
"""Maximum age of cached rules while another thread reloads them; beyond it each thread loads its own."""


@dataclass(frozen=True, slots=True)
class _View:
    read_at: float = float("-inf")
    book: Rulebook = field(default_factory=Rulebook)
    clauses: KnownClauses = field(default_factory=KnownClauses)


_EMPTY = _View()
_view = _EMPTY
_reading = threading.Lock()


def gate(facts: CallFacts) -> GateDecision:
    """Return the verdict of the token's limits, then of the current rules; an unknown level counts as dangerous."""
    return refusal_of(facts) or verdict_of(facts, _fresh().book)


def refuses(facts: CallFacts) -> bool:
    """Return True if the token's limits or the current rules deny the call whatever its arguments.

    The arguments in `facts` are ignored.
    """
    return refusal_of(facts) is not None or _fresh().book.refuses(facts)


def can_look_back(facts: CallFacts) -> bool:
    """Return True if the current rules about this tool look back at what came before its calls."""
    return _fresh().book.can_look_back(facts)


def can_require_approval(facts: CallFacts, names: Collection[str]) -> bool:
    """Return True if the current rules would hold a call with arguments of these names for some values or time."""
    return facts.tool_name == PROPOSE_ENVELOPE or _fresh().book.can_require_approval(facts, names)


def rules_in_force() -> Rulebook:
    """Return the rules that the gate asks, for pages that tell what it would say. Never use them to start a call."""
    return _fresh().book


def _fresh() -> _View:
    view = _view
    return _refresh_view() if monotonic() - view.read_at > snapshot.SNAPSHOT_SECONDS else view


def invalidate_rules() -> None:
    """Discard the cached rules, since this process has changed them."""
    global _view  # replaced atomically, so readers need no lock
    with _reading:
        _view = _EMPTY


def _refresh_view() -> _View:
    """Return current rules. One thread reloads them; other threads use the old rules for up to five seconds."""
    global _view  # as above
    old = _view
    if not _reading.acquire(blocking=False):
        return old if monotonic() - old.read_at < MAX_RULES_AGE_SECONDS else _read(old)
    try:
        if monotonic() - _view.read_at > snapshot.SNAPSHOT_SECONDS:
            _view = _read(_view)
        return _view
    finally:
        _reading.release()


def _read(old_view: _View) -> _View:
    now, revisions = monotonic(), enabled_revisions()
    clauses = KnownClauses(old_view.clauses.now)
    return _View(now, build_rulebook(revisions, requesters_named(revisions), known=clauses), clauses)
