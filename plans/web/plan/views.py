"""Views of one plan: its page, its parts for htmx, and every action as a plain form."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import replace_url

from approvals.requests import deadlines
from approvals.requests.queries import requests_for
from catalog.errors import ParameterError, ToolgateError
from catalog.models import Call
from catalog.ui.requests import PageRequest, is_fragment_request, next_address, sign_in_required
from catalog.ui.toasts import ToastButton, announce
from plans.actions.clone import clone_plan
from plans.actions.control import at_stake, cancel_plan, pause_plan, resume_plan
from plans.actions.create import PlanProblems, start_plan
from plans.actions.retry import retry_plan
from plans.actions.skip import skip_step
from plans.llm.transcripts import transcripts_of
from plans.models import Plan, Step
from plans.store.privacy import content_response_for
from plans.store.requesters import Requester
from plans.web.access import control_plan, error_status, may_write, plan_or_404, role_required
from plans.web.graph import fold_named
from plans.web.plan.event_list import EventFilter, load_events
from plans.web.plan.page import (
    PlanPage,
    page_address,
    plan_page,
    settle,
    step_in_query,
    tab_named,
    with_revealed_field,
)
from plans.web.plan.step_detail import reveal_on_page

PlanAct = Callable[[Requester], None]
EVENT_PARTS = {"event-card": "event_card", "event-list": "event_list", "lines-": "event_lines"}
"""Parts that show events, by the beginning of their id, with their templates."""
PARTS = ("step", "controls", "said")
"""Parts of a plan's page that are rendered for one viewer."""


@require_safe
@sign_in_required
def plan(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one plan, its events, or the viewer's parts of it: open step, controls, conversation, or several of them."""
    chosen = plan_or_404(request.user, public_id)
    if chosen.kind == Plan.Kind.SESSION:
        return redirect("session", public_id)
    query, current = request.GET.dict(), (request.htmx.current_url or "").partition("?")[2]
    if event_part := next((name for name in EVENT_PARTS if (request.htmx.target or "").startswith(name)), ""):
        return _render_events(request, chosen, event_part, QueryDict(current[:300]).dict())
    part = next((name for name in (*PARTS, "parts") if is_fragment_request(request, name)), "")
    if part:  # a step keeps the tab, and the events their filters, that the current page names
        query = QueryDict(current[:300]).dict() | query
    page = plan_page(request.user, chosen, query)
    shown = _render_parts(page) | {"parts": [each for each in PARTS if each in request.GET.get("parts", "").split(",")]}
    response = render(request, f"plans/_{part}.html" if part else "plans/plan.html", shown)
    return replace_url(response, page.address) if part and "step" in request.GET else response


def _render_events(request: PageRequest, plan: Plan, part: str, current: dict[str, str]) -> HttpResponse:
    """Show one page of a plan's events. The address of the plan's page names it; lines of an opened step leave it."""
    events = load_events(plan, EventFilter.of_query(request.GET.dict()))
    shown = {"plan": plan, "events": events, "address": reverse("plan", args=[plan.public_id])}
    response = render(request, f"plans/_{EVENT_PARTS[part]}.html", shown)
    if part == "lines-":
        return response
    kept = {
        "step": step_in_query(current),
        "tab": tab_named(current.get("tab", "")),
        "fold": fold_named(current.get("fold", "")),
    }
    return replace_url(response, page_address(plan, kept, events.filter))


def _render_parts(page: PlanPage) -> dict[str, object]:
    return {"section": "plans", "page": page}


@require_POST
@sign_in_required
def start(request: PageRequest, public_id: str) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)
    return announce_action(
        request, run_action(request, public_id, lambda by: start_plan(chosen, by=by), further=True), _("Started.")
    )


@require_POST
@sign_in_required
def pause(request: PageRequest, public_id: str) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)
    done = _("Paused. No further steps start; running steps continue.")
    button = ToastButton(_("Resume"), reverse("plan-resume", args=[public_id]))
    return announce_action(request, run_action(request, public_id, lambda by: pause_plan(chosen, by=by)), done, button)


@require_POST
@sign_in_required
def resume(request: PageRequest, public_id: str) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)
    return announce_action(
        request, run_action(request, public_id, lambda by: resume_plan(chosen, by=by), further=True), _("Resumed.")
    )


@require_POST
@sign_in_required
def cancel(request: PageRequest, public_id: str) -> HttpResponse:
    """Cancel a plan after a confirmation, because it cannot be undone."""
    chosen = plan_or_404(request.user, public_id)
    if request.POST.get("confirmed") != "1":
        page = plan_page(request.user, chosen, {})
        if page.may_cancel:
            return render(request, "plans/plan.html", _render_parts(replace(page, stake=at_stake(chosen))))
    answer = run_action(request, public_id, lambda by: cancel_plan(chosen, by=by))
    return announce_action(request, answer, _("Cancelled. No further steps of this plan start."))


