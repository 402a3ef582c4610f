"""Sign-in: pages for the password, for the second factor, and for a passkey that stands for both."""

import json
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import clear_authentication_records, perform_password_login
from allauth.account.internal.stagekit import clear_login
from allauth.account.models import Login
from allauth.account.stages import LoginStageController
from allauth.account.utils import get_next_redirect_url
from allauth.mfa.base.internal.flows import post_authentication
from allauth.mfa.models import Authenticator
from allauth.mfa.stages import AuthenticateStage
from allauth.mfa.webauthn.internal import auth as webauthn
from allauth.mfa.webauthn.internal import flows as webauthn_flows
from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from catalog.access.passkeys import passkey_host_fault, passkey_of_assertion
from catalog.access.people import MAX_USERNAME
from catalog.access.second_factors import use_code
from catalog.access.sign_in import MAX_PASSWORD, check_passkey, check_second_factor
from catalog.errors import SignInThrottled
from catalog.ui.page_forms import PageForm
from toolgate.places import COMMAND

HASH_STATE = "session_hash"
"""Key in the state of a pending sign-in: the session hash of the password that was right."""


class AttemptForm(PageForm):
    """A form whose attempts are counted; `retry_after` is set if there were too many."""

    retry_after: int | None = None

    def __init__(self, *args: Any, request: HttpRequest, **options: Any) -> None:
        super().__init__(*args, **options)
        self.request = request

    def refuse(self, throttled: SignInThrottled) -> ValidationError:
        self.retry_after = throttled.retry_after
        return ValidationError(throttled.message, code="throttled")


class SignInForm(AttemptForm):
    """Username and password. `user` is set if both are right."""

    username = forms.CharField(label=_("Username"), max_length=MAX_USERNAME)
    password = forms.CharField(label=_("Password"), max_length=MAX_PASSWORD, strip=False, widget=forms.PasswordInput)
    user: User | None = None

    def clean(self) -> dict[str, Any]:
        if self.errors:
            return self.cleaned_data
        try:
            self.user = get_adapter().authenticate(self.request, **self.cleaned_data)
        except SignInThrottled as refusal:
            raise self.refuse(refusal) from None
        if self.user is None:
            raise ValidationError(_("Username or password is wrong. Both are case-sensitive."), code="invalid_login")
        return self.cleaned_data


