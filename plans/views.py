"""The plan pages: the list, one plan live, a plan being written. Every action is a plain form; htmx asks for parts."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from catalog.access.roles import ADMINISTRATOR, OPERATOR, NotAllowed, has_role
from catalog.errors import ToolgateError
from catalog.ui.requests import PageRequest, signed_in, wants_part
from plans.actions.control import at_stake, cancel_plan, pause_plan, resume_plan
from plans.actions.create import create_plan, start_plan
from plans.browse import PlanQuery, plan_list
from plans.draft_page import Editing, editing_of, start_edited
from plans.drafting import Writing
from plans.drawing import sketch_of
from plans.masked import reveal_on_page
from plans.models import Plan
from plans.plan_page import PlanPage, control, plan_or_404, plan_page, settle, status_of, with_field
from plans.raw import part_of_step, value_of
from plans.starters import STARTERS
from plans.store.privacy import hidden_from
from plans.store.requesters import Requester

Act = Callable[[Requester], None]
PARTS = ("step", "controls", "said")
"""The parts of a plan's page that are drawn for one person."""


@require_safe
@signed_in
def plans(request: PageRequest) -> HttpResponse:
    """Show the plans that fit."""
    listed = plan_list(request.user, PlanQuery.read(request.GET))
    part = wants_part(request, "results")
    response = render(
        request, "plans/_list.html" if part else "plans/plans.html", {"section": "plans", "listed": listed}
    )
    if part:
        response["HX-Replace-Url"] = listed.query.url
    return response


