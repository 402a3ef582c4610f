"""The page Security and its forms: password, mail address, authenticator app, passkeys, recovery codes."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from allauth.mfa import app_settings as mfa_settings
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal import flows as recovery_flows
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.totp.internal import flows as totp_flows
from allauth.mfa.webauthn.internal import auth as webauthn
from allauth.mfa.webauthn.internal import flows as webauthn_flows
from django import forms
from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.core import signing
from django.db import IntegrityError, transaction
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.access.passkeys import MAX_PASSKEY_NAME, MAX_PASSKEYS, passkey_host_fault, registered_credential
from catalog.access.people import MAX_EMAIL, attribute_changes_to, check_columns, people_locked
from catalog.access.roles import has_fresh_sign_in
from catalog.access.second_factors import (
    SIGN_IN_FACTORS,
    can_remove_factor,
    lacks_required_factor,
    matching_step,
    remember_step,
    requires_second_factor,
)
from catalog.access.sessions import end_sessions, rename_session
from catalog.access.sign_in import MAX_PASSWORD
from catalog.accounts.changes import fresh_sign_in_required, record_change
from catalog.accounts.mails import count_link, notify_of_change, send_soon
from catalog.accounts.middleware import remember_way, take_way
from catalog.core import clock
from catalog.core.rate_limits import RateLimit, RateLimitKey, acquire_use
from catalog.errors import ParameterError, RateLimited, field_error
from catalog.ui.page_forms import PageForm, render_form
from catalog.ui.requests import LOOPBACK, PageRequest, own_address, server_address, sign_in_required
from catalog.ui.toasts import announce

MAIL_SALT = "toolgate.accounts.mail"
MAIL_LINK_SECONDS = 24 * 3600
MAIL_LINK_RATES = (RateLimit(20, "h"),)
"""Links to new addresses that one person may have sent."""


@dataclass(frozen=True, slots=True)
class Passkey:
    row: Authenticator
    name: str
    can_remove: bool


@dataclass(frozen=True, slots=True)
class Factors:
    """A person's second factors as the page shows them; `codes_left` is None without recovery codes."""

    app: Authenticator | None
    can_remove_app: bool
    passkeys: Sequence[Passkey]
    codes_left: int | None

    @property
    def is_on(self) -> bool:
        return self.app is not None or bool(self.passkeys)


def factors_of(user: User) -> Factors:
    rows = list(Authenticator.objects.filter(user=user).order_by("pk"))
    is_free = not requires_second_factor(user) or sum(row.type in SIGN_IN_FACTORS for row in rows) > 1
    app = next((row for row in rows if row.type == Authenticator.Type.TOTP), None)
    codes = next((row for row in rows if row.type == Authenticator.Type.RECOVERY_CODES), None)
    passkeys = [Passkey(row, row.wrap().name, is_free) for row in rows if row.type == Authenticator.Type.WEBAUTHN]
    left = mfa_settings.RECOVERY_CODE_COUNT - codes.data["used_mask"].bit_count() if codes is not None else None
    return Factors(app, is_free, passkeys, left)


@dataclass(frozen=True, slots=True)
class SsoLink:
    name: str
    is_linked: bool


def sso_link_of(user: User) -> SsoLink | None:
    """Return whether the account is linked with the provider of single sign-on; None without one."""
    if not settings.TOOLGATE_SSO_ISSUER:
        return None
    from catalog.accounts.sso import is_linked  # noqa: PLC0415 (its models are not installed without a provider)

    return SsoLink(settings.TOOLGATE_SSO_NAME, is_linked(user))


@require_safe
@sign_in_required
def security(request: PageRequest) -> HttpResponse:
    """Show how the person signs in. Someone who must set up a factor is told so and led on from here."""
    fault = passkey_host_fault(request)
    local = f"{request.scheme}://localhost:{request.get_port()}{request.path}"
    shown = {
        "section": "security",
        "is_fresh": has_fresh_sign_in(request.user),
        "factors": factors_of(request.user),
        "must_set_up": lacks_required_factor(request.user),
        "is_required": requires_second_factor(request.user),
        "sso": sso_link_of(request.user),
        "passkey_host_fault": fault,
        "local_address": local if fault in LOOPBACK else "",
        "max_passkeys": MAX_PASSKEYS,
    }
    return render(request, "accounts/security.html", shown)


