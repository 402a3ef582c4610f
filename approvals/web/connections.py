"""Pages of connections: the list, one connection with its outlook and log, and the clients that await permission."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext, gettext_lazy, ngettext_lazy
from django.views.decorators.http import require_POST, require_safe

from approvals.grants.coverage import tools_with_grants
from approvals.models import ApprovalRequest
from approvals.policies.outlook import outlook_for
from approvals.states import RequestStatus
from approvals.web.consent import CALLS, level_rows, outlook_tables
from catalog.access import tokens
from catalog.access.roles import ADMINISTRATOR, has_role, user_display_name
from catalog.access.tokens import may_hold_scope
from catalog.calls.statistics import usage_window_start
from catalog.connections.clients import clients_to_allow
from catalog.connections.models import Client, Connection, Step
from catalog.connections.selectors import connections_for
from catalog.connections.services import allow_client, forbid_client
from catalog.connections.steps import failed_steps_for, steps_of
from catalog.core import clock
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken, Call
from catalog.ui.labels import SCOPE_SENTENCES, Badge
from catalog.ui.list_views import render_list
from catalog.ui.lists import (
    Choice,
    Column,
    ListDefinition,
    SortOrder,
    column_choices,
    column_filter,
    person_choices,
    register_list,
)
from catalog.ui.requests import PageRequest, administrator_required, sign_in_required
from catalog.ui.token_limits import LimitsForm, limits_in_words

MAX_SHOWN_STEPS = 100
MAX_SHOWN_CLIENTS = 50
MAX_SHOWN_FAILURES = 10
STANDINGS: Mapping[str, Badge] = {
    "active": Badge(gettext_lazy("Connected"), "ok", "ok"),
    "ended": Badge(gettext_lazy("Ended"), "stop", "idle"),
}
STEP_NAMES = {
    "register": gettext_lazy("Registration"),
    "authorize": gettext_lazy("Consent"),
    "token": gettext_lazy("First tokens"),
    "refresh": gettext_lazy("Renewal"),
    "revoke": gettext_lazy("End"),
    "end": gettext_lazy("End"),
}


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    connection: Connection
    calls: int = 0
    """Calls of the last days that pages display."""
    waiting: int = 0
    """Requests that wait for people."""

    @property
    def token(self) -> ApiToken:
        return self.connection.token

    @property
    def standing(self) -> Badge:
        return STANDINGS["active" if self.token.is_live else "ended"]

    @property
    def owner(self) -> str:
        return user_display_name(self.token.user)

    @property
    def limits(self) -> list[str]:
        return limits_in_words(self.token.limits)

    @property
    def scopes(self) -> list[tuple[Any, bool]]:
        """The sentence of each scope, and whether the owner's roles allow it at present."""
        owner = self.token.user
        return [(SCOPE_SENTENCES.get(scope, scope), may_hold_scope(owner, scope)) for scope in self.token.scopes]


def _rows(viewer: User, connections: Sequence[Connection]) -> list[ConnectionRow]:
    listed = connections_for(viewer).in_bulk([connection.pk for connection in connections])
    keys = [connection.token_id for connection in listed.values()]
    pending = ApprovalRequest.objects.filter(call__token__in=keys, status=RequestStatus.PENDING).order_by()
    waiting = dict(pending.values_list("call__token").annotate(count=Count("pk")))
    recent = Call.objects.filter(token__in=keys, created_at__gte=usage_window_start()).order_by()
    calls = dict(recent.values_list("token").annotate(count=Count("pk")))
    rows = [listed[connection.pk] for connection in connections if connection.pk in listed]
    return [ConnectionRow(each, calls.get(each.token_id, 0), waiting.get(each.token_id, 0)) for each in rows]


