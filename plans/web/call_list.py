"""List of calls: tool, level, status, requester, plan, age and duration. Shows no arguments and no results."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.db.models import F, Q
from django.http import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_safe

from catalog.access.roles import ADMINISTRATOR, OPERATOR, roles_of, user_display_name
from catalog.calls.privacy import private_parts_of
from catalog.models import Call, Tool
from catalog.states import CallStatus
from catalog.ui.labels import Badge, format_duration, status_badge
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    Choice,
    Column,
    ListDefinition,
    SortOrder,
    age_filter,
    column_choices,
    column_filter,
    level_choices,
    person_choices,
    register_list,
)
from catalog.ui.requests import PageRequest, sign_in_required
from plans.models import Plan, Step
from plans.states import PLAN_TERMINAL, PlanStatus, StepStatus
from plans.store.selectors import calls_for, plan_owners_for, plan_tokens_for, plans_for

MAX_ARGUMENTS = 5000
"""Maximum characters of arguments in a cell of the CSV."""
VIA = {
    "page": gettext_lazy("Page"),
    "rest": gettext_lazy("REST"),
    "mcp": gettext_lazy("MCP"),
    "plan": gettext_lazy("Plan"),
}
LISTED = (
    *("public_id", "tool_name", "status", "via", "plan_ref", "step_ref", "created_at", "started_at", "finished_at"),
    *("version__safety_level", "token__name"),
    *("requested_by__username", "requested_by__first_name", "requested_by__last_name"),
)
"""Columns of the list: never arguments, results and schemas."""
WAITING = (CallStatus.HELD, CallStatus.OUTCOME_UNKNOWN)
RUNNING = (CallStatus.CREATED, CallStatus.READY, CallStatus.RUNNING)
TABS = {
    "": (gettext_lazy("All"), Q()),
    "waiting": (gettext_lazy("Waiting for people"), Q(status__in=WAITING)),
    "running": (gettext_lazy("Running"), Q(status__in=RUNNING)),
    "completed": (gettext_lazy("Done"), Q(status=CallStatus.COMPLETED)),
    "failed": (gettext_lazy("Failed"), Q(status=CallStatus.FAILED)),
    "cancelled": (gettext_lazy("Cancelled"), Q(status=CallStatus.CANCELLED)),
}


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call in the list. `plan` is the plan that the viewer may open; `arguments` is filled in for CSV only."""

    call: Call
    word: Badge
    plan: Plan | None
    may_cancel: bool
    may_retry: bool
    arguments: str = ""

    @property
    def address(self) -> str:
        return f"{reverse('plan', args=[self.call.plan_ref])}?step={self.call.step_ref}" if self.plan else ""

    @property
    def goal(self) -> str:
        """The goal of its plan; empty for a direct call."""
        return self.plan.goal if self.plan and self.plan.kind == Plan.Kind.PLAN else ""

    @property
    def requester(self) -> str:
        return user_display_name(self.call.requested_by) if self.call.requested_by else ""

    @property
    def duration(self) -> str:
        return "" if self.call.duration_ms is None else format_duration(self.call.duration_ms)


def _rows(viewer: User, calls: Sequence[Call]) -> list[CallRow]:
    """Return calls with their plans and with what the viewer may do; two queries."""
    refs = {call.plan_ref for call in calls if call.plan_ref}
    plans = {plan.public_id: plan for plan in plans_for(viewer).filter(public_id__in=refs).order_by()}
    failed = Step.objects.filter(call__in=[call.pk for call in calls], status=StepStatus.FAILED, parent=None)
    failed = failed.filter(call__client_run=None)  # what a client runs itself cannot be retried here
    retryable, roles = set(failed.values_list("call_id", flat=True)), roles_of(viewer)
    rows = []
    for call in calls:
        plan = plans.get(call.plan_ref)
        owners = (plan.author_id, plan.token.user_id if plan.token else None) if plan else ()
        may_act = ADMINISTRATOR in roles or (OPERATOR in roles and viewer.pk in owners)
        is_direct = plan is not None and plan.kind == Plan.Kind.CALL
        rows.append(
            CallRow(
                call=call,
                word=status_badge(call.status),
                plan=plan,
                may_cancel=may_act and is_direct and plan is not None and plan.status not in PLAN_TERMINAL,
                may_retry=may_act
                and plan is not None
                and plan.status in (PlanStatus.FAILED, PlanStatus.IN_PROGRESS)
                and call.pk in retryable,
            )
        )
    return rows


