"""Pages of sessions: the list, and one session with its to-do list and calls, updated live."""

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.access.roles import ADMINISTRATOR, has_role
from catalog.access.tokens import token_for
from catalog.models import ApiToken
from catalog.ui.requests import PageRequest, parse_number, sign_in_required
from plans.models import Plan
from plans.sessions.overview import find_session_overview, session_list


@require_safe
@sign_in_required
def sessions(request: PageRequest) -> HttpResponse:
    token, number = None, request.GET.get("token", "")
    if number:
        try:
            token = token_for(request.user, parse_number(number) or 0)
        except ApiToken.DoesNotExist:
            raise Http404 from None
    listed = session_list(request.user, parse_number(request.GET.get("before", "")), token.pk if token else None)
    return render(request, "plans/sessions.html", {"section": "sessions", "listed": listed, "token": token})


@require_safe
@sign_in_required
def session(request: PageRequest, public_id: str) -> HttpResponse:
    try:
        page = find_session_overview(request.user, public_id)
    except Plan.DoesNotExist:
        raise Http404 from None
    may_open_token = page.author == request.user or has_role(request.user, ADMINISTRATOR)
    shown = {"section": "sessions", "page": page, "may_open_token": may_open_token}
    return render(request, "plans/session.html", shown)
