"""Views of the plan editor: write a new plan or change an existing one, check it and store it."""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from catalog.errors import Conflict, ToolgateError
from catalog.ui.requests import PageRequest, is_fragment_request, parse_number, sign_in_required
from plans.actions.change import change_plan, is_open_to_change
from plans.actions.create import PlanProblems, create_plan
from plans.models import Plan
from plans.store.requesters import Requester
from plans.store.selectors import may_control
from plans.web.access import control_plan, error_status, may_write, plan_or_404, role_required
from plans.web.compose.beginnings import MAX_SEARCH, Beginnings, begin_draft
from plans.web.compose.change_text import ChangeEditor, changeable_text
from plans.web.compose.starters import STARTERS
from plans.web.compose.text import PlanEditor, sketch_graph
from plans.web.plan.views import render_failure


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def new_plan_page(request: PageRequest) -> HttpResponse:
    """Show beginnings, drafts and the editor of a text; a POST begins a draft, or checks a text or starts its plan."""
    if request.POST.get("do") == "begin":
        return _begin_draft(request)
    starter = STARTERS.get(request.GET.get("starter", ""))
    text = request.POST.get("text", starter.text if starter else "").replace("\r\n", "\n")
    writing = PlanEditor(text, by=Requester(request.user)).with_fix(request.POST.get("fix", ""))
    if request.POST.get("do") == "start":
        return _start_new_plan(request, writing)
    return _new_plan_page(request, writing)


def _begin_draft(request: PageRequest) -> HttpResponse:
    writing = PlanEditor(request.POST.get("text", ""), by=Requester(request.user))
    if not may_write(request):
        return _new_plan_page(request, writing, role_required().message, 403)
    try:
        draft = begin_draft(request.user, request.POST.dict())
    except ToolgateError as error:
        return _new_plan_page(request, writing, error.message, error_status(error))
    view = draft.unread_format
    return redirect(f"{reverse('plan-draft', args=[draft.public_id])}{f'?view={view}' if view else ''}")


def _start_new_plan(request: PageRequest, editor: PlanEditor) -> HttpResponse:
    if not may_write(request):
        return _new_plan_page(request, editor, role_required().message, 403)
    if editor.errors:
        return _new_plan_page(request, editor, status=422)
    try:
        stored = create_plan(editor.document(), by=Requester(request.user))
    except ToolgateError as error:
        return _new_plan_page(request, editor, error.message, error_status(error))
    return redirect("plan", stored.public_id)


def _new_plan_page(request: PageRequest, editor: PlanEditor, setback: str = "", status: int = 200) -> HttpResponse:
    template = "plans/_checked.html" if is_fragment_request(request, "findings") else "plans/new.html"
    shown = {
        "section": "plans",
        "writing": editor,
        "drawing": sketch_graph(editor) if editor.text.strip() else None,
        "starters": STARTERS.values(),
        "beginnings": Beginnings(request.user, request.GET.get("q", "").replace("\0", "")[:MAX_SEARCH].strip()),
        "may_write": may_write(request),
        "setback": setback,
    }
    return render(request, template, shown, status=status)


MOST_LISTED = 10_000
"""Maximum length of the form field that lists the steps offered for change."""


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def change_plan_page(request: PageRequest, public_id: str) -> HttpResponse:
    chosen = plan_or_404(request.user, public_id)
    may = may_control(request.user, None, chosen) and may_write(request)
    if not (may and is_open_to_change(chosen)):
        refusal = Conflict(
            _("Only the plan's owner, as an operator, or an administrator can change it, until it has ended.")
        )
        return render_failure(request, public_id, {}, refusal)
    if request.method != "POST":
        listed = ChangeEditor("", chosen, frozenset()).free
        return _change_page(request, ChangeEditor(changeable_text(chosen), chosen, listed))
    text = request.POST.get("text", "").replace("\r\n", "\n")
    # The steps that the page offered; anything but numbers is ignored.
    parts = request.POST.get("listed", "")[:MOST_LISTED].split(",")
    numbers = (parse_number(part, most_digits=10) for part in parts)
    writing = ChangeEditor(text, chosen, frozenset(number for number in numbers if number is not None))
    writing = writing.with_fix(request.POST.get("fix", ""))
    return _apply_change(request, writing) if request.POST.get("do") == "change" else _change_page(request, writing)


def _apply_change(request: PageRequest, editor: ChangeEditor) -> HttpResponse:
    plan, seen = editor.plan, request.POST.get("seen", "")
    if not editor.is_json or (editor.errors and not editor.has_begun):
        return _change_page(request, editor, status=422)
    try:
        if not editor.changes_nothing:
            wanted = editor.change(parse_number(seen, most_digits=15))
            control_plan(request.user, plan, lambda by: change_plan(plan, wanted, by=by), further=True)
    except PlanProblems:
        return _change_page(request, editor, status=422)
    except ToolgateError as error:
        return _change_page(request, editor, setback=error.message, status=error_status(error))
    return redirect("plan", plan.public_id)


def _change_page(request: PageRequest, editor: ChangeEditor, *, setback: str = "", status: int = 200) -> HttpResponse:
    """Show the text with its problems; only steps that can still be changed are offered."""
    now: Plan = plan_or_404(request.user, editor.plan.public_id)
    template = "plans/_checked.html" if is_fragment_request(request, "findings") else "plans/change.html"
    shown = {
        "section": "plans",
        "plan": now,
        "writing": editor,
        "listed": ",".join(map(str, sorted(editor.listed & ChangeEditor("", now, frozenset()).free))),
        "drawing": sketch_graph(editor),
        "setback": setback,
    }
    return render(request, template, shown, status=status)
