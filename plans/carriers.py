"""Who brings a hint to a worker. A hint says "this plan has something to do"; losing one costs a second, never work."""

from collections.abc import Callable
from typing import Protocol

from django.db import transaction

from plans.work import Run

HINTS_AT_MOST = 8
"""Hints one transaction sends: each worker that follows one claims on by itself."""

Carrier = Callable[[int], None]
_carriers: list[Carrier] = []


class Desk(Protocol):
    """A worker of this process that takes what another thread has claimed and started in its name."""

    owner: str

    def take(self, run: Run) -> None:
        """Run a started call."""


_desks: list[Desk] = []


def open_desk(desk: Desk) -> None:
    """Let this process start direct calls in the name of `desk`."""
    _desks.append(desk)


def close_desk(desk: Desk) -> None:
    """Start nothing more in its name; once is enough."""
    if desk in _desks:
        _desks.remove(desk)


def desk() -> Desk | None:
    """Return who takes started calls here; None in a process that executes nothing."""
    return _desks[-1] if _desks else None


def carry_to(carrier: Carrier) -> None:
    """Send this process's hints to `carrier(plan_pk)`, called after commit."""
    _carriers.append(carrier)


def carry_no_more(carrier: Carrier) -> None:
    """Stop sending hints to `carrier`; once is enough."""
    if carrier in _carriers:
        _carriers.remove(carrier)


def hint(plan_pk: int, count: int = 1) -> None:
    """Once the open transaction is committed, tell up to `count` workers that the plan has ready steps."""
    wanted = min(count, HINTS_AT_MOST)
    if wanted > 0:
        transaction.on_commit(lambda: send(plan_pk, wanted), robust=True)


def send(plan_pk: int, count: int = 1) -> None:
    """Tell `count` workers now."""
    for carrier in _carriers:
        for _ in range(count):
            carrier(plan_pk)