@require_safe
@signed_in
def plan(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one plan, or what one person sees of it alone: the open step, the controls, what was said, or several."""
    chosen = plan_or_404(request.user, public_id)
    if chosen.kind == Plan.Kind.SESSION:
        return redirect("session", public_id)
    part = next((name for name in (*PARTS, "parts") if wants_part(request, name)), "")
    page = plan_page(request.user, chosen, _open_on_page(request) if part else request.GET.dict())
    shown = _shown(page) | {"parts": [each for each in PARTS if each in request.GET.get("parts", "").split(",")]}
    response = render(request, f"plans/_{part}.html" if part else "plans/plan.html", shown)
    if part and "step" in request.GET:
        response["HX-Replace-Url"] = page.address
    return response


def _shown(page: PlanPage) -> dict[str, object]:
    return {"section": "plans", "page": page}


def _open_on_page(request: PageRequest) -> dict[str, str]:
    """Return what is open on the page from which htmx asks, with what is asked for now: a step keeps the tab."""
    _, _, query = request.headers.get("HX-Current-URL", "").partition("?")
    return QueryDict(query[:200]).dict() | request.GET.dict()


@require_POST
@signed_in
def start(request: PageRequest, public_id: str) -> HttpResponse:
    """Start a plan."""
    chosen = plan_or_404(request.user, public_id)
    return said(request, acted(request, public_id, lambda by: start_plan(chosen, by=by), further=True), "Started.")


@require_POST
@signed_in
def pause(request: PageRequest, public_id: str) -> HttpResponse:
    """Pause a plan."""
    chosen = plan_or_404(request.user, public_id)
    done = "Paused. No further step starts; what runs goes on."
    return said(request, acted(request, public_id, lambda by: pause_plan(chosen, by=by)), done, resumes=public_id)


@require_POST
@signed_in
def resume(request: PageRequest, public_id: str) -> HttpResponse:
    """Let a paused plan go on."""
    chosen = plan_or_404(request.user, public_id)
    return said(request, acted(request, public_id, lambda by: resume_plan(chosen, by=by), further=True), "Resumed.")


@require_POST
@signed_in
def cancel(request: PageRequest, public_id: str) -> HttpResponse:
    """Cancel a plan, once the person has confirmed that: it cannot be undone."""
    chosen = plan_or_404(request.user, public_id)
    if request.POST.get("confirmed") != "1":
        page = plan_page(request.user, chosen, {})
        if page.may_cancel:
            return render(request, "plans/plan.html", _shown(replace(page, stake=at_stake(chosen))))
    answer = acted(request, public_id, lambda by: cancel_plan(chosen, by=by))
    return said(request, answer, "Cancelled. Nothing more of this plan starts.")


@require_POST
@signed_in
def outcome(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    """Settle an unknown outcome."""
    chosen = plan_or_404(request.user, public_id)
    return acted(request, public_id, lambda by: settle(chosen, step_id, request.POST, by), step_id)


def acted(
    request: PageRequest, public_id: str, act: Act, step: int | None = None, *, further: bool = False
) -> HttpResponse:
    """Do it and lead back to the plan; when it cannot be done, show the plan as it is now and why."""
    query = {"step": str(step)} if step else {}
    try:
        control(request.user, plan_or_404(request.user, public_id), act, further=further)
    except ToolgateError as error:
        return set_back(request, public_id, query, error)
    return redirect(f"/plans/{public_id}/" + (f"?step={step}" if step else ""))


def said(request: PageRequest, answer: HttpResponse, done: str, *, resumes: str = "") -> HttpResponse:
    """Say on the next page what was done, if the answer leads to one; `resumes` names a plan to resume from there."""
    if answer.status_code == HTTPStatus.FOUND:
        messages.success(request, done, extra_tags=resumes)
    return answer


def set_back(request: PageRequest, public_id: str, query: dict[str, str], error: ToolgateError) -> HttpResponse:
    """Show the plan as it is now, and why what was asked for was not done; htmx is told to ask for it whole."""
    typed = {name: request.POST.get(name, "")[:4000] for name in ("comment", "text")}
    said = {"setback": error.message, **typed}
    page = plan_page(request.user, plan_or_404(request.user, public_id), query, **said)
    response = render(request, "plans/plan.html", _shown(page), status=status_of(error))
    response["HX-Refresh"] = "true"
    return response


@require_safe
@signed_in
def value(request: PageRequest, public_id: str, key: str) -> HttpResponse:
    """Answer with one whole value of a plan's memory, as JSON."""
    chosen = plan_or_404(request.user, public_id)
    return _raw(value_of(chosen, key, hidden_from(request.user, chosen)))


@require_safe
@signed_in
def part(request: PageRequest, public_id: str, step_id: int, name: str) -> HttpResponse:
    """Answer with the whole arguments or result of a step's call, as JSON."""
    chosen = plan_or_404(request.user, public_id)
    return _raw(part_of_step(chosen, step_id, name, hidden_from(request.user, chosen)))


@require_POST
@signed_in
def reveal(request: PageRequest, public_id: str, step_id: int) -> HttpResponse:
    """Show one private value in its place, to who may see it."""
    chosen = plan_or_404(request.user, public_id)
    query = {"step": str(step_id), "tab": "output"}
    try:
        field = reveal_on_page(chosen, step_id, request.POST.get("path", ""), by=request.user)
    except ToolgateError as error:
        return set_back(request, public_id, query, error)
    page = with_field(plan_page(request.user, chosen, query), field)
    if wants_part(request, f"field-{field.number}"):
        return render(request, "plans/_field.html", {"page": page, "card": page.card, "field": field})
    return render(request, "plans/plan.html", _shown(page))


def _raw(text: str | None) -> HttpResponse:
    if text is None:
        raise Http404
    return HttpResponse(text, content_type="application/json")


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: PageRequest) -> HttpResponse:
    """Show a plan being written, a draft of one's own among them; check it, or store and start it."""
    editing = editing_of(request.user, request.POST.get("draft", request.GET.get("draft", "")))
    starter = STARTERS.get(request.GET.get("starter", ""))
    begun = editing.text if editing else starter.text if starter else ""
    writing = Writing(request.POST.get("text", begun).replace("\r\n", "\n"), by=Requester(request.user))
    writing = writing.with_fix(request.POST.get("fix", ""))
    if request.POST.get("do") == "start":
        return _started(request, writing, editing)
    return _written(request, writing, editing)


def _started(request: PageRequest, writing: Writing, editing: Editing | None) -> HttpResponse:
    if not may_write(request):
        return _written(request, writing, editing, NEEDS_ROLE.message, 403)
    if writing.errors:
        return _written(request, writing, editing, status=422)
    by, document = Requester(request.user), writing.document()
    try:
        stored = start_edited(editing, document, by=by) if editing else create_plan(document, by=by)
    except ToolgateError as error:
        return _written(request, writing, editing, error.message, status_of(error))
    return redirect(f"/plans/{stored.public_id}/")


def _written(
    request: PageRequest, writing: Writing, editing: Editing | None, setback: str = "", status: int = 200
) -> HttpResponse:
    template = "plans/_checked.html" if wants_part(request, "findings") else "plans/new.html"
    shown = {
        "section": "plans",
        "writing": writing,
        "editing": editing,
        "drawing": sketch_of(writing) if writing.text.strip() else None,
        "starters": STARTERS.values(),
        "may_write": may_write(request),
        "setback": setback,
    }
    return render(request, template, shown, status=status)


NEEDS_ROLE = NotAllowed("Starting plans needs the role operator or administrator. Nothing was stored.")


def may_write(request: PageRequest) -> bool:
    """Say whether the person may store plans."""
    return has_role(request.user, OPERATOR, ADMINISTRATOR)
