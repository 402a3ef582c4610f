"""Error pages, and the sign-in page of Django's admin, which is that of the product."""

import sys

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import DisallowedHost, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _
from django.views.defaults import bad_request, page_not_found, server_error

from catalog.connections.endpoints import json_error
from catalog.core.transactions import is_unavailable
from catalog.rest.problems import DATABASE_UNAVAILABLE
from catalog.rest.program_paths import is_client_path, is_program_path
from catalog.ui.requests import render_rejected_form
from plans.web.jump import nearest_to_path


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect from the sign-in page of Django's admin, because passwords are handled in one place only."""
    if request.user.is_authenticated and not admin.site.has_permission(request):
        raise PermissionDenied(_("Only staff can use the Django admin."))
    return redirect_to_login(request.GET.get("next") or "/admin/")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Refuse a form without a valid CSRF token, and display its input again if it came from a page of this site.

    The input of another site's form is not displayed, because that site could choose what the page says.
    """
    if request.headers.get("Sec-Fetch-Site") == "same-origin":
        return render_rejected_form(request, "403_csrf.html")
    return HttpResponse(render_to_string("403_csrf.html", request=request), status=403)


def server_error_page(request: HttpRequest) -> HttpResponse:
    """Return the error page: 503 if the database is unavailable, else 500. Neither uses the database.

    Somebody who stops something must know that it did not take, so that is said plainly.
    """
    error = sys.exc_info()[1]
    if isinstance(error, Exception) and is_unavailable(error):
        is_stop = request.method == "POST" and request.path_info.startswith(reverse("stops"))
        page = render_to_string("503_stops.html" if is_stop else "503.html")
        return HttpResponse(page, status=DATABASE_UNAVAILABLE.status, headers=DATABASE_UNAVAILABLE.headers)
    return server_error(request)


def bad_request_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 400. A client that uses another host than those allowed learns where the setting is."""
    if isinstance(exception, DisallowedHost) and is_client_path(request.path_info):
        return json_error("invalid_request", "This server does not answer under this name: see ALLOWED_HOSTS.", 400)
    return bad_request(request, exception)


def not_found_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404. People who are signed in are shown what has a similar name, as far as they may see it."""
    if not request.user.is_authenticated or is_program_path(request.path_info) or "HX-Request" in request.headers:
        return page_not_found(request, exception)
    similar = nearest_to_path(request.user, request.path)
    response = render(request, "errors/not_found.html", {"similar": similar}, status=404)
    add_never_cache_headers(response)
    return response
