"""Shorter waits for MCP clients that close the connection while they wait for an answer.

Once a client has ended two waits in a row, its waits last 80 % of the shorter one, at least two seconds. If a wait is
answered more than a week later, the client gets full waits again.
"""

from contextlib import suppress
from datetime import timedelta

from django.db import IntegrityError, transaction

from catalog.core import clock
from catalog.models import LearntWait

SHARE = 0.8
LEAST_SECONDS = 2.0
KEPT_FOR = timedelta(days=7)
MOST_CLIENTS = 20
"""Per token: clients choose their names, so without a limit one token could fill the table."""
LONGEST_NAME = 128


def client_name(text: str) -> str:
    """Return the name of a client as stored: printable characters only, and short."""
    return "".join(each for each in text if each.isprintable())[:LONGEST_NAME] or "unknown"


def find(token_pk: int, client: str) -> LearntWait | None:
    """Return the row of a token's client; None if the client never ended a wait."""
    return LearntWait.objects.filter(token=token_pk, client=client).first()


def record_cut_off(token_pk: int, client: str, seconds: float) -> None:
    """Record that a client ended a wait after `seconds`; the second time in a row, its later waits become shorter."""
    with transaction.atomic():
        row = LearntWait.objects.select_for_update().filter(token=token_pk, client=client).first()
        if row is None:
            if LearntWait.objects.filter(token=token_pk).count() < MOST_CLIENTS:
                # Another wait of the same client may end at the same moment.
                with suppress(IntegrityError), transaction.atomic():
                    LearntWait.objects.create(token_id=token_pk, client=client, cut_off_after=seconds)
            return
        if row.cut_off_after is not None:
            row.seconds = max(LEAST_SECONDS, SHARE * min(row.cut_off_after, seconds))
            row.learnt_at = clock.now()
        row.cut_off_after = seconds
        row.save(update_fields=["seconds", "learnt_at", "cut_off_after"])


def record_answered(token_pk: int, client: str) -> None:
    """Record that a wait was answered: forget earlier ended waits, and a shorter wait learnt over a week ago."""
    rows = LearntWait.objects.filter(token=token_pk, client=client)
    if not rows.filter(learnt_at__gt=clock.now() - KEPT_FOR).update(cut_off_after=None):
        rows.delete()


def forget_waits(token_pk: int) -> None:
    LearntWait.objects.filter(token=token_pk).delete()
