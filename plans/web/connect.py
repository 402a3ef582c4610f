"""The page Connect an agent: choice of a client, a new token that is shown once, and the arrival of its first call.

The response to the form shows the token: no URL, session or message ever holds its text. A form that is sent again
redirects to the token's page, which shows everything but the text.
"""

import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from urllib.parse import urlencode, urlsplit

from django import forms
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from catalog.access.roles import NotAllowed, user_display_name
from catalog.access.tokens import ASK_SCOPE, DEFAULT_TOKEN_DAYS, MAX_TOKEN_NAME, issue_token
from catalog.connections.addresses import offers_oauth
from catalog.core.canonical_json import canonical_text, digest
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict, ToolgateError
from catalog.inventory.selectors import offered_tools
from catalog.models import ApiToken, Call, Source
from catalog.rest.authentication import check_scope
from catalog.rest.idempotency import run_once
from catalog.ui.page_forms import CardSelect
from catalog.ui.requests import LOOPBACK, PageRequest, is_fragment_request, server_address, sign_in_required
from catalog.ui.token_limits import LIMITS_SECTION, LimitsForm, limits_in_words
from plans.models import Plan
from plans.web.access import error_status
from plans.web.connect_snippets import CLIENTS, EXAMPLES, FIRST_CLIENT, TOKEN, ExampleCall, McpClient, Snippet

KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
SCOPES_BY_ACCESS = {
    "calls": ("tools:read", "calls:create", "plans:read"),
    "plans": ("tools:read", "calls:create", "plans:read", "plans:write"),
    "gate": ("tools:read", "calls:create", "plans:read", ASK_SCOPE),
}


class TokenForm(LimitsForm):
    name = forms.CharField(
        label=_("Name"),
        max_length=MAX_TOKEN_NAME,
        help_text=_("Reviewers see this name with each request of the client."),
    )
    access = forms.ChoiceField(
        label=_("Permissions"),
        widget=CardSelect,
        choices=[
            ("calls", _("Call tools and read the results")),
            ("plans", _("Also submit and control plans of its own")),
            ("gate", _("Also ask before it runs its own tools")),
        ],
    )
    days = forms.TypedChoiceField(
        label=_("Expires after"),
        coerce=int,
        choices=[(7, _("7 days")), (30, _("30 days")), (DEFAULT_TOKEN_DAYS, _("90 days")), (365, _("One year"))],
    )
    key = forms.RegexField(KEY.pattern, widget=forms.HiddenInput)

    @property
    def limit_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in LIMITS_SECTION.fields]

    @property
    def limits_are_open(self) -> bool:
        """True if the form came back with limits, or with an error in them."""
        return self.is_bound and (any(field.errors for field in self.limit_fields) or self.limits is not None)


def new_form(client: McpClient, viewer: User) -> TokenForm:
    name = gettext("%(client)s on the computer of %(name)s") % {
        "client": client.label,
        "name": user_display_name(viewer),
    }
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
    """Progress of a token's client: waiting, connected, first call refused, or first call made."""

    token: ApiToken

    @cached_property
    def plan(self) -> Plan | None:
        """The first plan of the token: the plan of a call, a submitted plan or a to-do list."""
        if self.token.last_used_at is None:
            return None
        return Plan.objects.filter(token=self.token).order_by("pk").first()

    @cached_property
    def call(self) -> Call | None:
        """The first call, unless a plan or a to-do list came first."""
        if self.plan is None or self.plan.kind != Plan.Kind.CALL:
            return None
        step = self.plan.steps.select_related("call__approval").order_by("pk").first()
        return step.call if step is not None else None

    @property
    def stage(self) -> str:
        """One of `waiting`, `connected`, `refused`, `called` and, for a token that is no longer valid, `ended`."""
        if self.plan is not None:
            return "called"
        if not self.token.is_live:
            return "ended"
        if self.token.first_refusal is not None:
            return "refused"
        return "waiting" if self.token.last_used_at is None else "connected"

    @property
    def refused_at(self) -> datetime | None:
        return parse_datetime((self.token.first_refusal or {}).get("at", ""))

    @property
    def is_over(self) -> bool:
        """True once the page need not poll again."""
        return self.stage in ("called", "ended")


