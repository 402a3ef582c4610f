"""Who brings a hint to a worker. A hint says "this plan has something to do"; losing one costs a second, never work."""

from collections.abc import Callable

from django.db import transaction

HINTS_AT_MOST = 8
"""Hints one transaction sends: each worker that follows one claims on by itself."""

Carrier = Callable[[int], None]
_carriers: list[Carrier] = []


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
