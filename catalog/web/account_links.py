"""The page behind an invitation or a reset: a person sets a password. No sign-in, only the key in the address."""

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from catalog.access import people
from catalog.access.people import MAX_NAME, NAMES
from catalog.access.roles import user_display_name
from catalog.access.sign_in import MAX_PASSWORD, client_address, network_of
from catalog.core import clock
from catalog.core.rate_limits import RateLimit, RateLimitKey, acquire_use
from catalog.errors import RateLimited
from catalog.models import AccountLink
from catalog.ui.page_forms import PageForm

MAX_KEY = 100
UNKNOWN_KEYS = (RateLimit(20, "min"), RateLimit(200, "h"))
"""Unknown keys that one address may try."""


class SetPasswordForm(PageForm):
    """A new password, typed twice; an invitation asks for the name, too."""

    first_name = forms.CharField(
        label=gettext_lazy("First name"),
        required=False,
        max_length=MAX_NAME,
        widget=forms.TextInput({"autocomplete": "given-name", "dir": "auto"}),
    )
    last_name = forms.CharField(
        label=gettext_lazy("Last name"),
        required=False,
        max_length=MAX_NAME,
        widget=forms.TextInput({"autocomplete": "family-name", "dir": "auto"}),
    )
    password = forms.CharField(
        label=gettext_lazy("Password"),
        strip=False,
        max_length=MAX_PASSWORD,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        help_text=gettext_lazy("At least 12 characters."),
    )
    password_again = forms.CharField(
        label=gettext_lazy("The same password again"),
        strip=False,
        max_length=MAX_PASSWORD,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
    )

    def __init__(self, link: AccountLink, data: Any = None) -> None:
        super().__init__(data, initial={name: getattr(link.person, name) for name in NAMES})
        if link.kind != AccountLink.Kind.INVITATION:
            for name in NAMES:
                del self.fields[name]

    def clean_password_again(self) -> str:
        again = str(self.cleaned_data["password_again"])
        if again != self.cleaned_data.get("password", again):
            raise forms.ValidationError(gettext("The two passwords differ."))
        return again


@sensitive_post_parameters("key", "password", "password_again")
@require_http_methods(["GET", "HEAD", "POST"])
def welcome(request: HttpRequest) -> HttpResponse:
    """Show the form of a link; a POST sets the password and shows the way to the sign-in page.

    Opening the page changes nothing, since mail programs open links too.
    """
    key = (request.POST if request.method == "POST" else request.GET).get("key", "")[:MAX_KEY]
    if not key:
        return redirect("sign-in")
    link = people.find_link(key)
    if link is None:
        return _refuse_unknown_key(request)
    if not people.is_usable(link):
        return _render(request, {"link": link}, status=410)
    form = SetPasswordForm(link, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        with form.refusals_shown():
            names = {name: text for name, text in form.cleaned_data.items() if name in NAMES}
            people.use_link(link, password=form.cleaned_data["password"], **names)
            return _render(request, {"done": True, "link": link}, status=200)
    shown = {"link": link, "form": form, "key": key, "made_by": user_display_name(link.made_by)}
    return _render(request, shown, status=422 if form.errors else 200)


def _refuse_unknown_key(request: HttpRequest) -> HttpResponse:
    """Answer 404, or 429 after too many unknown keys from the same address."""
    owner = f"address:{network_of(client_address(request))}"[:64]
    try:
        acquire_use(RateLimitKey("account links", UNKNOWN_KEYS, owner), now=clock.now())
    except RateLimited as error:
        response = _render(request, {"throttled": True}, status=429)
        response["Retry-After"] = str(error.retry_after)
        return response
    return _render(request, {}, status=404)


def _render(request: HttpRequest, shown: dict[str, Any], status: int) -> HttpResponse:
    response = render(request, "people/welcome.html", shown, status=status)
    add_never_cache_headers(response)
    return response
