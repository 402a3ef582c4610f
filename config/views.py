"""The front door: where signing in leads, and what is shown when nothing else can be."""

import sys

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.views.defaults import server_error

from approvals.selectors import waiting_count
from catalog.access import ADMINISTRATOR, REVIEWER, has_role
from catalog.doors import PageRequest, signed_in
from catalog.problems import AWAY
from catalog.retries import is_away


class SignIn(LoginView):
    """Lets people in; who is in already goes on, unless they are `again` to sign in, as a policy may ask."""

    template_name = "registration/sign_in.html"

    @property
    def redirect_authenticated_user(self) -> bool:  # type: ignore[override] # Django's is an attribute
        """Say whether who is signed in is sent on."""
        return "again" not in self.request.GET


@signed_in
def home(request: PageRequest) -> HttpResponse:
    """Lead who may decide to what waits for them, everyone else to the plans."""
    is_needed = has_role(request.user, REVIEWER, ADMINISTRATOR) and waiting_count(request.user)
    return redirect("approvals" if is_needed else "/plans/")


def broken(request: HttpRequest) -> HttpResponse:
    """Answer where a view or middleware raised: 503 when the database was away, else 500. Neither asks it anything."""
    error = sys.exc_info()[1]
    if isinstance(error, Exception) and is_away(error):
        return HttpResponse(render_to_string("503.html"), status=AWAY.status, headers=AWAY.headers)
    return server_error(request)
