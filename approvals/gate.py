"""The gate: all that the pipeline is handed to learn whether a call may run, must wait for people, or is refused.

The rules are kept in memory, and read again after a second; what they say of a tool is worked out once. Never writes.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.db import connection
from django.db.models import Model

from approvals.models import Policy, PolicyRevision
from approvals.policy import Rulebook, people_named, revisions_in_force, rulebook_of
from catalog import snapshot
from catalog.dispatch import CallFacts, Verdict

SECONDS_OLD = 5.0
"""For how long rules are gone on with while another thread reads; then one reads oneself: that thread may hang."""


@dataclass(frozen=True, slots=True)
class _View:
    """The rules, when they were read, and the rows they were made of: equal rows are the same rules."""

    read_at: float = float("-inf")
    book: Rulebook = field(default_factory=Rulebook)
    rows: Sequence[object] = ()


_EMPTY = _View()
_view = _EMPTY
_reading = threading.Lock()
_writing = threading.local()
"""The outermost transaction in which this thread has changed policies: nobody else sees what it reads."""


def gate(facts: CallFacts) -> Verdict:
    """Judge one call by the rules in force; a level nobody knows is judged as dangerous."""
    return _fresh().book.verdict(facts)


def refuses(facts: CallFacts) -> bool:
    """Say whether the rules in force refuse every such call, whatever its arguments: those of `facts` do not count."""
    return _fresh().book.refuses(facts)


def _fresh() -> _View:
    view = _view
    return _look_again() if monotonic() - view.read_at > snapshot.SECONDS_TRUSTED else view


def forget() -> None:
    """Read the rules again at the next look: this process has just changed them."""
    global _view  # one reference, replaced whole: readers need no lock
    with _reading:
        _view = _EMPTY


def are_changed_here() -> None:
    """Keep what is read until the end of this transaction, in which policies are changed, from everybody else."""
    _writing.block = _outermost()


def _outermost() -> object | None:
    blocks = getattr(connection, "atomic_blocks", ())
    return blocks[0] if connection.in_atomic_block and blocks else None


def _look_again() -> _View:
    """Return a view that is fresh; one thread reads while the others go on with the old one, for a while."""
    global _view  # as above
    old, block = _view, _outermost()
    if block is not None and block is getattr(_writing, "block", None):
        return _read(_EMPTY)
    if not _reading.acquire(blocking=False):
        return old if monotonic() - old.read_at < SECONDS_OLD else _read(old)
    try:
        if monotonic() - _view.read_at > snapshot.SECONDS_TRUSTED:
            _view = _read(_view)
        return _view
    finally:
        _reading.release()


def _read(old: _View) -> _View:
    now, revisions = monotonic(), revisions_in_force()
    people = people_named(revisions)
    rows = [_values(revisions, people)]
    return _View(now, old.book if rows == old.rows else rulebook_of(revisions, people), rows)


def _values(revisions: Sequence[PolicyRevision], people: Mapping[str, frozenset[int]]) -> tuple[Any, ...]:
    own = [_columns(revision, _REVISION) for revision in revisions]
    return own, [_columns(revision.policy, _POLICY) for revision in revisions], people


def _columns(row: Model, names: Sequence[str]) -> list[Any]:
    return [row.__dict__[name] for name in names]


_REVISION = [column.attname for column in PolicyRevision._meta.concrete_fields]
_POLICY = [column.attname for column in Policy._meta.concrete_fields]
