"""Many small things that are due at once, none of which may stand in the way of the others."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from catalog.problems import log_unexpected
from catalog.retries import retried

ItemT = TypeVar("ItemT")


def do_each(act: Callable[[ItemT], object], items: Iterable[ItemT]) -> int:
    """Do `act` to every item, in a transaction of its own; return how often it said yes.

    One that fails is logged and left for the next time. Raises OperationalError and InterfaceError: a database that
    is gone is gone for all.
    """
    return sum(_is_done(act, item) for item in items)


def _is_done(act: Callable[[ItemT], object], item: ItemT) -> bool:
    try:
        return bool(retried(act)(item))
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever is wrong with this one, the others are due too
        log_unexpected(error)
        return False
