"""List of plans: filters from the URL, tabs, and rows with progress. The URL holds all state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe
from django_htmx.http import replace_url

from catalog.rest.pagination import PageCursor, PageParameters, paginate
from catalog.ui.labels import Badge, status_badge
from catalog.ui.requests import PageRequest, is_fragment_request, parse_number, sign_in_required
from plans.models import Plan, Step
from plans.states import PlanStatus
from plans.store.selectors import STEP_WAITS_FOR_PEOPLE, plans_for, step_counts
from plans.web.plan.overview import plan_word_list

PAGE_SIZE = 50
MAX_QUERY = 200
WAITING, PAUSED = "waiting", "paused"
TABS = {
    "": gettext_lazy("All"),
    WAITING: gettext_lazy("Waiting for people"),
    PlanStatus.IN_PROGRESS.value: gettext_lazy("Running"),
    PAUSED: gettext_lazy("Paused"),
    PlanStatus.PENDING.value: gettext_lazy("Not started"),
    PlanStatus.COMPLETED.value: gettext_lazy("Done"),
    PlanStatus.FAILED.value: gettext_lazy("Failed"),
    PlanStatus.CANCELLED.value: gettext_lazy("Cancelled"),
}
Counts = Mapping[str, int]
SEGMENTS: tuple[tuple[str, Callable[[Counts], int]], ...] = (
    ("ok", lambda counts: counts["completed"] - counts["skipped"]),
    ("skip", lambda counts: counts["skipped"]),
    ("danger", lambda counts: counts["failed"]),
    ("human", lambda counts: counts["waiting"]),
    ("run", lambda counts: counts["in_progress"] - counts["waiting"]),
    ("idle", lambda counts: counts["pending"] + counts["cancelled"]),
)
MOST_SEGMENTS = 24
_WAITING_STEPS = Step.objects.filter(STEP_WAITS_FOR_PEOPLE, plan=OuterRef("pk"))
PLAN_WAITS_FOR_PEOPLE = Exists(_WAITING_STEPS)
AWAITED_FROM_PEOPLE = Subquery(_WAITING_STEPS.order_by("-waiting_for").values("waiting_for")[:1])
"""Subquery for the reason why the plan waits for people, as on the plan's own page; None if it does not."""


@dataclass(frozen=True, slots=True)
class PlanQuery:
    """Filters in the URL; unknown values are collected in `ignored`."""

    status: str = ""
    q: str = ""
    before: int | None = None
    ignored: tuple[str, ...] = ()

    @classmethod
    def read(cls, params: QueryDict) -> "PlanQuery":
        status, before = params.get("status", ""), params.get("before", "")
        number = parse_number(before)
        wrong = [status] if status not in TABS else []
        wrong += [before] if before and number is None else []
        return cls(
            status=status if status in TABS else "",
            q=params.get("q", "").replace("\x00", "").strip()[:MAX_QUERY],
            before=number,
            ignored=tuple(each[:40] for each in wrong),
        )

    @property
    def url(self) -> str:
        """The URL of this list, without default values."""
        parts = [(name, value) for name, value in (("status", self.status), ("q", self.q)) if value]
        parts += [("before", str(self.before))] if self.before is not None else []
        return f"/plans/?{urlencode(parts)}" if parts else "/plans/"

    @property
    def is_plain(self) -> bool:
        """True for the first page of the unfiltered list, which receives new plans."""
        return not (self.status or self.q) and self.before is None

    def select(self, plans: QuerySet[Plan]) -> QuerySet[Plan]:
        if self.status == WAITING:
            plans = plans.filter(PLAN_WAITS_FOR_PEOPLE)  # also ended ones: an unknown outcome outlives its plan
        elif self.status == PAUSED:
            plans = plans.filter(status=PlanStatus.IN_PROGRESS, paused_at__isnull=False)
        elif self.status:
            plans = plans.filter(status=self.status)
        if self.q:
            plans = plans.filter(Q(goal__icontains=self.q) | Q(public_id=self.q) | Q(author__username=self.q))
        return plans


@dataclass(frozen=True, slots=True)
class PlanRow:
    plan: Plan
    words: Sequence[Badge]
    segments: Sequence[str]
    finished: int
    total: int


@dataclass(frozen=True, slots=True)
class PlanListPage:
    query: PlanQuery
    rows: Sequence[PlanRow]
    older: str
    tabs: Sequence[tuple[str, str, bool]]


def plan_list(viewer: User, query: PlanQuery) -> PlanListPage:
    plans = query.select(_list_rows(viewer))
    cursor = PageCursor(back=False, value=query.before, pk=query.before) if query.before is not None else None
    page = paginate(plans, order="-id", at=PageParameters(PAGE_SIZE, cursor))
    return PlanListPage(
        query=query,
        rows=_rows(page.rows),
        older=replace(query, before=page.next.pk).url if page.next else "",
        tabs=[
            (replace(query, status=tab, before=None).url, str(label), tab == query.status)
            for tab, label in TABS.items()
        ],
    )


def first_page_rows(viewer: User) -> list[PlanRow]:
    """Return the first page of all plans, for live updates of pages that show it."""
    return _rows(_list_rows(viewer).order_by("-id")[:PAGE_SIZE])


def _list_rows(viewer: User) -> QuerySet[Plan]:
    return plans_for(viewer).filter(kind=Plan.Kind.PLAN).annotate(awaited=AWAITED_FROM_PEOPLE)


def _rows(plans: Sequence[Plan] | QuerySet[Plan]) -> list[PlanRow]:
    listed = list(plans)
    counts = step_counts(listed)
    return [_row(plan, counts[plan.pk]) for plan in listed]


def _row(plan: Plan, counts: Counts) -> PlanRow:
    steps = max(counts["steps"], 1)
    shares = {hue: count(counts) for hue, count in SEGMENTS}
    if steps > MOST_SEGMENTS:
        shares = {hue: -(-share * MOST_SEGMENTS // steps) for hue, share in shares.items()}
    awaited: str | None = plan.awaited  # type: ignore[attr-defined] # annotated by _list_rows
    return PlanRow(
        plan=plan,
        words=plan_word_list(plan, status_badge(plan.status, awaited), waits=awaited is not None),
        segments=[hue for hue, share in shares.items() for _ in range(share)],
        finished=counts["completed"],
        total=counts["steps"],
    )


@require_safe
@sign_in_required
def plans(request: PageRequest) -> HttpResponse:
    listed = plan_list(request.user, PlanQuery.read(request.GET))
    part = is_fragment_request(request, "results")
    response = render(
        request, "plans/_list.html" if part else "plans/plans.html", {"section": "plans", "listed": listed}
    )
    return replace_url(response, listed.query.url) if part else response
