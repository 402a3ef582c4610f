"""Views of the form of one step in the plan builder: show it, change it, try the step, and save it to the draft."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from catalog.access.roles import ADMINISTRATOR, OPERATOR, has_role
from catalog.core.canonical_json import Json
from catalog.errors import Conflict, ToolgateError
from catalog.models import Call
from catalog.ui.requests import PageRequest, is_fragment_request, page_redirect, parse_number, sign_in_required
from plans.actions.drafts import DraftBase, DraftConflict, change_draft, read_content
from plans.documents.merging import ABSENT, MergeConflict, Side
from plans.documents.reading import Problem
from plans.live.waits import wait_briefly
from plans.models import PlanDraft
from plans.store.draft_secrets import DraftContent
from plans.store.requesters import Requester
from plans.store.selectors import call_for
from plans.web.access import role_required
from plans.web.compose.builder import check_draft, draft_or_404, version_for
from plans.web.compose.step_form import StepConflict, StepForm
from plans.web.try_tool import Trial, call_once, new_key

SEARCHES = ("step-tool-hits", "step-result-hits", "step-needs-hits")
"""Ids of the lists that follow what is typed into their search; the page takes them out of the whole form."""
MAX_CONFLICT_TEXT = 2000
MAX_CONFLICTS = 100


@dataclass(slots=True, kw_only=True)
class StepTrial(Trial):
    """A call of the step's tool with samples in place of references."""

    resolved: Mapping[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        return dict(self.resolved)


def open_step_form(
    draft: PlanDraft, viewer: User, number: int, problems: Sequence[Problem] | None = None
) -> StepForm | None:
    """Return the form of a step as it is in the draft, with its problems; None if there is no such step.

    `problems` are those of the draft's document, if they are known already.
    """
    content = read_content(draft)
    form = _new_form(draft, viewer, number, content, draft.version)
    if form is None:
        return None
    form.fill()
    _judge(form, content, form.document, problems)
    form.draw()
    return form


def _new_form(draft: PlanDraft, viewer: User, number: int, content: DraftContent, version: int) -> StepForm | None:
    if not isinstance(content.document, dict) or not isinstance(content.document.get("steps"), list):
        return None
    form = StepForm(
        document=content.document, step_id=number, viewer=viewer, base_version=version, origin=draft.cloned_from
    )
    return form if form.exists else None


def _judge(
    form: StepForm, content: DraftContent, document: Mapping[str, Any], problems: Sequence[Problem] | None = None
) -> None:
    if problems is None:
        problems = _problems_of(form, content, document)
    form.judge(problems, document)


def _problems_of(form: StepForm, content: DraftContent, document: Mapping[str, Any]) -> Sequence[Problem]:
    return check_draft(dict(document), content, Requester(form.viewer))


def step_form_context(draft: PlanDraft, form: StepForm, trial: Trial | None = None) -> dict[str, Any]:
    """Return the variables of the template of a form."""
    return {
        "step_form": form,
        "step_url": reverse("plan-draft-step", args=[draft.public_id, form.step_id]),
        "draft_url": reverse("plan-draft", args=[draft.public_id]),
        "may_write": has_role(form.viewer, OPERATOR, ADMINISTRATOR),
        "trial": trial or _new_trial(form),
    }


def _new_trial(form: StepForm) -> StepTrial | None:
    row = form.tool.row
    return None if row is None else StepTrial(tool=row, viewer=form.viewer, schema={}, key=new_key())


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def step_form_page(request: PageRequest, public_id: str, number: int) -> HttpResponse:
    """Show the form of one step; a POST runs the pressed button. Only Save and quick fixes change the draft."""
    draft = draft_or_404(request.user, public_id)
    if draft.plan is not None:
        return page_redirect(request, reverse("plan", args=[draft.plan.public_id]))
    if request.method == "POST":
        return _handle_button(request, draft, number)
    form = open_step_form(draft, request.user, number)
    if form is None:
        raise Http404
    return _render(request, draft, form)


def _handle_button(request: PageRequest, draft: PlanDraft, number: int) -> HttpResponse:
    base = parse_number(request.POST.get("base", ""), most_digits=9)
    version = draft.version if base is None else base
    # A version that is gone cannot be merged: what the form says then counts as made from the current one.
    row = version_for(request.user, draft, version) if version != draft.version else None
    content = read_content(row or draft)
    form = _new_form(draft, request.user, number, content, row.version if row else draft.version)
    if form is None:
        raise Http404
    action, _separator, place = request.POST.get("do", "update").partition(":")
    trial: StepTrial | None = None
    try:
        form.read(request.POST)
        if action in ("save", "fix"):
            return _save(request, draft, form, content, fix=place if action == "fix" else "")
        if action == "call":
            trial = _try(request, form, content)
        else:
            form.press(action, place, request.POST.get("caret", ""))
        changed = form.changed_document()
        form.is_unsaved = changed != form.document
        _judge(form, content, changed)
        status = 200
    except DraftConflict as conflict:
        form.conflicts = [_conflict_text(each, number) for each in conflict.conflicts[:MAX_CONFLICTS]]
        form.is_unsaved, status = True, 409
    except ToolgateError as error:
        form.is_unsaved, status = True, form.show_error(error)
    form.draw()
    return _render(request, draft, form, trial, status)


def _save(request: PageRequest, draft: PlanDraft, form: StepForm, content: DraftContent, *, fix: str) -> HttpResponse:
    """Store what the form says, after a quick fix if one was pressed. Raises DraftConflict and ToolgateError."""
    if not has_role(request.user, OPERATOR, ADMINISTRATOR):
        raise role_required()
    document: Json = form.changed_document()
    summary = _("Changed step %(number)s") % {"number": form.step_id}
    if fix and isinstance(document, dict):
        fixed = form.fixed_document(fix, _problems_of(form, content, document), document)
        if fixed is None:
            raise Conflict(_("This problem is no longer there. Nothing was saved."))
        document, summary = fixed, _("Fixed a problem of step %(number)s") % {"number": form.step_id}
    choices: dict[str, Side] = {
        path: "theirs" if request.POST.get(f"choice {place}") == "theirs" else "mine"
        for place, path in enumerate(request.POST.getlist("conflict")[:MAX_CONFLICTS])
    }
    base = DraftBase(form.base_version, choices)
    changed = change_draft(draft, base_version=base, document=document, by=request.user, summary=summary)
    saved = open_step_form(changed, request.user, form.step_id) if request.htmx else None
    if saved is None:
        address = reverse("plan-draft", args=[draft.public_id])
        return page_redirect(request, f"{address}?step={form.step_id}")
    saved.is_saved = True
    response = _render(request, changed, saved)
    response["HX-Trigger"] = "draft-saved"  # the rest of the page follows
    return response


def _try(request: PageRequest, form: StepForm, content: DraftContent) -> StepTrial:
    """Call the step's tool once, through the gate; return the trial with its call. Raises ToolgateError."""
    form.panel = "try"
    changed = DraftContent(form.changed_document(), content.secrets).opened_for(form.viewer.pk)
    trial = _new_trial(form)
    if trial is None or not isinstance(changed, dict) or form.kind != "tool":
        raise Conflict(_("There is no tool to try."))
    trial.key = request.POST.get("key", "")
    parameters = changed["steps"][form.index].get("parameters")
    trial.resolved = form.tried_arguments(parameters if isinstance(parameters, dict) else {})
    call_once(trial)
    call: Call | None = trial.call
    if call is not None:
        wait_briefly(call)
        trial.call = call_for(request.user, None, call.public_id)
    trial.key = new_key()
    return trial


def _conflict_text(conflict: MergeConflict, number: int) -> StepConflict:
    def text(value: Any) -> str:
        if value is ABSENT:
            return _("(removed)")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    label = conflict.field or _("The whole step")
    if conflict.step_id != number:
        where = _("Step %(number)s") % {"number": conflict.step_id} if conflict.step_id is not None else _("The plan")
        label = f"{where}: {label}"
    return StepConflict(
        conflict.path, label, text(conflict.mine)[:MAX_CONFLICT_TEXT], text(conflict.theirs)[:MAX_CONFLICT_TEXT]
    )


def _render(
    request: PageRequest, draft: PlanDraft, form: StepForm, trial: Trial | None = None, status: int = 200
) -> HttpResponse:
    part = is_fragment_request(request, "step-form") or request.headers.get("HX-Target") in SEARCHES
    template = "plans/compose/_step_form.html" if part else "plans/compose/step.html"
    shown = {"section": "plans", "draft": draft, **step_form_context(draft, form, trial)}
    return render(request, template, shown, status=status)
