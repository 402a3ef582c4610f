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

from catalog.core.transactions import is_unavailable, log_unexpected, retry_on_lock
from plans.models import Event
from plans.store import transactions
from plans.store.transactions import PlanTransaction, plan_transaction

ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")
RETRY_SECONDS = 0.1
"""How soon what the database did not take is tried again; twice as long each time."""


def recover_lost_commit(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Let a function that is one plan transaction return its `result`, even if the answer to its commit was lost.

    Raises what `act` raised when nothing was committed, or half a lease was not long enough to find out.
    """

    @wraps(act)
    def do_it(*args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        transactions.forget_latest_transaction()
        try:
            return act(*args, **kwargs)
        except Error as error:
            tx = transactions.latest_transaction()
            if connection.in_atomic_block or not is_unavailable(error) or tx is None or not tx.last_seq:
                raise  # nothing was to be committed yet
            log_unexpected(error)
            connection.close()
            if not retry_while_database_is_away(lambda: _was_committed(tx)):
                raise
            tx.run_after_commit()
            return cast("ResultT", tx.result)

    return do_it


def retry_while_database_is_away(act: Callable[[], ResultT]) -> ResultT:
    """Do something again while the database is away, for half a lease at most. Raises what it raised last."""
    ends, pause = monotonic() + settings.TOOLGATE_LEASE_SECONDS / 2, RETRY_SECONDS
    while True:
        try:
            return act()
        except Error as error:
            if not is_unavailable(error) or monotonic() + pause > ends:
                raise
            log_unexpected(error)
        connection.close()
        sleep(pause)
        pause *= 2


@retry_on_lock
def _was_committed(tx: PlanTransaction) -> bool:
    """Look for its last event once nobody has the plan locked: what is not there then never will be."""
    kind = tx.rows[-1][0]
    with plan_transaction(tx.plan_pk, tx.plan_ref):
        return Event.objects.filter(plan=tx.plan_pk, seq=tx.last_seq, at=tx.now, type=kind).exists()
