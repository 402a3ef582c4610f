"""The page Sign-ins of a profile: where a person is signed in, and ending sign-ins."""

from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from catalog.access import sessions
from catalog.access.sessions import OwnSession, device_words, end_session, live_sessions
from catalog.ui.requests import PageRequest, sign_in_required
from catalog.ui.toasts import announce


@dataclass(frozen=True, slots=True)
class SignInRow:
    session: OwnSession
    device: str


@require_safe
@sign_in_required
def sign_ins(request: PageRequest) -> HttpResponse:
    rows = [
        SignInRow(each, _device_name(each.row.user_agent))
        for each in live_sessions(request.user, request.session.session_key)
    ]
    return render(request, "accounts/sign_ins.html", {"section": "sign-ins", "rows": rows})


def _device_name(user_agent: str) -> str:
    browser, system = device_words(user_agent)
    if browser and system:
        return _("%(browser)s on %(system)s") % {"browser": browser, "system": system}
    return browser or system or _("Unknown browser")


@require_POST
@sign_in_required
def end_sign_in(request: PageRequest, number: int) -> HttpResponse:
    if end_session(request.user, number):
        announce(request, _("Signed out there."))
    return redirect("sign-ins")


@require_POST
@sign_in_required
def sign_out_everywhere(request: PageRequest) -> HttpResponse:
    """End all other sign-ins. Their pages learn of it within seconds."""
    sessions.sign_out_everywhere(request.user, keep=request)
    announce(request, _("Signed out everywhere else."))
    return redirect("sign-ins")
