"""The statements that find steps whose workers were lost; `plans.recovery` decides about each."""

from datetime import datetime

from django.db.backends.utils import CursorWrapper

from plans import claims
from plans.claims import Claimed
from plans.dialect import on_sqlite, stamp


def lost_steps(cursor: CursorWrapper, *, now: datetime, limit: int) -> list[Claimed]:
    """Return steps whose lease has expired."""
    cursor.execute(
        f"SELECT {claims.STEP_COLUMNS} FROM plans_step WHERE lease_until < %s ORDER BY lease_until LIMIT %s",
        [stamp(now), limit],
    )
    return [Claimed(*row) for row in cursor.fetchall()]


def is_lost(cursor: CursorWrapper, step: Claimed, *, now: datetime) -> bool:
    """Say whether the step's lease is still the expired one, and keep it so until the transaction ends."""
    lock = "" if on_sqlite() else " FOR UPDATE"
    cursor.execute(
        f"SELECT 1 FROM plans_step {claims.FENCED}lease_until < %s{lock}",
        [step.pk, step.claimed_by, step.attempt, stamp(now)],
    )
    return cursor.fetchone() is not None