@dataclass(frozen=True, kw_only=True)
class ConnectPage:
    client: McpClient
    address: str
    form: TokenForm | None = None
    why_not: str = ""
    arrival: Arrival | None = None
    text: str = ""

    @property
    def clients(self) -> list[McpClient]:
        return list(CLIENTS.values())

    @cached_property
    def example(self) -> ExampleCall | None:
        """The call in the snippets: the first whose tool is enabled and safe here; None if there is none."""
        usable = offered_tools().filter(enabled=True, source__enabled=True)
        usable = usable.filter(current_version__safety_level=SafetyLevel.SAFE)
        names = set(usable.filter(name__in=[each.tool for each in EXAMPLES]).values_list("name", flat=True))
        return next((each for each in EXAMPLES if each.tool in names), None)

    @property
    def disabled_source(self) -> Source | None:
        """The set of the snippets' tool, if no example can be called here and this set is disabled."""
        if self.example is not None:
            return None
        return Source.objects.filter(tools__name=EXAMPLES[0].tool, enabled=False).first()

    @property
    def snippets(self) -> list[Snippet]:
        """The snippets to copy, with a placeholder unless the token's text is known."""
        example = self.example or EXAMPLES[0]
        return [each.filled(self.address, self.text or TOKEN, example) for each in self.client.snippets]

    @property
    def gate(self) -> list[Snippet]:
        """The snippets that gate the client's own tools, with a placeholder for a token that may not ask."""
        asks = self.arrival is not None and ASK_SCOPE in self.arrival.token.scopes
        return [each.filled(self.address, self.text if asks and self.text else TOKEN) for each in self.client.gate]

    @property
    def sign_in(self) -> list[Snippet]:
        """The snippets for signing in; empty if the client or this installation does not do that."""
        return [each.filled(self.address) for each in self.client.sign_in] if offers_oauth() else []

    @property
    def is_unreachable(self) -> bool:
        """True if the client connects from its vendor's network, and this server's address is not a public one."""
        parts = urlsplit(self.address)
        return not self.client.snippets and (parts.scheme != "https" or parts.hostname in LOOPBACK)

    @property
    def limits(self) -> list[str]:
        return limits_in_words(self.arrival.token.limits) if self.arrival is not None else []


def client_named(name: str) -> McpClient:
    """Return the client with this name, or the first one."""
    return CLIENTS.get(name, CLIENTS[FIRST_CLIENT])


def why_not(viewer: User) -> str:
    """Return why the viewer cannot create tokens that call tools; empty if they can."""
    try:
        check_scope("calls:create", viewer, None)
    except NotAllowed as refusal:
        return refusal.message
    return ""


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def connect(request: PageRequest) -> HttpResponse:
    if request.method == "POST":
        return _make_token(request, client_named(request.POST.get("client", "")))
    return _render_form(request, client_named(request.GET.get("client", "")))


def _render_form(
    request: PageRequest, client: McpClient, form: TokenForm | None = None, *, status: int = 200
) -> HttpResponse:
    refusal = why_not(request.user)
    page = ConnectPage(
        client=client,
        address=server_address(request),
        form=None if refusal else form or new_form(client, request.user),
        why_not=refusal,
    )
    return _render_page(request, page, status)


def _make_token(request: PageRequest, client: McpClient) -> HttpResponse:
    """Create a token; redirect to the token if this form created one before."""
    form = TokenForm(request.POST)
    if why_not(request.user):
        return _render_form(request, client, status=403)
    if not form.is_valid():
        return _render_form(request, client, form, status=422)
    texts: list[str] = []
    try:
        pk = _create_once(request.user, client, form, texts)
    except ToolgateError as error:
        problem = (
            gettext("This form was sent before with other values. Open the page again.")
            if isinstance(error, Conflict)
            else error.message
        )
        form.add_error(None, problem)
        return _render_form(request, client, form, status=error_status(error))
    if not texts:
        return redirect(f"{reverse('connected', args=[int(pk)])}?{urlencode({'client': client.slug})}")
    arrival = Arrival(ApiToken.objects.get(pk=pk))
    page = ConnectPage(client=client, address=server_address(request), arrival=arrival, text=texts[0])
    return _render_page(request, page)


def _create_once(viewer: User, client: McpClient, form: TokenForm, texts: list[str]) -> str:
    """Return the primary key of the form's token as text; add the token's text to `texts` if it is created now."""

    wanted = form.cleaned_data

    def create() -> str:
        token, text = issue_token(
            user=viewer,
            kind=ApiToken.Kind.AGENT,
            scopes=SCOPES_BY_ACCESS[wanted["access"]],
            name=wanted["name"],
            days=wanted["days"],
            limits=form.limits,
        )
        texts.append(text)
        return str(token.pk)

    terms = {"name": wanted["name"], "access": wanted["access"], "days": wanted["days"], "limits": form.limits}
    what = digest("connect", client.slug, canonical_text(terms))
    return run_once(f"user:{viewer.pk}", f"connect:{wanted['key']}", what, create)


@require_safe
@sign_in_required
def connected(request: PageRequest, pk: int) -> HttpResponse:
    """Show the progress of the client of one of the viewer's tokens; 204 to a poll that has seen the current stage."""
    token = get_object_or_404(ApiToken, pk=pk, user=request.user, kind=ApiToken.Kind.AGENT)
    arrival, client = Arrival(token), client_named(request.GET.get("client", ""))
    page = ConnectPage(client=client, address=server_address(request), arrival=arrival)
    if not is_fragment_request(request, "arrival"):
        return _render_page(request, page)
    if request.GET.get("seen") == arrival.stage:
        return HttpResponse(status=204)
    return render(request, "plans/_connect_arrival.html", {"page": page, "part": True})


def _render_page(request: PageRequest, page: ConnectPage, status: int = 200) -> HttpResponse:
    return render(request, "plans/connect.html", {"section": "connect", "page": page}, status=status)
