"""List of plans: tabs by status, filters, and rows with progress that sockets keep up to date."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import JSONObject, Left
from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_safe

from catalog.access.roles import ADMINISTRATOR, OPERATOR, roles_of, user_display_name
from catalog.ui.labels import Badge, status_badge
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    PAGE_SIZE,
    Choice,
    Column,
    ListDefinition,
    ListFilter,
    SortOrder,
    age_filter,
    column_choices,
    column_filter,
    person_choices,
    register_list,
)
from catalog.ui.requests import PageRequest, sign_in_required
from plans.models import Plan, Step
from plans.states import PLAN_TERMINAL, PlanStatus, WaitingFor
from plans.store.selectors import STEP_WAITS_FOR_PEOPLE, plan_owners_for, plan_tokens_for, plans_for, step_counts
from plans.web.plan.overview import plan_word_list

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

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
LONGEST_TITLE = 80
"""Characters of the description of a waiting step that a row shows."""
SORTED_LENGTH = 100
"""Number of characters by which goals are sorted; the URL of a page holds those of its last row."""
_WAITING_STEPS = Step.objects.filter(STEP_WAITS_FOR_PEOPLE, plan=OuterRef("pk"))
AWAITED_FROM_PEOPLE = Subquery(_WAITING_STEPS.order_by("-waiting_for").values("waiting_for")[:1])
"""Subquery for the reason why the plan waits for people, as on the plan's own page; None if it does not."""
FIRST_WAITING = Subquery(
    _WAITING_STEPS.order_by("-waiting_for", "pk")
    .annotate(said=JSONObject(number="step_id", reason="waiting_for", title=Left("description", LONGEST_TITLE)))
    .values("said")[:1]
)
WAITING = Subquery(_WAITING_STEPS.order_by().values("plan").annotate(count=Count("pk")).values("count"))
TABS = {
    "": (gettext_lazy("All"), Q()),
    # Also ended plans: an unknown outcome outlives its plan.
    "waiting": (gettext_lazy("Waiting for people"), Q(Exists(_WAITING_STEPS))),
    PlanStatus.IN_PROGRESS.value: (gettext_lazy("Running"), Q(status=PlanStatus.IN_PROGRESS)),
    "paused": (gettext_lazy("Paused"), Q(status=PlanStatus.IN_PROGRESS, paused_at__isnull=False)),
    PlanStatus.PENDING.value: (gettext_lazy("Not started"), Q(status=PlanStatus.PENDING)),
    PlanStatus.COMPLETED.value: (gettext_lazy("Done"), Q(status=PlanStatus.COMPLETED)),
    PlanStatus.FAILED.value: (gettext_lazy("Failed"), Q(status=PlanStatus.FAILED)),
    PlanStatus.CANCELLED.value: (gettext_lazy("Cancelled"), Q(status=PlanStatus.CANCELLED)),
}


@dataclass(frozen=True, slots=True)
class PlanRow:
    plan: Plan
    words: Sequence[Badge]
    segments: Sequence[str]
    finished: int
    total: int
    may_cancel: bool
    may_retry: bool
    waits: str = ""
    """The step that waits for people, in words; empty if none does."""

    @property
    def owner(self) -> str:
        return user_display_name(self.plan.author)


def first_page_rows(viewer: User) -> list[PlanRow]:
    """Return the first page of all plans, for live updates of pages that show it."""
    return plan_rows(viewer, list(listed_plans(viewer).order_by("-id")[:PAGE_SIZE]))


def listed_plans(viewer: User) -> QuerySet[Plan]:
    """Return the plans that the viewer may see, as `plan_rows` needs them."""
    return (
        plans_for(viewer)
        .filter(kind=Plan.Kind.PLAN)
        .annotate(awaited=AWAITED_FROM_PEOPLE, first_waiting=FIRST_WAITING, waiting=WAITING)
    )


def plan_rows(viewer: User, plans: Sequence[Plan]) -> list[PlanRow]:
    """Return the rows of plans from `listed_plans`, with one further query."""
    counts, roles = step_counts(plans), roles_of(viewer)
    rows = []
    for plan in plans:
        awaited: str | None = plan.awaited  # type: ignore[attr-defined] # annotated by listed_plans
        is_own = viewer.pk in (plan.author_id, plan.token.user_id if plan.token else None)
        may_act = ADMINISTRATOR in roles or (is_own and OPERATOR in roles)
        rows.append(
            PlanRow(
                plan=plan,
                words=plan_word_list(plan, status_badge(plan.status, awaited), waits=awaited is not None),
                segments=_segments(counts[plan.pk]),
                finished=counts[plan.pk]["completed"],
                total=counts[plan.pk]["steps"],
                may_cancel=may_act and plan.status not in PLAN_TERMINAL,
                may_retry=may_act and plan.status == PlanStatus.FAILED,
                waits=_waits_in_words(plan),
            )
        )
    return rows


