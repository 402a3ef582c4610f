"""Views of the review pages: inbox, request, decision and edit forms, batch, revealing a secret."""

from dataclasses import replace

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import replace_url

from approvals.models import ApprovalRequest
from approvals.queue.saved_views import DECIDED, HOME, OPEN_VIEWS, WAITING
from approvals.requests.privacy import reveal_field
from approvals.requests.queries import request_for
from approvals.reviews import decisions
from approvals.reviews.batch import undo_batch
from approvals.web.review.actions import ACTIONS, HIDING_ACTIONS, perform_action
from approvals.web.review.batch import BatchReview, load_batch, submit_batch
from approvals.web.review.decision_form import (
    WRITTEN_ANSWERS,
    DecisionForm,
    DecisionResult,
    detail_after_decision,
    edit_check_result,
    http_status_for,
    signing_request,
    submit_decision,
)
from approvals.web.review.detail import detail_for
from approvals.web.review.edit_form import bind_form
from approvals.web.review.inbox import Inbox, InboxQuery, inbox_for, inbox_list, inbox_url, next_request_id, summary_of
from catalog.errors import ToolgateError
from catalog.text.diff import rows_from
from catalog.ui.requests import PageRequest, is_fragment_request, parse_number, sign_in_required

UNDO, FINAL = "undo", "final"
"""Tags of messages about decisions; in place of an UNDO message the page shows the last decision that can be undone."""


@require_safe
@sign_in_required
def inbox(request: PageRequest) -> HttpResponse:
    query = InboxQuery.read(request.GET)
    shown = inbox_for(request.user, replace(query, status=_desk_view(query.status)))
    if shown.status != DECIDED:
        request.queues = shown.queues.counted()  # type: ignore[attr-defined] # the frame shows one of this page's counts
    template = "approvals/_pane.html" if is_fragment_request(request, "pane") else "approvals/inbox.html"
    return render(request, template, inbox_context(shown), status=404 if shown.missing else 200)


@require_safe
@sign_in_required
def result(request: PageRequest, public_id: str) -> HttpResponse:
    """Show the result of a decided request's call; 204 if the page already shows the current state."""
    about = detail_for(request_or_404(request, public_id), request.user)
    if about.result is None or request.GET.get("seen") == about.result.mark:
        return HttpResponse(status=204)
    shown = {"held": about.request, "detail": about, "inbox": InboxQuery.read(request.GET), "part": True}
    return render(request, "approvals/_result.html", shown)


@require_safe
@sign_in_required
def change_rows(request: PageRequest, public_id: str) -> HttpResponse:
    """Show further lines of a change that is too long to be shown at once, starting at the row `from`."""
    approval_request = request_or_404(request, public_id)
    about = detail_for(approval_request, request.user)
    if about.change is None:
        raise Http404
    rows = rows_from(about.change.rows, parse_number(request.GET.get("from", ""), most_digits=7) or 0)
    template = "approvals/_change_rows.html" if request.htmx else "approvals/change.html"
    return render(request, template, {"section": "approvals", "held": approval_request, "detail": about, "rows": rows})


@require_POST
@sign_in_required
def decision(request: PageRequest, public_id: str) -> HttpResponse:
    approval_request = request_or_404(request, public_id)
    following = next_request_id(request.user, _list_view(request), approval_request)
    outcome = submit_decision(approval_request, request.user, request.POST)
    if outcome.setback is not None:
        return decision_response(request, public_id, outcome)
    if outcome.undoable:
        messages.success(request, outcome.message, extra_tags=UNDO)
    else:
        messages.success(request, f"{summary_of(request.user, approval_request)}: {outcome.message}", extra_tags=FINAL)
    return decision_response(request, following or public_id)  # after the last request, show its result


@require_POST
@sign_in_required
def sign_decision(request: PageRequest, public_id: str) -> HttpResponse:
    """Answer with what the browser needs to have a decision signed by a passkey; the decision itself is sent after it.

    A decision that is not valid is an error here, and is explained when it is sent.
    """
    approval_request = request_or_404(request, public_id)
    try:
        return JsonResponse(signing_request(approval_request, request.user, request.POST))
    except ToolgateError as error:
        return JsonResponse({"detail": error.message}, status=http_status_for(error))


@require_POST
@sign_in_required
def edit(request: PageRequest, public_id: str) -> HttpResponse:
    """Change the form of edited arguments, or check them; nothing is stored."""
    approval_request = request_or_404(request, public_id)
    editing = bind_form(approval_request, request.user, request.POST)
    outcome = edit_check_result(editing, request.POST)
    if is_fragment_request(request, "edited"):
        shown = {
            "editing": editing,
            "detail": detail_after_decision(detail_for(approval_request, request.user), outcome),
            "swap": True,
        }
        return render(request, "approvals/_edited.html", shown)
    return decision_response(request, public_id, outcome, "edit")


@require_POST
@sign_in_required
def undo(request: PageRequest, public_id: str) -> HttpResponse:
    approval_request = request_or_404(request, public_id)
    try:
        decisions.undo_decision(approval_request, by=request.user)
    except ToolgateError as error:
        return decision_response(request, public_id, DecisionResult.refused(error))
    messages.success(
        request, f"{summary_of(request.user, approval_request)}: {_('Decision undone. The request is open again.')}"
    )
    return decision_response(request, public_id)


