"""Sign-in: the page for the password."""

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import clear_authentication_records, perform_password_login
from allauth.account.models import Login
from allauth.account.utils import get_next_redirect_url
from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from catalog.errors import SignInThrottled
from catalog.ui.page_forms import PageForm

MAX_PASSWORD = 4096
"""Longest password that is hashed."""


class SignInForm(PageForm):
    """Username and password. `user` is set if both are right, `retry_after` if there were too many attempts."""

    username = forms.CharField(label=_("Username"), max_length=150)
    password = forms.CharField(label=_("Password"), max_length=MAX_PASSWORD, strip=False, widget=forms.PasswordInput)
    user: User | None = None
    retry_after: int | None = None

    def __init__(self, *args: Any, request: HttpRequest, **options: Any) -> None:
        super().__init__(*args, **options)
        self.request = request

    def clean(self) -> dict[str, Any]:
        if self.errors:
            return self.cleaned_data
        try:
            self.user = get_adapter().authenticate(self.request, **self.cleaned_data)
        except SignInThrottled as refusal:
            self.retry_after = refusal.retry_after
            raise ValidationError(refusal.message, code="throttled") from None
        if self.user is None:
            raise ValidationError(_("Username or password is wrong. Both are case-sensitive."), code="invalid_login")
        return self.cleaned_data


def render_sign_in(request: HttpRequest, template: str, form: SignInForm, **shown: Any) -> HttpResponse:
    """Render a page with its form; the status is 429 if its attempt was refused, since there were too many."""
    response = render(request, template, {"form": form, **shown})
    if form.retry_after is not None:
        response.status_code, response["Retry-After"] = 429, str(form.retry_after)
    return response


@sensitive_post_parameters("password")
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the sign-in page. Redirects signed-in users, unless `again` is in the query: a policy may require that."""
    address = get_next_redirect_url(request)
    if request.user.is_authenticated and "again" not in request.GET:
        return redirect(address or settings.LOGIN_REDIRECT_URL)
    form = SignInForm(request.POST if request.method == "POST" else None, request=request)
    if request.method == "POST" and form.is_valid():
        # A factor of an earlier sign-in in this session must not stand in for the second one of this sign-in.
        clear_authentication_records(request)
        login = Login(user=form.user, redirect_url=address)
        response: HttpResponse = perform_password_login(request, {"username": form.cleaned_data["username"]}, login)
        return response
    return render_sign_in(request, "registration/sign_in.html", form, next=address or "")