WAITS: Mapping[str, "StrOrPromise"] = {
    WaitingFor.APPROVAL.value: gettext_lazy("Step %(number)s waits for approval: %(title)s"),
    WaitingFor.INPUT.value: gettext_lazy("Step %(number)s waits for an answer: %(title)s"),
    WaitingFor.OUTCOME.value: gettext_lazy("The outcome of step %(number)s is not known: %(title)s"),
}


def _waits_in_words(plan: Plan) -> str:
    """Return the waiting step of a plan from `listed_plans` that its status is about, and how many others wait."""
    first = plan.first_waiting  # type: ignore[attr-defined] # annotated by listed_plans
    if not first:
        return ""
    text = str(WAITS[first["reason"]]) % {"number": first["number"], "title": first["title"]}
    more = plan.waiting - 1  # type: ignore[attr-defined] # annotated by listed_plans
    return _("%(text)s (and %(count)s more)") % {"text": text, "count": more} if more else text


def _segments(counts: Counts) -> list[str]:
    steps = max(counts["steps"], 1)
    shares = {hue: count(counts) for hue, count in SEGMENTS}
    if steps > MOST_SEGMENTS:
        shares = {hue: -(-share * MOST_SEGMENTS // steps) for hue, share in shares.items()}
    return [hue for hue, share in shares.items() for _ in range(share)]


def _search(text: str) -> Q:
    return Q(goal__icontains=text) | Q(public_id=text) | Q(author__username=text)


def _owners(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    return person_choices(plan_owners_for(viewer), chosen)


def _agents(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    return column_choices(plan_tokens_for(viewer), "name", chosen)


PLAN_LIST = register_list(
    ListDefinition[Plan](
        name="plans",
        path="/plans/",
        count_text=ngettext_lazy("%(shown)s plan", "%(shown)s plans", "count"),
        search_label=gettext_lazy("Search plans"),
        search_hint=gettext_lazy("Goal, plan ID or owner"),
        rows=lambda viewer, _query: listed_plans(viewer),
        present=plan_rows,
        search=_search,
        tabs=TABS,
        filters=(
            column_filter(
                name="owner",
                label=gettext_lazy("Owner"),
                offer=_owners,
                column="author__username",
            ),
            column_filter(
                name="agent",
                label=gettext_lazy("Agent"),
                offer=_agents,
                column="token__name",
            ),
            ListFilter(
                name="tool",
                label=gettext_lazy("Tool"),
                condition=lambda values: Q(Exists(Step.objects.filter(plan=OuterRef("pk"), tool__in=values))),
            ),
            age_filter("created_at"),
        ),
        orders={
            "-created": SortOrder(gettext_lazy("Newest first"), "-id"),
            "created": SortOrder(gettext_lazy("Oldest first"), "id"),
            "goal": SortOrder(gettext_lazy("Goal, A to Z"), Left("goal", SORTED_LENGTH)),
            "owner": SortOrder(gettext_lazy("Owner, A to Z"), F("author__username")),
        },
        columns=(
            Column(gettext_lazy("Status")),
            Column(gettext_lazy("Plan"), "goal"),
            Column(gettext_lazy("Steps")),
            Column(gettext_lazy("Owner"), "owner"),
            Column(gettext_lazy("Created"), "created", "-created"),
        ),
        row_template="plans/_plan.html",
        empty_template="plans/_no_plans.html",
        csv_columns={
            "id": lambda row: row.plan.public_id,
            "status": lambda row: ", ".join(word.label for word in row.words),
            "goal": lambda row: row.plan.goal,
            "finished_steps": lambda row: row.finished,
            "steps": lambda row: row.total,
            "owner": lambda row: row.plan.author.username,
            "agent": lambda row: row.plan.token.name if row.plan.token else "",
            "created_at": lambda row: row.plan.created_at,
            "started_at": lambda row: row.plan.started_at,
            "completed_at": lambda row: row.plan.completed_at,
        },
        live_rows="plan-rows",
    )
)


@require_safe
@sign_in_required
def plans(request: PageRequest) -> HttpResponseBase:
    return render_list(request, PLAN_LIST, "plans/plans.html", {"section": "plans"})
