"""Transactions whose answer was lost: whether they were committed is looked up, and what they led to goes on.

A step that was claimed by one would wait else until its lease is over, and a call that it started would be an unknown
outcome though its handler never began.
"""

from collections.abc import Callable
from functools import wraps
from time import monotonic, sleep
from typing import ParamSpec, TypeVar, cast

from django.conf import settings
from django.db import Error, connection

from catalog.core.transactions import is_away, log_unexpected, retried_patiently
from plans.models import Event
from plans.store import transactions
from plans.store.transactions import Recording, recording

ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")
AGAIN_SECONDS = 0.1
"""How soon what the database did not take is tried again; twice as long each time."""


def found_again(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Let a function that is one recording return what that `leads_to`, also when the answer to its commit was lost.

    Raises what `act` raised when nothing was committed, or half a lease was not long enough to find out.
    """

    @wraps(act)
    def do_it(*args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        transactions.forget_latest()
        try:
            return act(*args, **kwargs)
        except Error as error:
            batch = transactions.latest()
            if connection.in_atomic_block or not is_away(error) or batch is None or not batch.last_seq:
                raise  # nothing was to be committed yet
            log_unexpected(error)
            connection.close()
            if not patiently(lambda: _was_committed(batch)):
                raise
            batch.do_after()
            return cast("ResultT", batch.leads_to)

    return do_it


def patiently(act: Callable[[], ResultT]) -> ResultT:
    """Do something again while the database is away, for half a lease at most. Raises what it raised last."""
    ends, pause = monotonic() + settings.TOOLGATE_LEASE_SECONDS / 2, AGAIN_SECONDS
    while True:
        try:
            return act()
        except Error as error:
            if not is_away(error) or monotonic() + pause > ends:
                raise
            log_unexpected(error)
        connection.close()
        sleep(pause)
        pause *= 2


@retried_patiently
def _was_committed(batch: Recording) -> bool:
    """Look for its last event once nobody has the plan locked: what is not there then never will be."""
    kind = batch.rows[-1][0]
    with recording(batch.plan_pk, batch.plan_ref):
        return Event.objects.filter(plan=batch.plan_pk, seq=batch.last_seq, at=batch.now, type=kind).exists()
