"""Views of the plan builder: one draft, its changes, and its files."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from catalog.access.roles import user_display_name
from catalog.core.canonical_json import Json, parse_json
from catalog.core.yaml_documents import write_yaml
from catalog.errors import Conflict, MalformedJSON, TooLarge, ToolgateError
from catalog.ui.requests import PageRequest, is_fragment_request, page_redirect, parse_number, sign_in_required
from catalog.ui.toasts import ToastButton, announce
from plans.actions.create import PlanOrigin
from plans.actions.drafts import (
    DraftBase,
    DraftConflict,
    DraftSource,
    change_draft,
    create_draft,
    delete_draft,
    document_text,
    is_same_document,
    keep_unread,
    read_content,
    redo_draft,
    restore_draft,
    start_draft,
    undo_draft,
)
from plans.documents.editing import (
    add_step,
    connect_steps,
    duplicate_step,
    move_step,
    remove_step,
    with_goal,
)
from plans.documents.merging import Side
from plans.models import PlanDraft
from plans.planner.drafts import DraftOrigin, started_plan
from plans.store.drafts import draft_for
from plans.store.requesters import Requester
from plans.web.access import error_status, may_write, role_required
from plans.web.compose.builder import VIEWS, BuilderPage, View, draft_or_404, news_since, read_text, version_for
from plans.web.compose.text import PlanEditor
from plans.web.graph import fold_named

MAX_CHOICES = 400
"""Most conflicts that are chosen one by one, below Django's limit of fields; one choice decides the others."""
VERSION_HEADER = "Toolgate-Draft-Version"
"""The version in which the document is exactly what was sent; absent if it was merged with changes of others."""


def address_of(draft: PlanDraft, **query: Any) -> str:
    """Return the URL of the builder with what is open in it."""
    said = {name: value for name, value in query.items() if value not in (None, "", "form")}
    path = reverse("plan-draft", args=[draft.public_id])
    return f"{path}?{urlencode(said)}" if said else path


def page_of(request: PageRequest, draft: PlanDraft, **more: Any) -> BuilderPage:
    """Return the page of a draft with the view, the step and the fold that the request names."""
    asked = request.POST if request.method == "POST" else request.GET
    view: View = next((name for name, _label in VIEWS if name == asked.get("view")), "form")
    number = parse_number(asked.get("step", ""), most_digits=10)
    return BuilderPage(draft, request.user, view, number, fold_named(asked.get("fold", "")), **more)


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def draft_page(request: PageRequest, public_id: str) -> HttpResponse:
    """Show a draft, or change it; `do` names the change, which is saved at once."""
    if _is_up_to_date(request, public_id):
        return HttpResponse(status=204)
    try:
        draft = draft_or_404(request.user, public_id)
    except Conflict as error:  # encrypted with a key that is gone
        messages.error(request, error.message)
        return page_redirect(request, reverse("plan-new"))
    if draft.plan is not None:
        return page_redirect(request, reverse("plan", args=[draft.plan.public_id]))
    return _change(request, draft) if request.method == "POST" else _show(request, draft)


def _is_up_to_date(request: PageRequest, public_id: str) -> bool:
    """Return whether a page asks for news of a draft and has its version, which is compared before its text is read."""
    seen = _version_seen(request)
    if seen is None:
        return False
    try:
        draft = draft_for(request.user, public_id, without_texts=True)
    except PlanDraft.DoesNotExist:
        return False
    return draft.plan_id is None and seen >= draft.version


def _version_seen(request: PageRequest) -> int | None:
    """Return the version that a page has which asks for news; None for any other request."""
    if request.method == "POST" or not is_fragment_request(request, "draft-news"):
        return None
    return parse_number(request.GET.get("seen", ""), most_digits=10)


def _show(request: PageRequest, draft: PlanDraft) -> HttpResponse:
    if is_fragment_request(request, "step-slot"):
        return render(request, "plans/compose/_step_slot.html", {"page": page_of(request, draft)})
    seen = _version_seen(request)
    if seen is not None:
        news = news_since(draft, seen, request.user, own="own" not in request.GET)
        return _render_parts(request, page_of(request, draft, news=news))
    return _render_page(request, page_of(request, draft))


