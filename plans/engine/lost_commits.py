"""Recovery of transactions whose commit went unanswered: finds out if they committed and continues their work.

Otherwise a step claimed by such a transaction would wait until its lease expires, and a started call would become an
unknown outcome although its handler never began.
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
"""Delay before the first retry; doubled each time."""


def recover_lost_commit(act: Callable[ArgumentsP, ResultT]) -> Callable[ArgumentsP, ResultT]:
    """Decorate a function that is one plan transaction to return its `result` if the commit went unanswered.

    Raises what `act` raised if nothing was committed, or if that could not be found out within half a lease.
    """

    @wraps(act)
    def do_it(*args: ArgumentsP.args, **kwargs: ArgumentsP.kwargs) -> ResultT:
        transactions.forget_latest_transaction()
        try:
            return act(*args, **kwargs)
        except Error as error:
            tx = transactions.latest_transaction()
            if connection.in_atomic_block or not is_unavailable(error) or tx is None or not tx.last_seq:
                raise  # the commit had not begun
            log_unexpected(error)
            connection.close()
            if not retry_while_database_is_away(lambda: _was_committed(tx)):
                raise
            tx.run_after_commit()
            return cast("ResultT", tx.result)

    return do_it


def retry_while_database_is_away(act: Callable[[], ResultT]) -> ResultT:
    """Repeat `act` while the database is unavailable, for at most half a lease. Raises its last error."""
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
    """Return whether the transaction's last event is stored; with the plan locked, it cannot appear later."""
    kind = tx.rows[-1][0]
    with plan_transaction(tx.plan_pk, tx.plan_ref):
        return Event.objects.filter(plan=tx.plan_pk, seq=tx.last_seq, at=tx.now, type=kind).exists()