@require_POST
@sign_in_required
def undo_several(request: PageRequest) -> HttpResponse:
    try:
        results = undo_batch(request.user, request.POST.get("batch", "")[:32])
    except ToolgateError as error:
        return decision_response(request, "", DecisionResult.refused(error))
    undone = [each for each in results if not each.detail]
    late = len(results) - len(undone)
    message = ngettext("%(count)s decision undone.", "%(count)s decisions undone.", len(undone)) % {
        "count": len(undone)
    }
    if late:
        message += " " + ngettext("%(count)s had taken effect.", "%(count)s had taken effect.", late) % {"count": late}
    messages.success(request, message)
    return decision_response(request, undone[0].id if undone else "")


@require_POST
@sign_in_required
def action(request: PageRequest, public_id: str, name: str) -> HttpResponse:
    if name not in ACTIONS:
        raise Http404
    approval_request = request_or_404(request, public_id)
    following = next_request_id(request.user, _list_view(request), approval_request)
    try:
        messages.success(request, perform_action(name, approval_request, request.user, request.POST))
    except ToolgateError as error:
        sent = DecisionForm.read(request.POST)
        sent = replace(sent, sent_from="thread") if name == "comment" else sent
        return decision_response(request, public_id, DecisionResult.refused(error, sent))
    return decision_response(request, following if name in HIDING_ACTIONS else public_id)


def request_or_404(request: PageRequest, public_id: str) -> ApprovalRequest:
    """Return a request that the viewer may see. Raises Http404."""
    try:
        return request_for(request.user, public_id)
    except ApprovalRequest.DoesNotExist:
        raise Http404 from None


def page_context(request: PageRequest, public_id: str) -> dict[str, object]:
    return inbox_context(inbox_for(request.user, InboxQuery(_desk_view(_list_view(request)), public_id, "")))


def decision_response(
    request: PageRequest, public_id: str, result: DecisionResult | None = None, view: str = ""
) -> HttpResponse:
    """Return the inbox after a submission: fragments for htmx, a page after failures, otherwise a redirect."""
    status, by_htmx = _list_view(request), bool(request.htmx)
    address = inbox_url(public_id, status)
    if result is None and not by_htmx:
        return redirect(address)
    status = status if by_htmx else _desk_view(status)
    if not view and result is not None and result.setback is not None:  # show the submitted form again
        sent = result.setback.answer
        view = "respond" if sent is not None and sent.sent_from == "respond" else ""
        view = "edit" if result.editing is not None else view
    asked = InboxQuery(status, public_id, view)
    shown = inbox_context(inbox_for(request.user, asked), result) | {
        "pane_swap": not is_fragment_request(request, "pane")
    }
    template = "approvals/_answer.html" if by_htmx else "approvals/inbox.html"
    response = render(request, template, shown, status=result.status if result else 200)
    return replace_url(response, address) if by_htmx and result is None else response


def _list_view(request: PageRequest) -> str:
    status = request.POST.get("status", "")
    return status if status in (*OPEN_VIEWS, HOME) else WAITING


def _desk_view(status: str) -> str:
    """Return the list to show on the review desk, where a refused form of the home page is shown without htmx."""
    return WAITING if status == HOME else status


def inbox_context(inbox: Inbox, result: DecisionResult | None = None) -> dict[str, object]:
    """Return the context of the templates that show a list with a request, after a submission with its result."""
    about = inbox.shown
    if about is not None and result is not None:
        about = detail_after_decision(about, result)
    context: dict[str, object] = {"section": "approvals", "inbox": inbox, "detail": about}
    context["intent"] = inbox.view if inbox.view in WRITTEN_ANSWERS else ""
    if result is not None:
        context |= {"setback": result.setback, "editing": result.editing}
        if result.setback is not None and result.setback.answer is not None:
            context["intent"] = result.setback.answer.intent
    if inbox.view == "edit" and about is not None and about.actions.may_answer and context.get("editing") is None:
        context["editing"] = about.editing
    return context


@require_http_methods(["GET", "HEAD", "POST"])
@sign_in_required
def batch_review(request: PageRequest) -> HttpResponse:
    """Show the differences between the selected requests; a POST decides them."""
    if request.method == "POST":
        shown = submit_batch(request.user, request.POST)
        return _render_batch(request, shown, 422 if shown.setback else 200)
    shown = load_batch(request.user, request.GET.getlist("item"))
    if len(shown.waiting) == len(shown.requests) == 1 and shown.obstacle:
        public_id = shown.requests[0].public_id
        if not is_fragment_request(request, "pane"):
            return redirect(inbox_url(public_id))
        only = inbox_for(request.user, InboxQuery("", public_id, ""))
        return replace_url(render(request, "approvals/_pane.html", inbox_context(only)), inbox_url(public_id))
    return _render_batch(request, shown, 200)


def _render_batch(request: PageRequest, batch: BatchReview, status: int) -> HttpResponse:
    context = {"section": "approvals", "batch": batch, "inbox": inbox_list(request.user)}
    template = "approvals/several.html"
    if is_fragment_request(request, "pane"):
        template = "approvals/_several_answer.html" if request.method == "POST" else "approvals/_several.html"
    return render(request, template, context, status=status)


@require_POST
@sign_in_required
def reveal(request: PageRequest, public_id: str) -> HttpResponse:
    approval_request = request_or_404(request, public_id)
    try:
        field = reveal_field(approval_request, request.POST.get("path", ""), by=request.user)
    except ToolgateError as error:
        return decision_response(request, public_id, DecisionResult.refused(error))
    if is_fragment_request(request, f"secret-{field.number}"):
        return render(request, "approvals/_secret.html", {"held": approval_request, "field": field, "may_reveal": True})
    return render(request, "approvals/inbox.html", page_context(request, public_id) | {"revealed": field})
