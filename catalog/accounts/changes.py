"""Changes of one's own account: a recent sign-in is required before each, an audit entry and a mail go with it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url

from catalog.access.roles import has_fresh_sign_in
from catalog.signals import record_fact
from catalog.ui.requests import PageRequest, PageView, render_rejected_form, sign_in_required

P = ParamSpec("P")


def fresh_sign_in_required(view: PageView[P]) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Decorate a view so that it requires a sign-in within the last hour, and leads to a new one if it is older.

    A refused form gets a page with its input and a link by way of the sign-in to *Security*: some forms have no page.
    """

    @wraps(view)
    def guarded(request: PageRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if has_fresh_sign_in(request.user):
            return view(request, *args, **kwargs)
        if request.method == "POST":
            return render_rejected_form(request, "accounts/sign_in_again.html")
        return redirect_to_login(request.get_full_path(), f"{resolve_url('sign-in')}?again")

    return sign_in_required(guarded)


def record_change(kind: str, user: User, **details: Any) -> None:
    """Record a change that a person made to their own account, such as `account.passkey_added`."""
    record_fact(kind, by=user, account=f"user_{user.pk}", person=user.get_username(), **details)