class CodeForm(AttemptForm):
    """A code of an authenticator app, or a recovery code; or the assertion of a passkey. `factor` is set if right."""

    code = forms.CharField(
        label=_("Code"),
        max_length=32,
        required=False,
        widget=forms.TextInput(
            {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false", "autofocus": True}
        ),
    )
    credential = forms.CharField(required=False, widget=forms.HiddenInput)
    factor: Authenticator | None = None

    def __init__(self, *args: Any, user: User, **options: Any) -> None:
        super().__init__(*args, **options)
        self.user = user

    def clean(self) -> dict[str, Any]:
        code, credential = self.cleaned_data.get("code", ""), self.cleaned_data.get("credential", "")
        if self.errors or not (code or credential):
            raise ValidationError(_("Enter a code."), code="required")

        def check() -> Authenticator | None:
            return passkey_of_assertion(self.user, credential) if credential else use_code(self.user, code)

        try:
            self.factor = check_second_factor(self.request, username=self.user.get_username(), check=check)
        except SignInThrottled as refusal:
            raise self.refuse(refusal) from None
        if self.factor is None:
            wrong = _("This passkey was not accepted.") if credential else _("This code is wrong or was used before.")
            raise ValidationError(wrong, code="wrong")
        return self.cleaned_data


class PasskeyForm(AttemptForm):
    """The assertion of a passkey that names its owner. `factor` is set if it is right."""

    credential = forms.CharField(widget=forms.HiddenInput)
    factor: Authenticator | None = None

    def clean(self) -> dict[str, Any]:
        credential = self.cleaned_data.get("credential", "")
        try:
            self.factor = check_passkey(self.request, check=lambda: passkey_of_assertion(None, credential))
        except SignInThrottled as refusal:
            raise self.refuse(refusal) from None
        if self.factor is None:
            raise ValidationError(_("This passkey was not accepted. Sign in with your password."), code="wrong")
        return self.cleaned_data


def render_attempt(request: HttpRequest, template: str, form: AttemptForm, **shown: Any) -> HttpResponse:
    """Render a page with its form; the status is 429 if its attempt was refused, since there were too many."""
    response = render(request, template, {"form": form, **shown})
    if form.retry_after is not None:
        response.status_code, response["Retry-After"] = 429, str(form.retry_after)
    return response


def render_sign_in(request: HttpRequest, form: AttemptForm) -> HttpResponse:
    shown = {
        "next": get_next_redirect_url(request) or "",
        "again": "again" in request.GET,
        "sso_name": settings.TOOLGATE_SSO_NAME if settings.TOOLGATE_SSO_ISSUER else "",
        "can_use_passkey": not passkey_host_fault(request),
        "is_empty": not User.objects.exists(),
        "command": COMMAND,
    }
    return render_attempt(request, "registration/sign_in.html", form, **shown)


@sensitive_post_parameters("password")
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the sign-in page, with the `username` of the query, or of who is signed in, filled in.

    Redirects signed-in users, unless `again` is in the query: a policy may require that.
    """
    address = get_next_redirect_url(request)
    if request.user.is_authenticated and "again" not in request.GET:
        return redirect(address or settings.LOGIN_REDIRECT_URL)
    form = SignInForm(
        request.POST if request.method == "POST" else None,
        request=request,
        initial={"username": request.GET.get("username", request.user.get_username())[:MAX_USERNAME]},
    )
    if request.method == "POST" and form.is_valid() and form.user is not None:
        # A factor of an earlier sign-in in this session must not stand in for the second one of this sign-in.
        clear_authentication_records(request)
        state = {HASH_STATE: form.user.get_session_auth_hash()}
        login = Login(user=form.user, redirect_url=address, state=state)
        response: HttpResponse = perform_password_login(request, {"username": form.cleaned_data["username"]}, login)
        return response
    return render_sign_in(request, form)


@sensitive_post_parameters("code")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in_code(request: HttpRequest) -> HttpResponse:
    """Ask for the second factor of a sign-in whose password was right; without one, begin again."""
    stage = LoginStageController.enter(request, AuthenticateStage.key)
    user: User | None = stage.login.user if stage is not None else None
    if stage is None or user is None or not _may_go_on(user, stage.login):
        clear_login(request)
        return redirect("sign-in")
    form = CodeForm(request.POST if request.method == "POST" else None, request=request, user=user)
    if request.method == "POST" and form.is_valid():
        post_authentication(request, form.factor)
        response: HttpResponse = stage.exit()
        return response
    types = set(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    shown: dict[str, Any] = {"has_app": Authenticator.Type.TOTP in types, "passkey_options": None}
    if Authenticator.Type.WEBAUTHN in types and not passkey_host_fault(request):
        shown["passkey_options"] = json.dumps(webauthn.begin_authentication(user))
    return render_attempt(request, "registration/code.html", form, **shown)


def _may_go_on(user: User, login: Login) -> bool:
    """Return False if the account was disabled, or its password changed, after the password was entered."""
    known = login.state.get(HASH_STATE)
    return user.is_active and (known is None or constant_time_compare(known, user.get_session_auth_hash()))


@never_cache
@require_http_methods(["GET", "POST"])
def sign_in_with_passkey(request: HttpRequest) -> HttpResponse:
    """Answer with a challenge for any passkey of this site, or sign in the owner of the one that signed it."""
    if request.method == "GET":
        return JsonResponse(webauthn.begin_authentication())
    form = PasskeyForm(request.POST, request=request)
    if form.is_valid() and form.factor is not None:
        clear_authentication_records(request)
        login = Login(user=form.factor.user, redirect_url=get_next_redirect_url(request))
        response: HttpResponse = webauthn_flows.perform_passwordless_login(request, form.factor, login)
        return response
    return render_sign_in(request, form)
