"""Middleware of accounts: the time at which sessions were last used, and the second factor that a role requires."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse

from catalog.access.second_factors import lacks_required_factor
from catalog.access.sessions import note_activity
from catalog.rest.problems import SAFE_METHODS
from catalog.rest.program_paths import is_program_path

SET_UP_ROUTES = frozenset(
    {
        *("sign-in", "account_login", "sign-in-code", "mfa_authenticate", "sign-in-passkey", "sso", "sso-callback"),
        *("sign-out", "help", "help-guide", "recovery-codes"),
        *("security", "authenticator-app", "passkey-new", "security-password"),
    }
)
"""Names of the routes that are open to someone whose role requires a second factor that they have not set up."""
WAY_KEY = "way_after_set_up"
MAX_WAY = 8192


class SessionActivityMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on, then store that its session was used if it has been a while."""
        response = self._get_response(request)
        note_activity(request)
        return response


class SecondFactorMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on; only `process_view`, which knows the route, can decide to refuse it."""
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        """Lead to the page *Security*, or refuse, where a factor is missing. REST checks this in its authentication.

        Endpoints of OAuth authenticate clients, and ignore a session.
        """
        if not settings.TOOLGATE_SECOND_FACTOR_ROLES or is_program_path(request.path_info):
            return None
        match = request.resolver_match
        if match is None or settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return None
        if not lacks_required_factor(request.user):
            return None
        request.lacks_factor = True  # type: ignore[attr-defined] # the frame leaves out what would not open
        if match.view_name in SET_UP_ROUTES:
            return None
        if request.method in SAFE_METHODS and "HX-Request" not in request.headers:
            if request.headers.get("Sec-Fetch-Dest", "document") == "document":
                remember_way(request, request.get_full_path())
            return redirect("security")
        return refused(request)


def remember_way(request: HttpRequest, address: str) -> None:
    """Keep the address of a page, so that whoever sets up a factor gets there: a client's sign-in, for example."""
    if len(address) <= MAX_WAY:
        request.session[WAY_KEY] = address


def take_way(request: HttpRequest) -> str:
    """Return the address of the page for which a factor is set up, once; then, and without one, that of *Security*."""
    return str(request.session.pop(WAY_KEY, "") or reverse("security"))


def refused(request: HttpRequest) -> HttpResponse:
    return render(request, "accounts/factor_required.html", status=403)
