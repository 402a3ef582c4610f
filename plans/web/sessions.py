"""The pages of sessions: the list of them, and one with its list and its calls, live."""

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.ui.requests import PageRequest, parse_number, sign_in_required
from plans.models import Plan
from plans.sessions.overview import find_session_overview, session_list


@require_safe
@sign_in_required
def sessions(request: PageRequest) -> HttpResponse:
    """Show the sessions that have a list, the newest first."""
    listed = session_list(request.user, parse_number(request.GET.get("before", "")))
    return render(request, "plans/sessions.html", {"section": "sessions", "listed": listed})


@require_safe
@sign_in_required
def session(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one session."""
    try:
        page = find_session_overview(request.user, public_id)
    except Plan.DoesNotExist:
        raise Http404 from None
    return render(request, "plans/session.html", {"section": "sessions", "page": page})
