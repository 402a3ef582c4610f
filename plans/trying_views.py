"""The pages on which a tool is tried, under /tools/{name}/try/; htmx is sent the card alone, or what came of a call."""

import re
from typing import TYPE_CHECKING

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from catalog.inventory.selectors import tool_or_404
from catalog.models import Call, Tool
from catalog.ui.requests import PageRequest, signed_in, wants_part
from plans.live.long_polling import wait_a_moment
from plans.store import selectors
from plans.store.privacy import hidden_of_call
from plans.trying import Trial, answer, begin, look_at

if TYPE_CHECKING:
    from django.contrib.auth.models import User

CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def trying(request: PageRequest, name: str) -> HttpResponse:
    """Show the form, filled with an example or a call where the query names one; do what a button of it says."""
    tool = tool_or_404(name)
    if request.method == "POST":
        return _answered(request, answer(tool, request.user, request.POST))
    return _shown(request, _begun(request, tool))


def _begun(request: PageRequest, tool: Tool) -> Trial:
    if "call" in request.GET:
        return look_at(tool, request.user, _call_or_404(request.user, tool, request.GET["call"]))
    number = request.GET.get("example", "")
    if number.isascii() and number.isdecimal() and len(number) < 4 and int(number) < len(tool.examples):
        arguments = tool.examples[int(number)].get("arguments")
        return begin(tool, request.user, arguments if isinstance(arguments, dict) else None)
    return begin(tool, request.user)


def _answered(request: PageRequest, trial: Trial) -> HttpResponse:
    """Show what came of it; a call has an address of its own, so that loading the page again calls nothing."""
    if trial.call is not None:
        wait_a_moment(trial.call)
        trial.call = _call_or_404(request.user, trial.tool, trial.call.public_id)
        if "HX-Request" not in request.headers:
            return redirect(f"{request.path}?call={trial.call.public_id}")
    return _shown(request, trial)


def _shown(request: PageRequest, trial: Trial) -> HttpResponse:
    template = "plans/try.html"
    if wants_part(request, "tried"):
        template = "plans/_tried.html"
    elif wants_part(request, "trying"):
        template = "plans/_trying.html"
    return render(
        request, template, {"section": "tools", "trial": trial, "tool": trial.tool}, status=trial.answered_with
    )


def _call_or_404(viewer: "User", tool: Tool, public_id: str) -> Call:
    if not CALL_ID.fullmatch(public_id):
        raise Http404
    try:
        call = selectors.call_for(viewer, None, public_id)
    except Call.DoesNotExist:
        raise Http404 from None
    if call.tool_name != tool.name or hidden_of_call(viewer, call) is not None:
        raise Http404
    return call
