"""Views of the review desk: inbox, request, decision and edit forms, batch, revealing a secret.

Everything works with plain forms; htmx gets the parts that change.
"""

from dataclasses import replace

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.models import ApprovalRequest
from approvals.queue.saved_views import OPEN_VIEWS, WAITING
from approvals.requests.privacy import reveal_field
from approvals.requests.queries import request_for
from approvals.reviews import decisions
from approvals.web.review.actions import ACTIONS, LEAVES, act
from approvals.web.review.batch import Several, answer, several_of
from approvals.web.review.decision_form import Answer, Outcome, Setback, attempt, checked, rebriefed, status_of
from approvals.web.review.detail import brief
from approvals.web.review.edit_form import resume
from approvals.web.review.inbox import Asked, Inbox, address_of, inbox_for, next_after, queue_of, summary_of
from catalog.errors import ToolgateError
from catalog.ui.requests import PageRequest, signed_in, wants_part

COUNTED_DOWN = " in"
"""The end of a sentence that the seconds to undo follow."""
UNDO = "undo"
"""Marks the message of a decision that can be taken back: the last such decision is shown in its place."""


@require_safe
@signed_in
def inbox(request: PageRequest) -> HttpResponse:
    """Show what waits, or what was decided, and one request."""
    shown = inbox_for(request.user, Asked.read(request.GET))
    template = "approvals/_pane.html" if wants_part(request, "pane") else "approvals/inbox.html"
    return render(request, template, _context(shown), status=404 if shown.missing else 200)


@require_safe
@signed_in
def result(request: PageRequest, public_id: str) -> HttpResponse:
    """Show what became of a decided request's call; a page that has shown it already is told nothing (204)."""
    about = brief(held_or_404(request, public_id), request.user)
    if about.result is None or request.GET.get("seen") == about.result.mark:
        return HttpResponse(status=204)
    shown = {"held": about.request, "brief": about, "inbox": Asked.read(request.GET), "part": True}
    return render(request, "approvals/_result.html", shown)


@require_POST
@signed_in
def decision(request: PageRequest, public_id: str) -> HttpResponse:
    """Record an answer and open the next request."""
    held = held_or_404(request, public_id)
    following = next_after(request.user, _list_of(request), held)
    outcome = attempt(held, request.user, request.POST)
    if outcome.setback is not None:
        return answered(request, public_id, outcome)
    if outcome.said.endswith(COUNTED_DOWN):
        messages.success(request, outcome.said, extra_tags=UNDO)
    else:
        messages.success(request, f"{summary_of(request.user, held)}: {outcome.said}")
    return answered(request, following)


@require_POST
@signed_in
def edit(request: PageRequest, public_id: str) -> HttpResponse:
    """Change the form in which a reviewer writes other arguments, or check them; nothing is stored."""
    held = held_or_404(request, public_id)
    editing = resume(held, request.user, request.POST)
    outcome = checked(editing, request.POST)
    if wants_part(request, "edited"):
        shown = {"editing": editing, "brief": rebriefed(brief(held, request.user), outcome), "swap": True}
        return render(request, "approvals/_edited.html", shown)
    return answered(request, public_id, outcome, "edit")


@require_POST
@signed_in
def undo(request: PageRequest, public_id: str) -> HttpResponse:
    """Take one's own answer back."""
    held = held_or_404(request, public_id)
    try:
        decisions.undo(held, by=request.user)
    except ToolgateError as error:
        return answered(request, public_id, Outcome(setback=Setback.from_error(error), status=status_of(error)))
    messages.success(request, f"{summary_of(request.user, held)}: Taken back. It waits again.")
    return answered(request, public_id)


@require_POST
@signed_in
def action(request: PageRequest, public_id: str, name: str) -> HttpResponse:
    """Do something else about a request: look after it, put it off, hand it on, write, withdraw, revoke."""
    if name not in ACTIONS:
        raise Http404
    held = held_or_404(request, public_id)
    following = next_after(request.user, _list_of(request), held)
    try:
        messages.success(request, act(name, held, request.user, request.POST))
    except ToolgateError as error:
        sent = Answer.read(request.POST)
        sent = replace(sent, sent_from="thread") if name == "comment" else sent
        return answered(request, public_id, Outcome(setback=Setback.from_error(error, sent), status=status_of(error)))
    return answered(request, following if name in LEAVES else public_id)