class NewPasswordForm(PageForm, PasswordChangeForm):
    """The current password, and a new one twice. Other sessions end with the old password."""

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(user, data)
        for name in self.fields:
            self.fields[name].max_length = MAX_PASSWORD  # type: ignore[attr-defined] # all are CharFields
        self.fields["new_password1"].help_text = _("At least 12 characters.")
        self.fields["new_password2"].label, self.fields["new_password2"].help_text = _("The same password again"), ""
        self.fields["old_password"].label = _("Current password")


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@fresh_sign_in_required
def change_password(request: PageRequest) -> HttpResponse:
    if not request.user.has_usable_password():
        raise Http404
    form = NewPasswordForm(request.user, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        with transaction.atomic(), attribute_changes_to(request.user):
            form.save()
            record_change("account.password_changed", request.user)
            key = request.session.session_key
            update_session_auth_hash(request, request.user)
            rename_session(key, request.session.session_key)
            end_sessions(request.user, keep=request)
        notify_of_change(request.user, gettext("Your password was changed."))
        announce(request, gettext("Password changed."))
        return redirect("security")
    return render_form(request, "accounts/password.html", form, section="security")


class MailForm(PageForm):
    email = forms.EmailField(
        label=_("Mail address"), max_length=MAX_EMAIL, widget=forms.EmailInput({"autocomplete": "email"})
    )


@require_http_methods(["GET", "HEAD", "POST"])
@fresh_sign_in_required
def change_mail(request: PageRequest) -> HttpResponse:
    """Change the mail address: by a link that is sent to the new one, or at once where no mail server is set up."""
    initial = {"email": request.user.email}
    form = MailForm(request.POST if request.method == "POST" else None, initial=initial)
    if form.is_bound and form.is_valid():
        email = form.cleaned_data["email"]
        with form.refusals_shown():
            if not settings.TOOLGATE_SENDS_MAIL:
                _set_mail(request.user, request.user.email, email)
                announce(request, gettext("Mail address changed."))
            elif email != request.user.email:
                _send_mail_link(request, email)
                announce(request, gettext("Open the link in the mail that was sent to the new address."))
            return redirect("security")
    return render_form(request, "accounts/mail.html", form, section="security")


def _send_mail_link(request: PageRequest, email: str) -> None:
    """Send the link. Raises ParameterError for somebody else's address, and after too many links."""
    check_columns({"email": email}, request.user)
    try:
        acquire_use(RateLimitKey("links", MAIL_LINK_RATES, f"user:{request.user.pk}"), now=clock.now())
        count_link(email)
    except RateLimited:
        message = gettext("Several links were sent already. Open the newest one, or try again in an hour.")
        raise field_error("email", "rate_limited", message) from None
    key = signing.dumps([request.user.pk, request.user.email, email], salt=MAIL_SALT)
    address = f"{server_address(request)}{reverse('security-mail-confirm')}?key={key}"
    send_soon(
        email,
        gettext("Confirm your mail address for Toolgate"),
        gettext("Open this link within a day to use this address for your account in Toolgate:"),
        address,
        gettext("If you do not expect this mail, ignore it."),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def confirm_mail(request: PageRequest) -> HttpResponse:
    """Confirm the address to which the link was sent. Opening the page changes nothing: mail programs open links."""
    key = request.GET.get("key")
    if not key:
        return redirect("security-mail")
    try:
        pk, old, new = signing.loads(key, salt=MAIL_SALT, max_age=MAIL_LINK_SECONDS)
    except signing.BadSignature:
        return render(request, "accounts/mail_confirm.html", {"section": "security"}, status=410)
    if pk != request.user.pk or old != request.user.email:
        return render(request, "accounts/mail_confirm.html", {"section": "security"}, status=410)
    if request.method == "POST":
        try:
            is_changed = _set_mail(request.user, old, new)
        except ParameterError as error:
            announce(request, error.message)
            return redirect("security")
        if is_changed:
            announce(request, gettext("Mail address changed."))
            return redirect("security")
    return render(request, "accounts/mail_confirm.html", {"section": "security", "email": new})


def _set_mail(user: User, old: str, new: str) -> bool:
    """Change the address from `old` to `new`. Return False if it was changed meanwhile.

    Raises ParameterError if it is somebody else's.
    """
    with people_locked(user):
        check_columns({"email": new}, user)
        if old == new or not User.objects.filter(pk=user.pk, email=old).update(email=new):
            return old == new
        record_change("account.mail_changed", user)
    notify_of_change(user, gettext("The mail address of your account was changed."))  # to the old address
    user.email = new
    return True


class AppForm(PageForm):
    """The first code of an authenticator app. `step` is set if it is right."""

    code = forms.CharField(
        label=_("Code that the app shows"),
        max_length=16,
        widget=forms.TextInput({"autocomplete": "one-time-code", "inputmode": "numeric", "spellcheck": "false"}),
    )
    step: int | None = None

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        self.secret: str = totp.get_totp_secret(regenerate=not self.is_bound)

    def clean_code(self) -> str:
        code = str(self.cleaned_data["code"])
        self.step = matching_step(self.secret, code)
        if self.step is None:
            raise forms.ValidationError(_("This code is wrong. Check the clock of the device that runs the app."))
        return code


@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
@fresh_sign_in_required
def set_up_app(request: PageRequest) -> HttpResponse:
    """Set up an authenticator app. The first code proves that it has the key, and cannot be used again."""
    if factors_of(request.user).app is not None:
        return redirect("security")
    form = AppForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid() and form.step is not None:
        try:
            with transaction.atomic():
                authenticator, codes = totp_flows.activate_totp(request, form)
                remember_step(authenticator, form.step)
                record_change("account.second_factor_added", request.user, factor=Authenticator.Type.TOTP.value)
        except IntegrityError:  # set up in another tab
            return redirect("security")
        notify_of_change(request.user, gettext("An authenticator app was set up as your second factor."))
        announce(request, gettext("Authenticator app set up."))
        return redirect("recovery-codes" if codes is not None else "security")
    adapter = get_adapter()
    picture = adapter.build_totp_svg(adapter.build_totp_url(request.user, form.secret))
    shown = {
        "section": "security",
        "picture": f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}",
        "secret": " ".join(form.secret[start : start + 4] for start in range(0, len(form.secret), 4)),
    }
    return render_form(request, "accounts/app.html", form, **shown)


@require_POST
@fresh_sign_in_required
def remove_app(request: PageRequest) -> HttpResponse:
    app = get_object_or_404(Authenticator, user=request.user, type=Authenticator.Type.TOTP)
    if not can_remove_factor(app):
        announce(request, gettext("Your role requires a second factor. Add another one first."))
        return redirect("security")
    with transaction.atomic():
        totp_flows.deactivate_totp(request, app)
        record_change("account.second_factor_removed", request.user, factor=Authenticator.Type.TOTP.value)
    notify_of_change(request.user, gettext("Your authenticator app was removed as second factor."))
    announce(request, gettext("Authenticator app removed."))
    return redirect("security")


class PasskeyForm(PageForm):
    """A name, and the credential that the browser made. `registered` is set if the credential is accepted."""

    name = forms.CharField(
        label=_("Name"),
        max_length=MAX_PASSKEY_NAME,
        widget=forms.TextInput({"autocomplete": "off"}),
        help_text=_("The device or password manager that keeps it, such as “Phone”."),
    )
    credential = forms.CharField(required=False, widget=forms.HiddenInput)
    registered: dict[str, Any] | None = None

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            self.registered = registered_credential(self.cleaned_data["credential"])
            if self.registered is None:
                raise forms.ValidationError(_("The browser made no passkey. Try again."), code="credential")
        return self.cleaned_data


@require_http_methods(["GET", "HEAD", "POST"])
@fresh_sign_in_required
def add_passkey(request: PageRequest) -> HttpResponse:
    """Add a passkey. It must verify its person, so that it can stand for the password too."""
    if passkey_host_fault(request) or len(factors_of(request.user).passkeys) >= MAX_PASSKEYS:
        return redirect("security")
    form = PasskeyForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid() and form.registered is not None:
        with transaction.atomic():
            _key, codes = webauthn_flows.add_authenticator(request, form.cleaned_data["name"], form.registered)
            record_change("account.passkey_added", request.user, name=form.cleaned_data["name"])
        notify_of_change(request.user, gettext("A passkey was added to your account."))
        announce(request, gettext("Passkey added."))
        return redirect("recovery-codes" if codes is not None else take_way(request))
    if address := own_address(request.GET.get("next", ""), ""):
        remember_way(request, address)
    options = json.dumps(webauthn.begin_registration(request.user, passwordless=True))
    return render_form(request, "accounts/passkey.html", form, section="security", options=options)


@require_POST
@fresh_sign_in_required
def remove_passkey(request: PageRequest, number: int) -> HttpResponse:
    passkey = get_object_or_404(Authenticator, pk=number, user=request.user, type=Authenticator.Type.WEBAUTHN)
    if not can_remove_factor(passkey):
        announce(request, gettext("Your role requires a second factor. Add another one first."))
        return redirect("security")
    with transaction.atomic():
        record_change("account.passkey_removed", request.user, name=passkey.wrap().name)
        webauthn_flows.remove_authenticator(request, passkey)
    notify_of_change(request.user, gettext("A passkey was removed from your account."))
    announce(request, gettext("Passkey removed."))
    return redirect("security")


@require_http_methods(["GET", "HEAD", "POST"])
@fresh_sign_in_required
def recovery_codes(request: PageRequest) -> HttpResponse:
    """Show new recovery codes once; a POST makes new ones, which end the old."""
    if request.method == "POST":
        if not recovery_flows.can_generate_recovery_codes(request.user):
            return redirect("security")
        with transaction.atomic():
            recovery_flows.generate_recovery_codes(request)
            record_change("account.recovery_codes_made", request.user)
        notify_of_change(request.user, gettext("New recovery codes were made for your account."))
        return redirect("recovery-codes")
    codes, can_view = recovery_flows.view_recovery_codes(request)
    if codes is None:
        return redirect("security")
    shown = {
        "section": "security",
        "codes": codes.get_unused_codes() if can_view else [],
        "way_on": take_way(request),
    }
    return render(request, "accounts/recovery_codes.html", shown)
