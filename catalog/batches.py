"""Many small things that are due at once, none of which may stand in the way of the others."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from catalog.problems import log_unexpected
from catalog.retries import is_away, is_locked, retried, waiting_briefly

ItemT = TypeVar("ItemT")


def do_each(act: Callable[[ItemT], object], items: Iterable[ItemT]) -> int:
    """Do `act` to every item, in a transaction of its own; return how often it said yes.

    One that fails is logged and left for the next time, and so is one whose lock is someone else's for half a second:
    a process may have frozen with it. Raises OperationalError and InterfaceError: a database that is gone is gone for
    all.
    """
    due = list(items)
    if not due:
        return 0
    with waiting_briefly():
        return sum(_is_done(act, item) for item in due)


def _is_done(act: Callable[[ItemT], object], item: ItemT) -> bool:
    try:
        return bool(retried(act)(item))
    except Exception as error:
        if is_away(error) and not is_locked(error):
            raise
        log_unexpected(error)
        return False
