"""Pages of sessions: the list, and one session with its to-do list and calls, updated live."""

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_POST, require_safe

from catalog.access.roles import ADMINISTRATOR, has_role
from catalog.access.tokens import tokens_for
from catalog.models import UngatedRun
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    MAX_CHOICES,
    Choice,
    Column,
    ListDefinition,
    ListFilter,
    ListQuery,
    SortOrder,
    age_filter,
    column_filter,
    person_choices,
    register_list,
)
from catalog.ui.requests import PageRequest, administrator_required, next_address, parse_number, sign_in_required
from plans.coding_agents.reports import mark_as_seen
from plans.coding_agents.sessions import Armed, AsksElsewhere, armed_state, ungated_runs_in
from plans.models import Plan
from plans.sessions.lists import SessionKey
from plans.sessions.overview import counted_session_rows, newest_plans_of_sessions, session_overview
from plans.states import PLAN_TERMINAL, PlanStatus
from plans.store.selectors import plan_owners_for
from plans.web.access import plan_or_404

MOST_UNGATED = 10
"""Runs without permission that the page of a session shows."""


def _rows(viewer: User, query: ListQuery) -> QuerySet[Plan]:
    token = query.values("token")
    found = newest_plans_of_sessions(viewer, through=int(token[0]) if token else None)
    todo_list = Plan.objects.filter(pk=OuterRef("list_pk"))
    return found.annotate(
        list_status=Subquery(todo_list.values("status")), list_goal=Subquery(todo_list.values("goal"))
    )


def _owners(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    return person_choices(plan_owners_for(viewer), chosen)


def _tokens(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    """Return the tokens that the viewer may see, newest first, with the one that is set."""
    tokens, number = tokens_for(viewer).order_by("-pk"), parse_number(chosen[0]) if chosen else None
    found = list(tokens[:MAX_CHOICES])
    if number is not None and number not in {token.pk for token in found}:
        found += tokens.filter(pk=number)
    return [Choice(str(token.pk), token.name) for token in found]


SESSION_LIST = register_list(
    ListDefinition[Plan](
        name="sessions",
        path="/sessions/",
        count_text=ngettext_lazy("%(shown)s session", "%(shown)s sessions", "count"),
        search_label=gettext_lazy("Search sessions"),
        search_hint=gettext_lazy("Name, objective or owner"),
        rows=_rows,
        present=lambda _viewer, plans: counted_session_rows(plans),
        search=lambda text: (
            Q(session__icontains=text) | Q(list_goal__icontains=text) | Q(author__username=text) | Q(public_id=text)
        ),
        tabs={
            "": (gettext_lazy("All"), Q()),
            "open": (gettext_lazy("Open list"), Q(list_status__isnull=False) & ~Q(list_status__in=PLAN_TERMINAL)),
            "completed": (gettext_lazy("List done"), Q(list_status=PlanStatus.COMPLETED)),
            "none": (gettext_lazy("Without a list"), Q(list_status__isnull=True)),
        },
        filters=(
            column_filter(
                name="owner",
                label=gettext_lazy("Owner"),
                offer=_owners,
                column="author__username",
            ),
            ListFilter(name="token", label=gettext_lazy("Agent"), offer=_tokens, several=False),
            age_filter("created_at"),
        ),
        orders={
            "-active": SortOrder(gettext_lazy("Last active first"), "-id"),
            "active": SortOrder(gettext_lazy("Last active last"), "id"),
        },
        columns=(
            Column(gettext_lazy("List")),
            Column(gettext_lazy("Session")),
            Column(gettext_lazy("Done")),
            Column(gettext_lazy("Calls"), classes="align-end"),
            Column(gettext_lazy("Owner")),
            Column(gettext_lazy("Last active"), "active", "-active"),
        ),
        row_template="plans/_session.html",
        empty_template="plans/_no_sessions.html",
        csv_columns={
            "id": lambda row: row.id,
            "session": lambda row: row.name,
            "objective": lambda row: row.todo_list.goal if row.todo_list else "",
            "list_status": lambda row: row.todo_list.status if row.todo_list else "",
            "done": lambda row: row.done,
            "steps": lambda row: row.total,
            "calls": lambda row: row.calls,
            "owner": lambda row: row.author.username,
            "agent": lambda row: row.token.name if row.token else "",
            "last_active_at": lambda row: row.last_active_at,
        },
    )
)


@require_safe
@sign_in_required
def sessions(request: PageRequest) -> HttpResponseBase:
    return render_list(request, SESSION_LIST, "plans/sessions.html", {"section": "sessions"})


@require_safe
@sign_in_required
def session(request: PageRequest, public_id: str) -> HttpResponse:
    plan = plan_or_404(request.user, public_id)
    key, page = SessionKey.of_plan(plan), session_overview(plan)
    is_administrator, armed = has_role(request.user, ADMINISTRATOR), armed_state(key)
    shown = {
        "section": "sessions",
        "page": page,
        "may_open_token": page.author == request.user or is_administrator,
        "armed": armed,
        "is_armed": isinstance(armed, Armed),
        "asks_elsewhere": isinstance(armed, AsksElsewhere),
        "ungated": list(ungated_runs_in(key)[:MOST_UNGATED]) if armed is not None else [],
        "may_mark": is_administrator,
    }
    return render(request, "plans/session.html", shown)


@require_POST
@administrator_required
def ungated_run_seen(request: PageRequest, pk: int) -> HttpResponse:
    """Mark a run that nobody allowed as seen."""
    mark_as_seen(get_object_or_404(UngatedRun, pk=pk), by=request.user)
    return redirect(next_address(request, reverse("home")))
