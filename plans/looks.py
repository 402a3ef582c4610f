"""What the ticker looks for, all plans at once: something ready that nobody claimed, something that has ended."""

from collections.abc import Collection
from datetime import datetime

from django.db.backends.utils import CursorWrapper

from plans.claims import NOT_PAUSED
from plans.dialect import stamp
from plans.states import PLAN_TERMINAL


def due_plans(cursor: CursorWrapper, *, now: datetime, limit: int, after: int = 0) -> list[int]:
    """Return plans that have a ready step nobody claimed, by key and beyond `after`; paused ones are left alone."""
    cursor.execute(
        f"SELECT DISTINCT plan_id FROM plans_step WHERE ready_at <= %s AND plan_id > %s AND {NOT_PAUSED} "
        "ORDER BY plan_id LIMIT %s",
        [stamp(now), after, limit],
    )
    return [plan_pk for (plan_pk,) in cursor.fetchall()]


def ended_plans(cursor: CursorWrapper, plan_pks: Collection[int]) -> list[int]:
    """Return those of the plans that have ended."""
    keys, statuses = list(plan_pks), sorted(map(str, PLAN_TERMINAL))
    marks = [", ".join(["%s"] * len(each)) for each in (keys, statuses)]
    cursor.execute(f"SELECT id FROM plans_plan WHERE id IN ({marks[0]}) AND status IN ({marks[1]})", [*keys, *statuses])
    return [plan_pk for (plan_pk,) in cursor.fetchall()]