def _owners(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    if not has_role(viewer, ADMINISTRATOR):
        return []
    return person_choices(User.objects.filter(pk__in=connections_for(viewer).order_by().values("token__user")), chosen)


def _clients(viewer: User, chosen: Sequence[str]) -> list[Choice]:
    return column_choices(connections_for(viewer).order_by(), "client_name", chosen)


CONNECTION_LIST = register_list(
    ListDefinition[Connection](
        name="connections",
        path="/connections/",
        count_text=ngettext_lazy("%(shown)s connection", "%(shown)s connections", "count"),
        search_label=gettext_lazy("Search connections"),
        search_hint=gettext_lazy("Client, host, owner"),
        rows=lambda viewer, _query: connections_for(viewer).annotate(
            is_live=Q(token__revoked_at=None, token__expires_at__gt=clock.now())
        ),
        present=_rows,
        search=lambda text: (
            Q(client_name__icontains=text) | Q(client_host__icontains=text) | Q(token__user__username=text)
        ),
        tabs={
            "": (gettext_lazy("All"), Q()),
            "active": (STANDINGS["active"].text, Q(is_live=True)),
            "ended": (STANDINGS["ended"].text, Q(is_live=False)),
        },
        filters=(
            column_filter(name="client", label=gettext_lazy("Client"), offer=_clients, column="client_name"),
            column_filter(name="owner", label=gettext_lazy("Owner"), offer=_owners, column="token__user__username"),
        ),
        orders={
            "-since": SortOrder(gettext_lazy("Newest first"), "-id"),
            "since": SortOrder(gettext_lazy("Oldest first"), "id"),
        },
        columns=(
            Column(gettext_lazy("Status")),
            Column(gettext_lazy("Client")),
            Column(gettext_lazy("Calls carry the name")),
            Column(gettext_lazy("Calls, 14 days")),
            Column(gettext_lazy("Last used")),
            Column(gettext_lazy("Since"), "since", "-since"),
        ),
        row_template="connections/_connection.html",
        empty_template="connections/_none.html",
    )
)


@require_safe
@sign_in_required
def connection_list(request: PageRequest) -> HttpResponseBase:
    administers = has_role(request.user, ADMINISTRATOR)
    needs_permission = administers and settings.TOOLGATE_OAUTH_CLIENTS == "known"
    shown = {
        "section": "connections",
        "waiting_clients": list(clients_to_allow()[:MAX_SHOWN_CLIENTS]) if needs_permission else [],
        "allowed_clients": _allowed_clients() if needs_permission else [],
        "needs_permission": needs_permission,
        "failed_steps": _named_steps(failed_steps_for(request.user)[:MAX_SHOWN_FAILURES]),
    }
    return render_list(request, CONNECTION_LIST, "connections/connections.html", shown)


def _named_steps(steps: Iterable[Step]) -> list[tuple[Any, Step]]:
    return [(STEP_NAMES.get(step.name, step.name), step) for step in steps]


def _allowed_clients() -> list[Client]:
    allowed = Client.objects.filter(allowed_at__isnull=False).select_related("allowed_by")
    return list(allowed.order_by("-allowed_at")[:MAX_SHOWN_CLIENTS])


@require_safe
@sign_in_required
def connection_detail(request: PageRequest, number: int) -> HttpResponse:
    return _render_connection(request, _connection_or_404(request, number))


@require_POST
@sign_in_required
def change_connection(request: PageRequest, number: int) -> HttpResponse:
    """Change the limits of a connection."""
    connection = _connection_or_404(request, number)
    form = LimitsForm(request.POST, stored=connection.token.limits)
    if not form.is_valid():
        return _render_connection(request, connection, form, status=422)
    try:
        tokens.change_token(connection.token, {"limits": form.limits}, by=request.user)
        messages.success(request, gettext("Saved. The change takes effect within seconds."))
    except ParameterError as error:
        form.add_problems(error)
        return _render_connection(request, connection, form, status=422)
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("connection", number)


@require_POST
@sign_in_required
def end_connection_page(request: PageRequest, number: int) -> HttpResponse:
    connection = _connection_or_404(request, number)
    try:
        tokens.revoke_token(connection.token, by=request.user)
        messages.success(request, gettext("Ended: %(name)s.") % {"name": connection.client_name})
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("connection", number)


@require_POST
@administrator_required
def permit_client(request: PageRequest, number: int) -> HttpResponse:
    """Allow a client, or take that back, as the pressed button says."""
    client = get_object_or_404(Client, pk=number)
    act = {"allow": allow_client, "forbid": forbid_client}.get(request.POST.get("do", ""))
    if act is None:
        messages.error(request, gettext("Unknown action. Reload the page and try again."))
    else:
        act(client, by=request.user)
        messages.success(request, gettext("Saved."))
    return redirect("connections")


def _render_connection(
    request: PageRequest, connection: Connection, form: LimitsForm | None = None, *, status: int = 200
) -> HttpResponse:
    token = connection.token
    owner = token.user
    outlook = outlook_for(owner, token.limits, granted=tools_with_grants(owner))
    [row] = _rows(request.user, [connection])
    steps = steps_of(connection, request.user)[:MAX_SHOWN_STEPS]
    shown = {
        "section": "connections",
        "row": row,
        "form": form or LimitsForm(stored=token.limits),
        "may_call": CALLS in token.scopes and may_hold_scope(owner, CALLS),
        "outlook": outlook,
        "levels": level_rows(outlook),
        "tables": outlook_tables(outlook),
        "steps": _named_steps(steps),
        "is_own": owner.pk == request.user.pk,
    }
    return render(request, "connections/connection.html", shown, status=status)


def _connection_or_404(request: PageRequest, number: int) -> Connection:
    connection = connections_for(request.user).filter(token=number).first()
    if connection is None:
        raise Http404
    return connection