def _render_page(request: PageRequest, page: BuilderPage, status: int = 200) -> HttpResponse:
    return render(request, "plans/compose/builder.html", {"section": "plans", "page": page}, status=status)


def _render_parts(request: PageRequest, page: BuilderPage, *, opens_step: bool = False) -> HttpResponse:
    """Answer with the parts of the page that follow the document, without the fields that people type into.

    With `opens_step`, the form of the selected step is sent as well.
    """
    shown = {"section": "plans", "page": page, "opens_step": opens_step}
    return render(request, "plans/compose/_parts.html", shown)


def _change(request: PageRequest, draft: PlanDraft) -> HttpResponse:
    name, _separator, rest = request.POST.get("do", "").partition(":")
    if request.POST.get("fix"):
        name = "fix"
    act = ACTIONS.get(name)
    if act is None:
        return redirect(address_of(draft))
    if not may_write(request):
        return _render_page(request, page_of(request, draft, setback=role_required().message), 403)
    try:
        return act(request, draft, rest)
    except DraftConflict as conflict:
        return _render_conflict(request, conflict)
    except LookupError:
        refusal = Conflict(_("This step was deleted meanwhile. Nothing was changed."))
        return _render_failure(request, draft, refusal)
    except ToolgateError as error:
        return _render_failure(request, draft, error)


def _render_failure(request: PageRequest, draft: PlanDraft, error: ToolgateError) -> HttpResponse:
    page = page_of(request, draft_or_404(request.user, draft.public_id), setback=error.message)
    if is_fragment_request(request, "draft-news"):
        return _render_parts(request, page)
    return _render_page(request, page, error_status(error))


def _render_conflict(request: PageRequest, conflict: DraftConflict) -> HttpResponse:
    if is_fragment_request(request, "draft-news"):  # htmx shows no answer with an error status
        return render(request, "plans/compose/_conflict_news.html", {"page": page_of(request, conflict.draft)})
    shown = {
        "section": "plans",
        "draft": conflict.draft,
        "conflicts": conflict.conflicts[:MAX_CHOICES],
        "others": max(0, len(conflict.conflicts) - MAX_CHOICES),
        "base": conflict.base_version,
        "text": document_text(conflict.document),
        "view": request.POST.get("view", ""),
        "step": request.POST.get("step", ""),
    }
    return render(request, "plans/compose/conflict.html", shown, status=409)


def _answer(
    request: PageRequest,
    draft: PlanDraft,
    *,
    step: int | None = None,
    version: int | None = None,
    opens_step: bool = False,
) -> HttpResponse:
    """Lead back to the page, or for a script send its parts, with `opens_step` also the form of the step."""
    if is_fragment_request(request, "draft-news"):
        draft = draft_or_404(request.user, draft.public_id)
        page = page_of(request, draft)
        page = page if step is None else page.with_step(step)
        response = _render_parts(request, page, opens_step=opens_step)
        if version is not None:
            response[VERSION_HEADER] = str(version)
        return response
    chosen = step if step is not None else parse_number(request.POST.get("step", ""), most_digits=10)
    asked = {"view": request.POST.get("view", ""), "fold": str(fold_named(request.POST.get("fold", "")))}
    return page_redirect(request, address_of(draft, step=chosen, **asked))


def _base_version(request: PageRequest, draft: PlanDraft) -> int:
    """Return the version that the form was filled from."""
    version = parse_number(request.POST.get("version", ""), most_digits=10)
    return draft.version if version is None else version


def _save(request: PageRequest, draft: PlanDraft, document: Json, summary: str) -> PlanDraft:
    """Store an edit that was made in the current document."""
    return change_draft(draft, base_version=draft.version, document=document, by=request.user, summary=summary)


