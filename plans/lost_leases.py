"""The statements by which steps are taken back from workers that were lost; `plans.recovery` decides about each."""

from datetime import datetime

from django.db.backends.utils import CursorWrapper

from plans import claims
from plans.claims import Claimed
from plans.dialect import on_sqlite, stamp
from plans.states import StepStatus


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


def take_back(cursor: CursorWrapper, step: Claimed, *, now: datetime) -> bool:
    """Make a step whose lease was lost claimable again; False when it has ended."""
    cursor.execute(
        "UPDATE plans_step SET lease_until = NULL, claimed_by = '', ready_at = %s, crashes = crashes + 1 "
        f"{claims.FENCED}status = '{StepStatus.IN_PROGRESS}'",
        [stamp(now), step.pk, step.claimed_by, step.attempt],
    )
    return bool(cursor.rowcount == 1)
