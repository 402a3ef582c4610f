"""Pages of tokens: a person's own, all tokens for administrators, one token, and the text of a new one."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.access import tokens
from catalog.access.roles import ADMINISTRATOR, has_role, user_display_name
from catalog.access.tokens import (
    DEFAULT_TOKEN_DAYS,
    MAX_HOLD_SECONDS,
    MAX_TOKEN_NAME,
    SCOPES,
    SCOPES_DENIED_TO_AGENTS,
    may_hold_scope,
)
from catalog.connections.models import Connection
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, digest
from catalog.errors import Conflict, ParameterError
from catalog.models import ApiToken, LearntWait
from catalog.rest.idempotency import record_done, run_once
from catalog.rest.pagination import PageCursor, PageParameters, paginate
from catalog.ui.labels import SCOPE_SENTENCES, Badge
from catalog.ui.page_forms import CardSelect, CardSelectMultiple, CardText, FormSection, PageForm, render_form
from catalog.ui.requests import PageRequest, parse_number, server_address, sign_in_required
from catalog.ui.token_limits import LIMITS_SECTION, LimitsForm, count_tools_within, limits_in_words

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

PAGE_SIZE = 50
EXPIRES_SOON = timedelta(days=14)
EXPIRY_DAYS = (7, 30, 90, 180, 365)
USUAL_AGENT_SCOPES = ("tools:read", "calls:create", "plans:read", "approvals:read")
MAX_KEY = 64
KIND_LABELS: Mapping[str, Badge] = {
    ApiToken.Kind.AGENT: Badge(_("Agent"), "bot", "idle"),
    ApiToken.Kind.PERSONAL: Badge(_("Personal"), "human", "idle"),
}
STANDINGS: Mapping[str, Badge] = {
    "active": Badge(_("Active"), "ok", "ok"),
    "expires_soon": Badge(_("Expires soon"), "clock", "warn"),
    "ended": Badge(_("Ended"), "stop", "idle"),
}


class TokenSettingsForm(PageForm):
    name = forms.CharField(
        label=_("Name"),
        max_length=MAX_TOKEN_NAME,
        widget=forms.TextInput({"autocomplete": "off"}),
        help_text=_("Where it is used, such as “Claude Code on my laptop”."),
    )
    hold_seconds = forms.IntegerField(
        label=_("Seconds an MCP call waits for a decision"),
        required=False,
        min_value=0,
        max_value=MAX_HOLD_SECONDS,
        widget=forms.NumberInput({"placeholder": _("as long as the client stands")}),
        help_text=_("Then the client receives a pending response and checks again later. Leave empty for the default."),
    )


class NewTokenForm(LimitsForm, TokenSettingsForm):
    """A new token, limited to the scopes that its owner's roles allow."""

    kind = forms.ChoiceField(
        label=_("Kind"),
        choices=[(kind, badge.text) for kind, badge in KIND_LABELS.items()],
        initial=ApiToken.Kind.AGENT,
        widget=CardSelect(
            {
                ApiToken.Kind.AGENT.value: CardText(
                    _("For a program driven by a model. It sees only its own plans and calls, and cannot approve."),
                    "bot",
                ),
                ApiToken.Kind.PERSONAL.value: CardText(
                    _("For your own scripts. It acts as you, within its permissions."), "human"
                ),
            }
        ),
    )
    scopes = forms.MultipleChoiceField(
        label=_("It may"),
        error_messages={"required": _("Choose at least one permission.")},
        widget=CardSelectMultiple,
    )
    days = forms.TypedChoiceField(label=_("Expires after"), coerce=int)
    key = forms.CharField(max_length=MAX_KEY, widget=forms.HiddenInput)
    layout = (
        FormSection("client", _("Client"), _("Say which program uses the token."), ("kind", "name")),
        FormSection("permissions", _("Permissions"), _("Only those that your roles allow are offered."), ("scopes",)),
        LIMITS_SECTION,
        FormSection("lifetime", _("Lifetime"), _("You can revoke the token earlier at any time."), ("days",)),
        FormSection(
            "advanced",
            _("Advanced"),
            _("For MCP clients that give up waiting early."),
            ("hold_seconds",),
            is_advanced=True,
        ),
    )

    def __init__(self, owner: User, data: Any = None) -> None:
        allowed = [scope for scope in SCOPES if may_hold_scope(owner, scope)]
        usual = [scope for scope in USUAL_AGENT_SCOPES if scope in allowed]
        initial = {"scopes": usual, "days": DEFAULT_TOKEN_DAYS, "key": secrets.token_urlsafe(18)}
        super().__init__(data, initial=initial)
        scopes = self.fields["scopes"]
        scopes.choices = [(scope, SCOPE_SENTENCES[scope]) for scope in allowed]  # type: ignore[attr-defined]
        scopes.widget.cards = {
            scope: CardText(scope, kinds=ApiToken.Kind.PERSONAL if scope in SCOPES_DENIED_TO_AGENTS else "")
            for scope in allowed
        }
        lifetimes = [
            (days, ngettext("%(count)d day", "%(count)d days", days) % {"count": days}) for days in EXPIRY_DAYS
        ]
        self.fields["days"].choices = lifetimes  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class TokenRow:
    token: ApiToken

    @property
    def kind(self) -> Badge:
        return KIND_LABELS[self.token.kind]

    @property
    def standing(self) -> Badge:
        token, now = self.token, clock.now()
        if not token.is_live:
            return STANDINGS["ended"]
        return STANDINGS["expires_soon" if token.expires_at - now <= EXPIRES_SOON else "active"]

    @property
    def owner(self) -> str:
        return user_display_name(self.token.user)

    @property
    def scopes(self) -> list[tuple[str, "StrOrPromise", bool]]:
        """Each scope with its description, and whether the owner's roles currently allow it."""
        owner = self.token.user
        return [(scope, SCOPE_SENTENCES.get(scope, ""), may_hold_scope(owner, scope)) for scope in self.token.scopes]

    @property
    def connection(self) -> Connection | None:
        """The connection of the token, if a client made it by signing in."""
        found: Connection | None = getattr(self.token, "connection", None)
        return found

    @property
    def limits(self) -> list[str]:
        return limits_in_words(self.token.limits)

    @property
    def learnt_waits(self) -> Sequence[LearntWait]:
        return list(self.token.learnt_waits.all())


