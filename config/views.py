"""The front door: where signing in leads, and what is shown when nothing else can be."""

import sys
from typing import Any

from django.contrib import admin
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, redirect_to_login
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.views.defaults import server_error

from approvals.requests.queries import waiting_count
from catalog.access import sign_in
from catalog.access.roles import ADMINISTRATOR, REVIEWER, has_role
from catalog.core.transactions import is_unavailable
from catalog.errors import SignInThrottled
from catalog.rest.problems import DATABASE_UNAVAILABLE
from catalog.ui.requests import PageRequest, render_rejected_form, sign_in_required


class SignInForm(AuthenticationForm):
    """Username and password, checked by the service that throttles; `retry_after` is set when it refused."""

    retry_after: int | None = None

    def clean(self) -> dict[str, Any]:
        """Sign in with what was typed."""
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username is None or not password or self.request is None:
            return self.cleaned_data
        try:
            self.user_cache = sign_in.authenticate_user(self.request, username=username, password=password)
        except SignInThrottled as refusal:
            self.retry_after = refusal.retry_after
            raise ValidationError(refusal.message, code="throttled") from None
        if self.user_cache is None:
            raise self.get_invalid_login_error()
        self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data


class SignInView(LoginView):
    """Lets people in; who is in already goes on, unless they are `again` to sign in, as a policy may ask."""

    template_name = "registration/sign_in.html"
    form_class = SignInForm

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Show the form again; with 429 when too many passwords were wrong."""
        response = super().form_invalid(form)
        retry_after = getattr(form, "retry_after", None)
        if retry_after is not None:
            response.status_code, response["Retry-After"] = 429, str(retry_after)
        return response

    @property
    def redirect_authenticated_user(self) -> bool:  # type: ignore[override] # Django's is an attribute
        """Say whether who is signed in is sent on."""
        return "again" not in self.request.GET


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Lead from the sign-in page of Django's admin to the one there is: passwords are taken at one place."""
    if request.user.is_authenticated and not admin.site.has_permission(request):
        raise PermissionDenied("Only staff use the Django admin.")
    return redirect_to_login(request.GET.get("next") or "/admin/")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Refuse a form without a valid token. One of this site's own pages gets back what was typed into it.

    A form of another site does not: it would choose what the page shows.
    """
    if request.headers.get("Sec-Fetch-Site") == "same-origin":
        return render_rejected_form(request, "403_csrf.html")
    return HttpResponse(render_to_string("403_csrf.html", request=request), status=403)


@sign_in_required
def home(request: PageRequest) -> HttpResponse:
    """Lead who may decide to what waits for them, everyone else to the plans."""
    is_needed = has_role(request.user, REVIEWER, ADMINISTRATOR) and waiting_count(request.user)
    return redirect("approvals" if is_needed else "/plans/")


def server_error_page(request: HttpRequest) -> HttpResponse:
    """Answer where a view or middleware raised: 503 when the database was away, else 500. Neither asks it anything."""
    error = sys.exc_info()[1]
    if isinstance(error, Exception) and is_unavailable(error):
        return HttpResponse(
            render_to_string("503.html"), status=DATABASE_UNAVAILABLE.status, headers=DATABASE_UNAVAILABLE.headers
        )
    return server_error(request)
