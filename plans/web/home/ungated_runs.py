"""Runs that nobody allowed, as the home page and a session's page show them."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Coalesce

from catalog.access.roles import ADMINISTRATOR, has_role
from catalog.models import UngatedRun
from plans.models import Plan

MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class UngatedRunRow:
    """One run; `session` is the id of its session's page, empty if no call was stored in that session."""

    run: UngatedRun
    session: str


@dataclass(frozen=True, slots=True)
class UngatedRuns:
    """The newest runs that no administrator has marked as seen, and the number of the others."""

    rows: Sequence[UngatedRunRow]
    more: int
    may_mark: bool


def ungated_runs_for(viewer: User) -> UngatedRuns | None:
    """Return the unseen runs: all of them for administrators, others' own; None if there are none."""
    is_administrator = has_role(viewer, ADMINISTRATOR)
    unseen = UngatedRun.objects.filter(seen_at=None).order_by("-reported_at", "-pk")
    if not is_administrator:
        unseen = unseen.filter(user=viewer)
    plans = Plan.objects.alias(through=Coalesce("token_id", 0)).order_by("-pk")
    same = plans.filter(session=OuterRef("session"), author=OuterRef("user"), through=Coalesce(OuterRef("token_id"), 0))
    shown = unseen.select_related("user", "token").annotate(plan_ref=Subquery(same.values("public_id")[:1]))
    rows = list(shown[: MOST_SHOWN + 1])
    if not rows:
        return None
    more = unseen.count() - MOST_SHOWN if len(rows) > MOST_SHOWN else 0
    return UngatedRuns([UngatedRunRow(run, run.plan_ref or "") for run in rows[:MOST_SHOWN]], more, is_administrator)