@require_safe
@sign_in_required
def own_tokens(request: PageRequest) -> HttpResponse:
    return _token_list(request, everyone=False)


@require_safe
@sign_in_required
def all_tokens(request: PageRequest) -> HttpResponse:
    """Show all tokens to administrators, or with `?owner=` those of one person. Others are redirected to their own."""
    if not has_role(request.user, ADMINISTRATOR):
        return redirect("own-tokens")
    return _token_list(request, everyone=True)


def _token_list(request: PageRequest, *, everyone: bool) -> HttpResponse:
    owner, before = request.GET.get("owner", "").replace("\x00", "") if everyone else "", request.GET.get("before", "")
    found = tokens.listed_tokens(request.user)
    if not everyone:
        found = found.filter(user=request.user)
    elif owner:
        found = found.filter(user__username=owner)
    number = parse_number(before)
    cursor = PageCursor(back=False, value=number, pk=number) if number is not None else None
    page = paginate(found, order="-id", at=PageParameters(PAGE_SIZE, cursor))
    shown = {
        "section": "tokens",
        "rows": [TokenRow(token) for token in page.rows],
        "everyone": everyone,
        "administers": has_role(request.user, ADMINISTRATOR),
        "owner": owner,
        "older": page.next.pk if page.next else None,
    }
    return render(request, "tokens/tokens.html", shown)


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def new_token(request: PageRequest) -> HttpResponse:
    form = NewTokenForm(request.user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        terms = {name: value for name, value in form.cleaned_data.items() if name not in LIMITS_SECTION.fields}
        with form.refusals_shown():
            return _create(request, terms | {"limits": form.limits})
    count = count_tools_within(form.limits if form.is_bound and form.is_valid() else None)
    return render_form(request, "tokens/new.html", form, section="tokens", tool_count=count)


@require_POST
@sign_in_required
def token_tools(request: PageRequest) -> HttpResponse:
    """Show the number of tools that a token with the limits of an unsent form would see."""
    form = LimitsForm(request.POST)
    count = count_tools_within(form.limits) if form.is_valid() else 0
    return render(request, "tokens/_tool_count.html", {"tool_count": count})


def _create(request: PageRequest, fields: dict[str, Any]) -> HttpResponse:
    """Create a token and show its text. If the form was submitted twice, redirect to the token's page."""
    key = fields.pop("key")
    texts: list[str] = []

    def create() -> str:
        with transaction.atomic():
            token, text = tokens.issue_token(user=request.user, **fields)
            record_done(str(token.pk))
        texts.append(text)
        return str(token.pk)

    number = run_once(f"user:{request.user.pk}", f"token:{key}", digest(canonical_text(fields)), create)
    if not texts:
        messages.info(
            request, gettext("This token was already created. Its text was displayed then and is not stored.")
        )
        return redirect("token", number)
    headers = {"Authorization": f"Bearer {texts[0]}"}
    server = {"type": "http", "url": f"{server_address(request)}/mcp", "headers": headers}
    shown = {
        "section": "tokens",
        "row": TokenRow(tokens.token_for(request.user, int(number))),
        "text": texts[0],
        "mcp_config": json.dumps({"mcpServers": {"toolgate": server}}),
    }
    return render(request, "tokens/created.html", shown, status=201)


@require_safe
@sign_in_required
def token_detail(request: PageRequest, number: int) -> HttpResponse:
    return _render_detail(request, _token_or_404(request, number))


@require_POST
@sign_in_required
def change_token(request: PageRequest, number: int) -> HttpResponse:
    token, form = _token_or_404(request, number), TokenSettingsForm(request.POST)
    if not form.is_valid():
        return _render_detail(request, token, form, status=422)
    try:
        tokens.change_token(token, form.cleaned_data, by=request.user)
        messages.success(request, gettext("Saved."))
    except ParameterError as error:
        form.add_problems(error)
        return _render_detail(request, token, form, status=422)
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("token", number)


@require_POST
@sign_in_required
def change_limits(request: PageRequest, number: int) -> HttpResponse:
    token = _token_or_404(request, number)
    form = LimitsForm(request.POST, stored=token.limits)
    if not form.is_valid():
        return _render_detail(request, token, limits_form=form, status=422)
    try:
        tokens.change_token(token, {"limits": form.limits}, by=request.user)
        messages.success(request, gettext("Saved."))
    except ParameterError as error:
        form.add_problems(error)
        return _render_detail(request, token, limits_form=form, status=422)
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("token", number)


@require_POST
@sign_in_required
def reset_waits(request: PageRequest, number: int) -> HttpResponse:
    tokens.change_token(_token_or_404(request, number), {"learnt_waits": []}, by=request.user)
    messages.success(request, gettext("Learnt waits reset. The token's clients get the default waits again."))
    return redirect("token", number)


@require_POST
@sign_in_required
def revoke_token(request: PageRequest, number: int) -> HttpResponse:
    token = _token_or_404(request, number)
    try:
        tokens.revoke_token(token, by=request.user)
        messages.success(request, gettext("Revoked: %(name)s.") % {"name": token.name})
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("token", number)


def _render_detail(
    request: PageRequest,
    token: ApiToken,
    form: TokenSettingsForm | None = None,
    limits_form: LimitsForm | None = None,
    status: int = 200,
) -> HttpResponse:
    stored = {"name": token.name, "hold_seconds": token.hold_seconds}
    shown = {
        "section": "tokens",
        "row": TokenRow(token),
        "form": form or TokenSettingsForm(initial=stored),
        "limits_form": limits_form or LimitsForm(stored=token.limits),
        "tool_count": count_tools_within(token.limits),
        "is_own": token.user_id == request.user.pk,
    }
    return render(request, "tokens/token.html", shown, status=status)


def _token_or_404(request: PageRequest, number: int) -> ApiToken:
    try:
        return tokens.token_for(request.user, number)
    except ApiToken.DoesNotExist:
        raise Http404 from None
