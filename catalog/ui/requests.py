"""What every page asks first: who is there, and whether it wants the page or a part of it. Knows no page."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers, patch_vary_headers

from catalog.access.roles import SIGNED_IN_AT_KEY, mark_session_user

P = ParamSpec("P")
NOT_TYPED_FIELDS = frozenset(
    {"csrfmiddlewaretoken", "seen_digest", "digest", "confirmed", "status", "mode", "do", "verdict"}
    | {"key", "since", "revision", "policy", "updated_at", "listed", "seen", "next", "choosing", "draft", "item"}
)
"""The fields of forms that nobody types."""


class PageRequest(HttpRequest):
    """A request of someone who has signed in."""

    user: User


PageView = Callable[Concatenate[PageRequest, P], HttpResponseBase]


def sign_in_required(view: PageView[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Let only people in who have signed in; what they see is kept by nobody on the way, and not by the browser."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _redirect_to_sign_in(request)
        mark_session_user(request.user, request.session.get(SIGNED_IN_AT_KEY))
        response = view(cast("PageRequest", request), *args, **kwargs)
        add_never_cache_headers(response)
        patch_vary_headers(response, ("HX-Request", "HX-Target"))
        return response

    return guarded


def _redirect_to_sign_in(request: HttpRequest) -> HttpResponse:
    """Send a page to sign in. Nothing typed is lost: a page that asks for a part stays, and a form is sent back."""
    if "HX-Request" in request.headers:
        return HttpResponse(status=403, headers={"HX-Trigger": "toolgate:signed-out"})
    if request.method == "POST":
        return render_rejected_form(request, "signed_out.html")
    return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")


def render_rejected_form(request: HttpRequest, template: str) -> HttpResponse:
    """Answer a form that was not taken with a page that shows what was typed into it, except for passwords.

    Nothing of it is kept here.
    """
    typed = [
        (name, text)
        for name, texts in request.POST.lists()
        for text in texts
        if name not in NOT_TYPED_FIELDS and "password" not in name and text.strip()
    ]
    response = render(request, template, {"typed": typed}, status=403)
    add_never_cache_headers(response)
    return response


def push_url(request: HttpRequest, response: HttpResponseBase, address: str) -> None:
    """Tell htmx the address of what it is sent: a new step of the history, except for each letter of a search."""
    typed = request.headers.get("HX-Trigger-Name") == "q"
    response["HX-Replace-Url" if typed else "HX-Push-Url"] = address


def is_fragment_request(request: HttpRequest, *targets: str) -> bool:
    """Say whether htmx asks for the part with one of these ids; a page it restores from history is wanted whole."""
    return request.headers.get("HX-Target") in targets and "HX-History-Restore-Request" not in request.headers


def parse_number(text: str, *, most_digits: int = 18) -> int | None:
    """Return the whole number that a query or form names; None when it is none, or has too many digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= most_digits else None
