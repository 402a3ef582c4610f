"""Transactions that the database asks to do again: a few times, and only as a whole."""

from collections.abc import Callable

import pytest
from django.db import OperationalError, transaction

from catalog.retries import TRIES, retried


class Refused(Exception):
    """What a driver raises."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def refusing(times: int, sqlstate: str) -> tuple[Callable[[], str], list[int]]:
    """Return a transaction that the database refuses so many times, and the tries that were made."""
    tries: list[int] = []

    @retried
    def act() -> str:
        tries.append(1)
        if len(tries) <= times:
            raise OperationalError from Refused(sqlstate)
        return "done"

    return act, tries


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03"])
def test_it_is_done_again_until_it_is_done(sqlstate):
    """A deadlock is nobody's fault."""
    act, tries = refusing(TRIES - 1, sqlstate)
    assert (act(), len(tries)) == ("done", TRIES)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("times", "sqlstate", "made"), [(TRIES, "40P01", TRIES), (1, "57P01", 1), (1, "", 1)])
def test_it_is_not_done_for_ever_nor_for_other_reasons(times, sqlstate, made):
    """A database that goes away is another matter."""
    act, tries = refusing(times, sqlstate)
    with pytest.raises(OperationalError):
        act()
    assert len(tries) == made


@pytest.mark.django_db(transaction=True)
def test_inside_another_transaction_it_is_not_done_again():
    """That one is lost too."""
    act, tries = refusing(1, "40P01")
    with pytest.raises(OperationalError), transaction.atomic():
        act()
    assert len(tries) == 1
