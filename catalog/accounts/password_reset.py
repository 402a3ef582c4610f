"""A new password by mail. The answer is the same whether an account has the address or not."""

from typing import Any
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib.auth.forms import PasswordResetForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.contrib.auth.views import PasswordResetConfirmView
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from catalog.access.people import attribute_changes_to
from catalog.access.sessions import end_sessions
from catalog.access.sign_in import MAX_PASSWORD, client_address, network_of
from catalog.accounts.changes import record_change
from catalog.accounts.mails import count_link, notify_of_change, send_soon
from catalog.core import clock
from catalog.core.rate_limits import RateLimit, RateLimitKey, acquire_use
from catalog.errors import RateLimited
from catalog.ui.page_forms import PageForm
from catalog.ui.requests import server_address
from catalog.ui.toasts import announce

ADDRESS_RATES = (RateLimit(20, "h"),)
"""Requests from one client address."""


class MailAddressForm(PageForm, PasswordResetForm):
    email = forms.EmailField(
        label=_("Mail address"), max_length=254, widget=forms.EmailInput({"autocomplete": "email", "autofocus": True})
    )


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def reset_password(request: HttpRequest) -> HttpResponse:
    """Send a link to the accounts with an address. Without a mail server, the page says to ask an administrator."""
    if not settings.TOOLGATE_SENDS_MAIL:
        return render(request, "accounts/reset.html", {"no_mail": True})
    form = MailAddressForm(request.POST if request.method == "POST" else None)
    if not form.is_bound or not form.is_valid():
        return render(request, "accounts/reset.html", {"form": form}, status=422 if form.errors else 200)
    owner = f"address:{network_of(client_address(request))}"[:64]
    try:
        acquire_use(RateLimitKey("password reset", ADDRESS_RATES, owner), now=clock.now())
    except RateLimited as refusal:
        response = render(request, "accounts/reset.html", {"form": form, "throttled": True}, status=429)
        response["Retry-After"] = str(refusal.retry_after)
        return response
    _send_links(request, form)
    return render(request, "accounts/reset.html", {"sent_to": form.cleaned_data["email"]})


def _send_links(request: HttpRequest, form: MailAddressForm) -> None:
    email = form.cleaned_data["email"]
    try:
        count_link(email)
    except RateLimited:
        return
    for user in form.get_users(email):
        page = reverse("reset-confirm", args=[urlsafe_base64_encode(force_bytes(user.pk))])
        send_soon(
            user.email,
            gettext("Reset your Toolgate password"),
            gettext("Open this link within an hour to set a new password for %(username)s:")
            % {"username": user.get_username()},
            f"{server_address(request)}{page}?key={default_token_generator.make_token(user)}",
            gettext("If you did not ask for it, ignore this mail. Your password stays as it is."),
        )


class ChosenPasswordForm(PageForm, SetPasswordForm):  # type: ignore[type-arg] # of User
    def __init__(self, user: User, data: Any = None, **options: Any) -> None:
        super().__init__(user, data, **options)
        for name in self.fields:
            self.fields[name].max_length = MAX_PASSWORD  # type: ignore[attr-defined] # both are CharFields
        self.fields["new_password1"].help_text = _("At least 12 characters.")
        self.fields["new_password2"].label, self.fields["new_password2"].help_text = _("The same password again"), ""


class ResetConfirmView(PasswordResetConfirmView):
    """The page behind the link of a mail. All sessions end, and the second factor is asked for at the next sign-in.

    The key is in the query, since logs contain paths. Once it is in the session, the address has none.
    """

    template_name = "accounts/reset_confirm.html"
    form_class = ChosenPasswordForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, token=request.GET.get("key", self.reset_url_token), **kwargs)

    def get_success_url(self) -> str:
        username = self.user.get_username()  # type: ignore[union-attr] # a valid form belongs to somebody
        return f"{reverse('sign-in')}?{urlencode({'username': username})}"

    def form_valid(self, form: ChosenPasswordForm) -> HttpResponse:  # type: ignore[override] # its own form class
        with transaction.atomic(), attribute_changes_to(form.user):
            response = super().form_valid(form)
            record_change("account.password_reset", form.user)
            end_sessions(form.user, keep=None)
        notify_of_change(form.user, gettext("Your password was reset by a link in a mail."))
        announce(self.request, gettext("Password changed. Sign in with it."))
        return response