def held_or_404(request: PageRequest, public_id: str) -> ApprovalRequest:
    """Return a request that the viewer may see; raise Http404."""
    try:
        return request_for(request.user, public_id)
    except ApprovalRequest.DoesNotExist:
        raise Http404 from None


def page_context(request: PageRequest, public_id: str) -> dict[str, object]:
    """Return what the page shows of a request, beside the list that the form was sent from."""
    return _context(inbox_for(request.user, Asked(_list_of(request), public_id, "")))


def answered(request: PageRequest, public_id: str, outcome: Outcome | None = None, view: str = "") -> HttpResponse:
    """Show where the inbox stands after an answer: parts for htmx, a page for setbacks, else another address."""
    status, by_htmx = _list_of(request), "HX-Request" in request.headers
    address = address_of(public_id, status=status.replace(WAITING, ""))
    if outcome is None and not by_htmx:
        return redirect(address)
    asked = Asked(status, public_id, view or _view_of(outcome))
    shown = _context(inbox_for(request.user, asked), outcome) | {"pane_swap": not wants_part(request, "pane")}
    template = "approvals/_answer.html" if by_htmx else "approvals/inbox.html"
    response = render(request, template, shown, status=outcome.status if outcome else 200)
    if by_htmx and outcome is None:
        response["HX-Replace-Url"] = address
    return response


def _list_of(request: PageRequest) -> str:
    """Return the view of what waits that the form was sent from."""
    status = request.POST.get("status", "")
    return status if status in OPEN_VIEWS else WAITING


def _view_of(outcome: Outcome | None) -> str:
    """Return the view in which a setback is shown: that of the form which the answer was written in."""
    if outcome is None or outcome.setback is None:
        return ""
    if outcome.editing is not None:
        return "edit"
    sent = outcome.setback.answer
    return "respond" if sent is not None and sent.sent_from == "respond" else ""


def _context(shown: Inbox, outcome: Outcome | None = None) -> dict[str, object]:
    about = shown.shown
    if about is not None and outcome is not None:
        about = rebriefed(about, outcome)
    context: dict[str, object] = {"section": "approvals", "inbox": shown, "brief": about}
    if outcome is not None:
        context |= {"setback": outcome.setback, "editing": outcome.editing}
    if shown.view == "edit" and about is not None and about.bar.may_answer and context.get("editing") is None:
        context["editing"] = about.editing
    return context


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def several(request: PageRequest) -> HttpResponse:
    """Show what differs between the selected requests; answer them when the form was sent."""
    if request.method == "POST":
        shown = answer(request.user, request.POST)
        return _shown_batch(request, shown, 422 if shown.setback else 200)
    return _shown_batch(request, several_of(request.user, request.GET.getlist("item")), 200)


def _shown_batch(request: PageRequest, shown: Several, status: int) -> HttpResponse:
    context = {"section": "approvals", "several": shown, "inbox": queue_of(request.user)}
    template = "approvals/several.html"
    if wants_part(request, "pane"):
        template = "approvals/_several_answer.html" if request.method == "POST" else "approvals/_several.html"
    return render(request, template, context, status=status)


@require_POST
@signed_in
def reveal(request: PageRequest, public_id: str) -> HttpResponse:
    """Show one secret in its place, to who may see it."""
    held = held_or_404(request, public_id)
    try:
        field = reveal_field(held, request.POST.get("path", ""), by=request.user)
    except ToolgateError as error:
        return answered(request, public_id, Outcome(setback=Setback.from_error(error), status=status_of(error)))
    if wants_part(request, f"secret-{field.number}"):
        return render(request, "approvals/_secret.html", {"held": held, "field": field, "may_reveal": True})
    return render(request, "approvals/inbox.html", page_context(request, public_id) | {"revealed": field})