@require_POST
@sign_in_required
def outcome(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)
    return run_action(request, public_id, lambda by: settle(chosen, step_id, request.POST, by), step_id)


def run_action(
    request: PageRequest, public_id: str, act: PlanAct, step: int | None = None, *, further: bool = False
) -> HttpResponse:
    """Run an action and redirect to the plan, or back to a list; on failure, show the plan with the reason."""
    query = {"step": str(step)} if step else {}
    try:
        control_plan(request.user, plan_or_404(request.user, public_id), act, further=further)
    except ToolgateError as error:
        return render_failure(request, public_id, query, error)
    address = reverse("plan", args=[public_id]) + (f"?step={step}" if step else "")
    return redirect(next_address(request, address))


def announce_action(
    request: PageRequest, answer: HttpResponse, done: str, button: ToastButton | None = None
) -> HttpResponse:
    """Show a message, with a button, on the next page if `answer` is a redirect."""
    if answer.status_code == HTTPStatus.FOUND:
        announce(request, done, button)
    return answer


def render_failure(request: PageRequest, public_id: str, query: dict[str, str], error: ToolgateError) -> HttpResponse:
    """Show the current plan with the reason for a failure; htmx reloads the whole page."""
    typed = {name: request.POST.get(name, "")[:4000] for name in ("comment", "text")}
    page = plan_page(request.user, plan_or_404(request.user, public_id), query, setback=error.message, **typed)
    response = render(request, "plans/plan.html", _render_parts(page), status=error_status(error))
    response["HX-Refresh"] = "true"
    return response


@require_safe
@sign_in_required
def call_content(request: PageRequest, public_id: str, number: int) -> HttpResponse:
    try:
        return content_response_for(request.user, None, public_id, number)
    except Call.DoesNotExist:
        raise Http404 from None


@require_POST
@sign_in_required
def reveal(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)
    query = {"step": str(step_id), "tab": "output"}
    try:
        field = reveal_on_page(chosen, step_id, request.POST.get("path", ""), by=request.user)
    except ToolgateError as error:
        return render_failure(request, public_id, query, error)
    page = with_revealed_field(plan_page(request.user, chosen, query), field)
    if is_fragment_request(request, f"field-{field.number}"):
        return render(request, "plans/_field.html", {"page": page, "card": page.card, "field": field})
    return render(request, "plans/plan.html", _render_parts(page))


@require_safe
@sign_in_required
def prompts(request: PageRequest, public_id: str) -> HttpResponse:
    plan = plan_or_404(request.user, public_id)
    askings = transcripts_of(request.user, plan, request.GET.get("after", ""))
    return render(request, "plans/prompts.html", {"section": "plans", "askings": askings})


@require_POST
@sign_in_required
def retry(request: PageRequest, public_id: str) -> HttpResponse:
    chosen, step = plan_or_404(request.user, public_id), step_in_query(request.POST.dict())

    def act(by: Requester) -> None:
        try:
            retry_plan(chosen, step, by=by)
        except Step.DoesNotExist:
            raise Http404 from None

    done = (
        _("The failed steps will be retried.")
        if step is None
        else _("Step %(number)s will be retried.") % {"number": step}
    )
    return announce_action(request, run_action(request, public_id, act, step, further=True), done)


@require_POST
@sign_in_required
def skip(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)

    def act(by: Requester) -> None:
        try:
            skip_step(chosen, step_id, request.POST.get("comment", ""), by=by)
        except Step.DoesNotExist:
            raise Http404 from None

    done = _("Step %(number)s was skipped.") % {"number": step_id}
    return announce_action(request, run_action(request, public_id, act, step_id, further=True), done)


@require_POST
@sign_in_required
def remind(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    """Have the people reminded who may approve the call of a step."""
    chosen = plan_or_404(request.user, public_id)
    requests = requests_for(request.user).filter(call__step__plan=chosen, call__step__step_id=step_id)
    waiting = requests.select_related("call__requested_by", "policy_revision__policy").first()
    if waiting is None:
        raise Http404
    try:
        deadlines.remind(waiting, by=request.user)
    except ToolgateError as error:
        return render_failure(request, public_id, {"step": str(step_id)}, error)
    announce(request, _("The reviewers were reminded."))
    return redirect(f"{reverse('plan', args=[public_id])}?step={step_id}")


@require_POST
@sign_in_required
def clone(request: PageRequest, public_id: str) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)
    try:
        if not may_write(request):
            raise role_required()
        made = clone_plan(chosen, by=Requester(request.user))
    except PlanProblems as refusal:
        problem = refusal.problems[0]
        reason = _("It could not be submitted today: %(problem)s") % {"problem": problem.message}
        return render_failure(request, public_id, {}, ParameterError(reason))
    except ToolgateError as error:
        return render_failure(request, public_id, {}, error)
    return redirect("plan", made.public_id)
