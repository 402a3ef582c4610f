"""The pages on which people ask for plans in words: the form with its history, one draft, and what can be done with it.

Every action is a plain form. With htmx a draft that is being made asks for itself until there is something new.
"""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.errors import Conflict, ToolgateError
from catalog.ui.requests import PageRequest, signed_in, wants_part
from plans.actions.control import cancel_plan
from plans.llm.provider import NotConfigured
from plans.models import Plan
from plans.planner import drafts
from plans.store.requesters import Requester
from plans.web.access import control, status_of
from plans.web.compose.ask_form import EXAMPLES, AskForm, begun, history_of, may_ask, sent
from plans.web.compose.ask_form import ask as ask_planner
from plans.web.compose.draft import DraftPage, draft_or_404, draft_page
from plans.web.compose.draft import start as start_draft

NO_MODEL = 503


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def ask(request: PageRequest) -> HttpResponse:
    """Show the form and what was asked for before; ask the planner, and lead to the draft."""
    form = sent(request.POST) if request.method == "POST" else begun(request.GET.dict())
    if request.method == "POST":
        try:
            return _gone_to(request, f"/ask/{ask_planner(form, by=Requester(request.user))}/")
        except ToolgateError as error:
            _refuse(form, error)
    return _asking(request, form)


def _refuse(form: AskForm, error: ToolgateError) -> None:
    form.wrong = error.message
    form.code = NO_MODEL if isinstance(error, NotConfigured) else status_of(error)
    form.key = AskForm().key


def _asking(request: PageRequest, form: AskForm) -> HttpResponse:
    part = wants_part(request, "asking")
    shown = {"section": "ask", "form": form, "examples": EXAMPLES.values(), "may_ask": may_ask(request.user)}
    if not part:
        shown["history"] = history_of(request.user, request.GET.get("before", ""))
    response = render(request, "plans/_asking.html" if part else "plans/ask.html", shown, status=form.code)
    if form.code in (403, NO_MODEL):
        response["HX-Refresh"] = "true"
    return response


def _gone_to(request: PageRequest, address: str) -> HttpResponse:
    """Lead to another page; htmx is told to go there, so that what it sent is not sent again by going back."""
    if "HX-Request" not in request.headers:
        return redirect(address)
    response = HttpResponse()
    response["HX-Redirect"] = address
    return response


@require_safe
@signed_in
def draft(request: PageRequest, public_id: str) -> HttpResponse:
    """Show a draft; whoever waits for it is told only what it has not shown yet."""
    page = draft_page(request.user, public_id)
    part = wants_part(request, "draft")
    if part and request.GET.get("seen") == page.mark:
        return HttpResponse(status=204)
    return _shown(request, page, part=part)


def _shown(request: PageRequest, page: DraftPage, *, part: bool = False, status: int = 200) -> HttpResponse:
    shown = {"section": "ask", "page": page, "may_ask": may_ask(request.user)}
    return render(request, "plans/_draft.html" if part else "plans/draft.html", shown | {"part": part}, status=status)


@require_POST
@signed_in
def start(request: PageRequest, public_id: str) -> HttpResponse:
    """Start the drafted plan and lead to it; a draft that was started leads to the plan that is there."""
    call = draft_or_404(request.user, public_id)
    try:
        plan = start_draft(call, by=Requester(request.user))
    except ToolgateError as error:
        known = drafts.plan_of(call) if isinstance(error, Conflict) else None
        if known is None:
            return _set_back(request, public_id, error)
        plan = known
    return redirect(f"/plans/{plan.public_id}/")


@require_POST
@signed_in
def cancel(request: PageRequest, public_id: str) -> HttpResponse:
    """Let the planner stop."""
    call = draft_or_404(request.user, public_id)
    own = Plan.objects.select_related("author", "token").get(public_id=call.plan_ref)
    try:
        control(request.user, own, lambda by: cancel_plan(own, by=by))
    except ToolgateError as error:
        return _set_back(request, public_id, error)
    return redirect(f"/ask/{public_id}/")


def _set_back(request: PageRequest, public_id: str, error: ToolgateError) -> HttpResponse:
    return _shown(request, draft_page(request.user, public_id, error.message), status=status_of(error))