def _rows_with_arguments(viewer: User, calls: Sequence[Call]) -> list[CallRow]:
    """Return calls with their arguments; secrets and private values are masked, whoever exports them."""
    full = Call.objects.defer("response", "content", "late_evidence").in_bulk([call.pk for call in calls])
    private = private_parts_of(full.values())
    rows = []
    for row in _rows(viewer, calls):
        arguments, hidden = full[row.call.pk].arguments_json, private.get(row.call.pk)
        text = json.dumps(hidden.mask_arguments(arguments) if hidden else arguments, ensure_ascii=False)
        rows.append(replace(row, arguments=text[:MAX_ARGUMENTS]))
    return rows


def _search(text: str) -> Q:
    return Q(tool_name__icontains=text) | Q(public_id=text) | Q(plan_ref=text) | Q(requested_by__username=text)


def _tools(_viewer: User, chosen: Sequence[str]) -> list[Choice]:
    return column_choices(Tool.objects.order_by(), "name", chosen)


def _requesters(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    return person_choices(plan_owners_for(viewer), chosen)


def _agents(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    return column_choices(plan_tokens_for(viewer), "name", chosen)


CALL_LIST = register_list(
    ListDefinition[Call](
        name="calls",
        path="/calls/",
        count_text=ngettext_lazy("%(shown)s call", "%(shown)s calls", "count"),
        search_label=gettext_lazy("Search calls"),
        search_hint=gettext_lazy("Tool, call or plan ID, requester"),
        rows=lambda viewer, _query: calls_for(viewer).select_related("version", "requested_by", "token").only(*LISTED),
        present=_rows,
        csv_present=_rows_with_arguments,
        search=_search,
        tabs=TABS,
        filters=(
            column_filter(
                name="tool",
                label=gettext_lazy("Tool"),
                offer=_tools,
                column="tool_name",
            ),
            column_filter(
                name="level",
                label=gettext_lazy("Level"),
                offer=lambda _viewer, _chosen: level_choices(),
                column="version__safety_level",
            ),
            column_filter(
                name="requester",
                label=gettext_lazy("Requester"),
                offer=_requesters,
                column="requested_by__username",
            ),
            column_filter(
                name="agent",
                label=gettext_lazy("Agent"),
                offer=_agents,
                column="token__name",
            ),
            column_filter(
                name="via",
                label=gettext_lazy("Via"),
                offer=lambda _viewer, _chosen: [Choice(value, label) for value, label in VIA.items()],
                column="via",
            ),
            age_filter("created_at"),
        ),
        orders={
            "-created": SortOrder(gettext_lazy("Newest first"), "-id"),
            "created": SortOrder(gettext_lazy("Oldest first"), "id"),
            "tool": SortOrder(gettext_lazy("Tool, A to Z"), F("tool_name")),
        },
        columns=(
            Column(gettext_lazy("Status")),
            Column(gettext_lazy("Tool"), "tool"),
            Column(gettext_lazy("Level")),
            Column(gettext_lazy("Requester")),
            Column(gettext_lazy("Duration"), classes="align-end"),
            Column(gettext_lazy("Created"), "created", "-created"),
        ),
        row_template="plans/_call.html",
        empty_template="plans/_no_calls.html",
        csv_columns={
            "id": lambda row: row.call.public_id,
            "status": lambda row: row.call.public_status,
            "tool": lambda row: row.call.tool_name,
            "level": lambda row: row.call.version.safety_level,
            "requester": lambda row: row.call.requested_by.username if row.call.requested_by else "",
            "agent": lambda row: row.call.token.name if row.call.token else "",
            "via": lambda row: row.call.via,
            "plan": lambda row: row.call.plan_ref,
            "step": lambda row: row.call.step_ref,
            "arguments": lambda row: row.arguments,
            "created_at": lambda row: row.call.created_at,
            "started_at": lambda row: row.call.started_at,
            "finished_at": lambda row: row.call.finished_at,
            "duration_ms": lambda row: row.call.duration_ms,
        },
    )
)


@require_safe
@sign_in_required
def calls(request: PageRequest) -> HttpResponseBase:
    return render_list(request, CALL_LIST, "plans/calls.html", {"section": "calls"})
