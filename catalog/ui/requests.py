"""Request helpers of all pages: sign-in guard, htmx fragments, rejected forms. Knows no page."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django_htmx.http import HttpResponseClientRedirect, push_url, replace_url, trigger_client_event
from django_htmx.middleware import HtmxDetails

from catalog.access.roles import ADMINISTRATOR, SIGNED_IN_AT_KEY, has_role, mark_session_user

P = ParamSpec("P")
NOT_TYPED_FIELDS = frozenset(
    {"csrfmiddlewaretoken", "seen_digest", "digest", "confirmed", "status", "mode", "do", "verdict"}
    | {"key", "since", "revision", "policy", "updated_at", "listed", "seen", "next", "choosing", "draft", "item"}
    | {"headers", "query", "env", "code", "credential", "passkey", "passkey_nonce"}
)
"""Form fields that people do not type, or that may hold secrets."""


class PageRequest(HttpRequest):
    user: User
    htmx: HtmxDetails


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def server_address(request: HttpRequest) -> str:
    """Return the address of this server for clients: TOOLGATE_URL, or if that is a loopback address, the request's."""
    if urlsplit(settings.TOOLGATE_URL).hostname in LOOPBACK:
        return request.build_absolute_uri("/").rstrip("/")
    return str(settings.TOOLGATE_URL)


PageView = Callable[Concatenate[PageRequest, P], HttpResponseBase]


def sign_in_required(view: PageView[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Decorate a view so that it requires sign-in, and that not even the browser caches its responses."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not request.user.is_authenticated:
            # Without losing input: a fragment request keeps its page, and a form is returned filled in.
            if cast("PageRequest", request).htmx:
                return trigger_client_event(HttpResponse(status=403), "toolgate:signed-out")
            if request.method == "POST":
                return render_rejected_form(request, "signed_out.html")
            return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")
        mark_session_user(request.user, request.session.get(SIGNED_IN_AT_KEY))
        response = view(cast("PageRequest", request), *args, **kwargs)
        add_never_cache_headers(response)
        patch_vary_headers(response, ("HX-Request", "HX-Target"))
        return response

    return guarded


def administrator_required(view: PageView[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Decorate a view so that it requires sign-in, and responds with 403 unless the user is an administrator."""

    @wraps(view)
    def guarded(request: PageRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not has_role(request.user, ADMINISTRATOR):
            raise PermissionDenied(_("Only administrators may open this page."))
        return view(request, *args, **kwargs)

    return sign_in_required(guarded)


def render_rejected_form(request: HttpRequest, template: str, *, status: int = 403, more: str = "") -> HttpResponse:
    """Return a page that offers the input of a refused form again, except passwords; the server stores nothing."""
    typed = [
        (name, text)
        for name, texts in request.POST.lists()
        for text in texts
        if name not in NOT_TYPED_FIELDS and not name.endswith("_FORMS") and "password" not in name and text.strip()
    ]
    response = render(request, template, {"typed": typed, "more": more}, status=status)
    add_never_cache_headers(response)
    return response


def push_list_url(request: PageRequest, response: HttpResponse, address: str) -> HttpResponse:
    """Make htmx add a list's address to the browser history, or replace the last entry while a search is typed."""
    typed = request.htmx.trigger_name == "q"
    return replace_url(response, address) if typed else push_url(response, address)


def is_fragment_request(request: PageRequest, *targets: str) -> bool:
    """Return whether htmx requests a fragment with one of these ids; to restore history, it needs the whole page."""
    return request.htmx.target in targets and not request.htmx.history_restore_request


def shown_status(request: PageRequest, status: int) -> int:
    """Return the status for an answer to a form: of the answers that tell errors, htmx shows only 409 and 422."""
    return 422 if request.htmx and status >= 400 and status != 409 else status


def next_address(request: HttpRequest, default: str) -> str:
    """Return the address in the field `next` of a form, if it is one of this site, or else `default`."""
    return own_address(request.POST.get("next", ""), default)


def own_address(address: str, default: str) -> str:
    """Return the address if it is one of this site, or else `default`."""
    is_own = address.startswith("/") and url_has_allowed_host_and_scheme(address, allowed_hosts=None)
    return address if is_own else default


def page_redirect(request: PageRequest, address: str) -> HttpResponse:
    """Redirect the browser to another page, even if htmx sent the request."""
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


def parse_number(text: str, *, most_digits: int = 18) -> int | None:
    """Return the whole number in a query or form field; None if it is invalid or too long."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= most_digits else None
