"""Views of requests in words: the form with its history, and one draft with its actions."""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.errors import Conflict, ToolgateError
from catalog.ui.requests import PageRequest, is_fragment_request, page_redirect, sign_in_required
from plans.actions.control import cancel_plan
from plans.llm.provider import NotConfigured
from plans.models import Plan
from plans.planner import drafts
from plans.store.requesters import Requester
from plans.web.access import control_plan, error_status
from plans.web.compose.ask_form import EXAMPLES, AskForm, load_history, may_ask, new_form
from plans.web.compose.ask_form import submit_request as ask_planner
from plans.web.compose.draft import DraftPage, draft_or_404, draft_page
from plans.web.compose.draft import start_drafted_plan as start_draft

NO_MODEL = 503


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def ask(request: PageRequest) -> HttpResponse:
    form = AskForm(request.POST) if request.method == "POST" else new_form(request.GET.dict())
    if request.method == "POST":
        try:
            return page_redirect(request, reverse("draft", args=[ask_planner(form, by=Requester(request.user))]))
        except ToolgateError as error:
            form.wrong = "" if form.errors else error.message
            form.code = NO_MODEL if isinstance(error, NotConfigured) else error_status(error)
    part = is_fragment_request(request, "asking")
    shown = {"section": "ask", "form": form, "examples": EXAMPLES.values(), "may_ask": may_ask(request.user)}
    if not part:
        shown["history"] = load_history(request.user, request.GET.get("before", ""))
    response = render(request, "plans/_asking.html" if part else "plans/ask.html", shown, status=form.code)
    if form.code in (403, NO_MODEL):
        response["HX-Refresh"] = "true"
    return response


@require_safe
@sign_in_required
def draft(request: PageRequest, public_id: str) -> HttpResponse:
    """Show a draft; polling gets 204 until there is a change."""
    page = draft_page(request.user, public_id)
    part = is_fragment_request(request, "draft")
    if part and request.GET.get("seen") == page.mark:
        return HttpResponse(status=204)
    return _render_draft(request, page, part=part)


def _render_draft(request: PageRequest, page: DraftPage, *, part: bool = False, status: int = 200) -> HttpResponse:
    shown = {"section": "ask", "page": page, "may_ask": may_ask(request.user)}
    return render(request, "plans/_draft.html" if part else "plans/draft.html", shown | {"part": part}, status=status)


@require_POST
@sign_in_required
def start_draft_page(request: PageRequest, public_id: str) -> HttpResponse:
    """Start the drafted plan and redirect to it; for a started draft, redirect to its plan."""
    call = draft_or_404(request.user, public_id)
    try:
        plan = start_draft(call, by=Requester(request.user))
    except ToolgateError as error:
        known = drafts.started_plan(call) if isinstance(error, Conflict) else None
        if known is None:
            return _render_failure(request, public_id, error)
        plan = known
    return redirect("plan", plan.public_id)


@require_POST
@sign_in_required
def cancel_draft_page(request: PageRequest, public_id: str) -> HttpResponse:
    call = draft_or_404(request.user, public_id)
    own = Plan.objects.select_related("author", "token").get(public_id=call.plan_ref)
    try:
        control_plan(request.user, own, lambda by: cancel_plan(own, by=by))
    except ToolgateError as error:
        return _render_failure(request, public_id, error)
    return redirect("draft", public_id)


def _render_failure(request: PageRequest, public_id: str, error: ToolgateError) -> HttpResponse:
    return _render_draft(request, draft_page(request.user, public_id, error.message), status=error_status(error))
