"""The page Connect an agent: a client is chosen, a token made and shown once, and the first call awaited.

The page that shows the token is the answer to the form: no address, session or message ever holds its text. Sent again,
the form leads to the token's own page, which knows everything but the text.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from catalog.access.roles import NotAllowed, user_display_name
from catalog.access.tokens import DEFAULT_TOKEN_DAYS, MAX_TOKEN_NAME, issue_token
from catalog.core.canonical_json import digest
from catalog.errors import Conflict, ToolgateError
from catalog.models import ApiToken, Call
from catalog.rest.authentication import check_scope
from catalog.rest.idempotency import run_once
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required
from plans.models import Plan
from plans.web.access import error_status
from plans.web.connect_snippets import CLAUDE_CODE, CLIENTS, TOKEN, McpClient, Snippet

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
SCOPES_BY_ACCESS = {
    "calls": ("tools:read", "calls:create", "plans:read"),
    "plans": ("tools:read", "calls:create", "plans:read", "plans:write"),
}


class TokenForm(forms.Form):
    """Form for a new token: its name, access and lifetime."""

    name = forms.CharField(max_length=MAX_TOKEN_NAME)
    access = forms.ChoiceField(
        choices=[("calls", "Call tools and read the results"), ("plans", "Also submit and control plans of its own")],
    )
    days = forms.TypedChoiceField(
        coerce=int,
        choices=[(7, "7 days"), (30, "30 days"), (DEFAULT_TOKEN_DAYS, f"{DEFAULT_TOKEN_DAYS} days"), (365, "A year")],
    )
    key = forms.RegexField(KEY.pattern)


def new_form(client: McpClient, viewer: User) -> TokenForm:
    """Return a form that nobody has sent."""
    name = f"{client.label} on the computer of {user_display_name(viewer)}"
    return TokenForm(
        initial={
            "name": name[:MAX_TOKEN_NAME],
            "access": "calls",
            "days": DEFAULT_TOKEN_DAYS,
            "key": secrets.token_urlsafe(18),
        }
    )


@dataclass(frozen=True)
class Arrival:
    """Progress of a token's client: awaited, connected, or first call made."""

    token: ApiToken

    @cached_property
    def plan(self) -> Plan | None:
        """The first thing that was stored for the token: a call, a plan or a to-do list."""
        if self.token.last_used_at is None:
            return None
        return Plan.objects.filter(token=self.token).order_by("pk").first()

    @cached_property
    def call(self) -> Call | None:
        """The first call, if that is what came first."""
        if self.plan is None or self.plan.kind != Plan.Kind.CALL:
            return None
        step = self.plan.steps.select_related("call__approval").order_by("pk").first()
        return step.call if step is not None else None

    @property
    def stage(self) -> str:
        """One of `waiting`, `connected`, `called` and, for a token that is not valid any more, `ended`."""
        if self.plan is not None:
            return "called"
        if not self.token.is_live:
            return "ended"
        return "waiting" if self.token.last_used_at is None else "connected"

    @property
    def is_over(self) -> bool:
        """True once the page need not look for news again."""
        return self.stage in ("called", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPage:
    """Content of the page: a client, and either the form for a token or the token that was made."""

    client: McpClient
    address: str
    form: TokenForm | None = None
    why_not: str = ""
    problem: str = ""
    arrival: Arrival | None = None
    text: str = ""

    @property
    def clients(self) -> list[McpClient]:
        """The clients to choose from."""
        return list(CLIENTS.values())

    @property
    def snippets(self) -> list[Snippet]:
        """The snippets to copy, with a placeholder if the token's text is not known."""
        return [each.filled(self.address, self.text or TOKEN) for each in self.client.snippets]


def client_named(name: str) -> McpClient:
    """Return a client; the first of the list for a name that is none."""
    return CLIENTS.get(name, CLAUDE_CODE)


def address_for(request: PageRequest) -> str:
    """Return the address for clients: that of the settings, or where nobody set a public one, the browser's."""
    if urlsplit(settings.TOOLGATE_URL).hostname in LOOPBACK:
        return request.build_absolute_uri("/").rstrip("/")
    return str(settings.TOOLGATE_URL)


def why_not(viewer: User) -> str:
    """Return why somebody cannot make tokens that call tools; empty if they can."""
    try:
        check_scope("calls:create", viewer, None)
    except NotAllowed as refusal:
        return refusal.message
    return ""


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def connect(request: PageRequest) -> HttpResponse:
    """Show the clients and the form; make a token and show it, once."""
    if request.method == "POST":
        return _make_token(request, client_named(request.POST.get("client", "")))
    return _render_form(request, client_named(request.GET.get("client", "")))


def _render_form(
    request: PageRequest, client: McpClient, form: TokenForm | None = None, *, problem: str = "", status: int = 200
) -> HttpResponse:
    refusal = why_not(request.user)
    page = ConnectPage(
        client=client,
        address=address_for(request),
        form=None if refusal else form or new_form(client, request.user),
        why_not=refusal,
        problem=problem,
    )
    return _render_page(request, page, status)


def _make_token(request: PageRequest, client: McpClient) -> HttpResponse:
    """Make a token; a form that was sent before leads to the token that it made."""
    form = TokenForm(request.POST)
    if why_not(request.user):
        return _render_form(request, client, status=403)
    if not form.is_valid():
        return _render_form(request, client, form, status=422)
    texts: list[str] = []
    try:
        pk = _create_once(request.user, client, form.cleaned_data, texts)
    except ToolgateError as error:
        problem = "This form was sent before; open the page again." if isinstance(error, Conflict) else error.message
        return _render_form(request, client, form, problem=problem, status=error_status(error))
    if not texts:
        return redirect(f"/connect/{pk}/?client={client.slug}")
    arrival = Arrival(ApiToken.objects.get(pk=pk))
    page = ConnectPage(client=client, address=address_for(request), arrival=arrival, text=texts[0])
    return _render_page(request, page)


def _create_once(viewer: User, client: McpClient, wanted: Mapping[str, Any], texts: list[str]) -> str:
    """Return the key of the token that this form makes or made; only the first time its text is added to `texts`."""

    def create() -> str:
        token, text = issue_token(
            user=viewer,
            kind=ApiToken.Kind.AGENT,
            scopes=SCOPES_BY_ACCESS[wanted["access"]],
            name=wanted["name"],
            days=wanted["days"],
        )
        texts.append(text)
        return str(token.pk)

    what = digest("connect", client.slug, wanted["name"], wanted["access"], str(wanted["days"]))
    return run_once(f"user:{viewer.pk}", f"connect:{wanted['key']}", what, create)


@require_safe
@sign_in_required
def connected(request: PageRequest, pk: int) -> HttpResponse:
    """Show how far the client of one's own token has come; whoever waits for it is told only what is new."""
    token = get_object_or_404(ApiToken, pk=pk, user=request.user, kind=ApiToken.Kind.AGENT)
    arrival, client = Arrival(token), client_named(request.GET.get("client", ""))
    page = ConnectPage(client=client, address=address_for(request), arrival=arrival)
    if not is_fragment_request(request, "arrival"):
        return _render_page(request, page)
    if request.GET.get("seen") == arrival.stage:
        return HttpResponse(status=204)
    return render(request, "plans/_connect_arrival.html", {"page": page, "part": True})


def _render_page(request: PageRequest, page: ConnectPage, status: int = 200) -> HttpResponse:
    return render(request, "plans/connect.html", {"section": "connect", "page": page}, status=status)