def _change_goal(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    base = _base_version(request, draft)
    row = version_for(request.user, draft, base)
    goal = request.POST.get("goal", "").replace("\r\n", "\n")
    document = with_goal(read_content(row or draft).document, goal)
    changed = change_draft(draft, base_version=base, document=document, by=request.user, summary=_("Changed the goal"))
    return _answer(request, changed, version=changed.version)


def _change_text(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    """Take over the text of the editor; one that cannot be read is kept beside the document."""
    view: View = "yaml" if request.POST.get("view") == "yaml" else "json"
    text = request.POST.get("text", "").replace("\r\n", "\n")
    base, summary = _base_version(request, draft), _("Changed the text")
    try:
        document = read_text(text, view)
        changed = change_draft(draft, base_version=base, document=document, by=request.user, summary=summary)
    except (MalformedJSON, TooLarge) as error:
        return _keep_text(request, draft, text, view, error)
    if draft.sealed_unread and draft.unread_by_id == request.user.pk:
        keep_unread(changed, "", PlanDraft.Format(view), by=request.user)
    is_as_sent = is_same_document(read_content(changed).document, document)
    return _answer(request, changed, version=changed.version if is_as_sent else None)


def _keep_text(request: PageRequest, draft: PlanDraft, text: str, view: View, error: ToolgateError) -> HttpResponse:
    """Keep a text that could not be taken over, and show it with its problems, or with the reason that has none."""
    setback = error.message if isinstance(error, TooLarge) else ""
    try:
        keep_unread(draft, text, PlanDraft.Format(view), by=request.user)
    except (Conflict, TooLarge) as refusal:
        setback = refusal.message
    page = page_of(request, draft, text=text, setback=setback)
    if is_fragment_request(request, "draft-news"):
        return _render_parts(request, page)
    return _render_page(request, page, 413 if isinstance(error, TooLarge) else 422)


def _discard_unread(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    keep_unread(draft, "", PlanDraft.Format.JSON, by=request.user)
    return _answer(request, draft)


def _step_named(rest: str) -> int:
    number = parse_number(rest, most_digits=10)
    if number is None:
        raise LookupError(rest)
    return number


def _add_step(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    document = read_content(draft).document
    changed, number = add_step(document, _step_named(rest) if rest else None, _("New step"))
    draft = _save(request, draft, changed, _("Added step %(number)s") % {"number": number})
    return _answer(request, draft, step=number, opens_step=True)


def _duplicate_step(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    changed, number = duplicate_step(read_content(draft).document, _step_named(rest))
    said = {"step": _step_named(rest), "number": number}
    draft = _save(request, draft, changed, _("Copied step %(step)s as step %(number)s") % said)
    return _answer(request, draft, step=number, opens_step=True)


def _remove_step(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    number = _step_named(rest)
    changed = remove_step(read_content(draft).document, number)
    summary = _("Deleted step %(number)s") % {"number": number}
    draft = _save(request, draft, changed, summary)
    undo = {"do": "undo", "version": str(draft.version)}
    announce(request, f"{summary}.", ToastButton(_("Undo"), address_of(draft), undo))
    return page_redirect(request, address_of(draft, view=request.POST.get("view", "")))


def _move_step(by: int) -> Callable[[PageRequest, PlanDraft, str], HttpResponse]:
    def move(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
        number = _step_named(rest)
        changed = move_step(read_content(draft).document, number, by)
        draft = _save(request, draft, changed, _("Moved step %(number)s") % {"number": number})
        return _answer(request, draft, step=number)

    return move


def _connect(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    """Let the step in `number` wait for the one in `needs`, or no longer if it already does."""
    number, needs = (_step_named(request.POST.get(name, "")) for name in ("number", "needs"))
    document = read_content(draft).document
    connected = rest != "off"
    changed = connect_steps(document, number, needs, connected=connected)
    said = {"number": number, "needs": needs}
    text = (
        _("Step %(number)s waits for step %(needs)s")
        if connected
        else _("Step %(number)s no longer waits for %(needs)s")
    )
    return _answer(request, _save(request, draft, changed, text % said), step=number)


def _fix(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    """Apply a quick fix to the stored document, after taking over the text in the editor if it was sent."""
    content = read_content(draft)
    if "text" in request.POST and request.POST.get("view") == "json":
        found = PlanEditor(request.POST["text"].replace("\r\n", "\n"), by=Requester(request.user))
        base = _base_version(request, draft)
    else:
        found = BuilderPage(draft, request.user).editor
        base = draft.version
    fixed = found.with_fix(request.POST["fix"]).text
    try:
        document = parse_json(fixed)
    except (MalformedJSON, TooLarge):
        document = content.document
    summary = _("Fixed a problem")
    changed = change_draft(draft, base_version=base, document=document, by=request.user, summary=summary)
    return _answer(request, changed)


def _undo(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    return _answer(request, undo_draft(draft, version=_base_version(request, draft), by=request.user))


def _redo(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    return _answer(request, redo_draft(draft, version=_base_version(request, draft), by=request.user))


def _resolve(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    """Merge with the choices of the page of conflicts."""
    document = parse_json(request.POST.get("text", ""))
    choices: Mapping[str, Side] = {
        request.POST.get(f"path-{index}", ""): "mine" if request.POST.get(f"keep-{index}") == "mine" else "theirs"
        for index in range(MAX_CHOICES)
        if f"keep-{index}" in request.POST
    }
    version, summary = _base_version(request, draft), _("Merged two changes")
    others: Side = "theirs" if request.POST.get("keep-others") == "theirs" else "mine"
    base = DraftBase(version, choices)
    try:
        changed = change_draft(draft, base_version=base, document=document, by=request.user, summary=summary)
    except DraftConflict as conflict:
        if "keep-others" not in request.POST:
            raise
        base = DraftBase(version, {each.path: others for each in conflict.conflicts} | dict(choices))
        changed = change_draft(draft, base_version=base, document=document, by=request.user, summary=summary)
    return _answer(request, changed)


def _start(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    if draft.sealed_unread:
        if draft.unread_by is not None and draft.unread_by_id != request.user.pk:
            message = _("A text of %(person)s could not be read as a plan. In the JSON or YAML view, discard it first.")
            raise Conflict(message % {"person": user_display_name(draft.unread_by)})
        raise Conflict(_("The text in the editor could not be read. Fix or discard it, then start the plan."))
    origin: PlanOrigin | None = None
    is_own = draft.call is not None and draft.call.requested_by_id == request.user.pk
    if draft.call is not None and is_own and started_plan(draft.call) is None:  # a copy of it may have been started
        origin = DraftOrigin(draft.call)
    plan = start_draft(draft, version=_base_version(request, draft), by=Requester(request.user), origin=origin)
    return page_redirect(request, reverse("plan", args=[plan.public_id]))


def _copy_draft(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    document = read_content(draft).document
    goal = document.get("goal") if isinstance(document, dict) else ""
    copied = create_draft(
        with_goal(document, _("Copy of %(goal)s") % {"goal": goal}),
        by=request.user,
        source=DraftSource(call=draft.call, plan=draft.cloned_from, starter=draft.starter),
    )
    return page_redirect(request, address_of(copied))


def _delete_draft(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    if draft.owner_id != request.user.pk:
        raise Conflict(_("Only the owner of a draft can delete it. Nothing was changed."))
    delete_draft(draft)
    button = ToastButton(_("Undo"), address_of(draft), {"do": "restore"})
    announce(request, _("The draft was deleted."), button)
    return page_redirect(request, reverse("plan-new"))


def _restore(request: PageRequest, draft: PlanDraft, rest: str) -> HttpResponse:
    restore_draft(draft)
    return page_redirect(request, address_of(draft))


ACTIONS: Mapping[str, Callable[[PageRequest, PlanDraft, str], HttpResponse]] = {
    "goal": _change_goal,
    "text": _change_text,
    "discard": _discard_unread,
    "add": _add_step,
    "duplicate": _duplicate_step,
    "remove": _remove_step,
    "up": _move_step(-1),
    "down": _move_step(1),
    "connect": _connect,
    "fix": _fix,
    "undo": _undo,
    "redo": _redo,
    "resolve": _resolve,
    "start": _start,
    "copy": _copy_draft,
    "delete": _delete_draft,
    "restore": _restore,
}
"""Changes by the name in `do`; what follows a colon in it, such as the step's number, is passed on."""


@require_safe
@sign_in_required
def draft_file(request: PageRequest, public_id: str, kind: str) -> HttpResponse:
    """Send the document as a JSON or YAML file, without secrets."""
    draft = draft_or_404(request.user, public_id)
    if draft.plan is not None:
        raise Http404
    document = read_content(draft).document
    is_yaml = kind == "yaml"
    text = write_yaml(document) if is_yaml else json.dumps(document, indent=2, ensure_ascii=False)
    response = HttpResponse(text, content_type="application/yaml" if is_yaml else "application/json")
    response["Content-Disposition"] = f'attachment; filename="plan.{kind}"'
    return response
