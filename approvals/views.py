"""The inbox: what waits, one request beside it, decisions over plain forms. htmx is sent the parts that change."""

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from approvals import decisions
from approvals.answers import Answer, Setback, status_of, told
from approvals.inbox import WAITING, Asked, Inbox, address_of, inbox_for, next_after, waiting_for
from approvals.models import ApprovalRequest
from approvals.selectors import request_for
from catalog.doors import PageRequest, signed_in, wants_part
from catalog.errors import ToolgateError


@require_safe
@signed_in
def inbox(request: PageRequest) -> HttpResponse:
    """Show what waits, or what was decided, and one request."""
    shown = inbox_for(request.user, Asked.read(request.GET))
    template = "approvals/_pane.html" if wants_part(request, "pane") else "approvals/inbox.html"
    return render(request, template, _context(shown), status=404 if shown.missing else 200)


@require_POST
@signed_in
def decision(request: PageRequest, public_id: str) -> HttpResponse:
    """Record an answer and open the next request."""
    held, answer = _held(request, public_id), Answer.read(request.POST)
    if answer.needs_confirming(held):
        return _answered(request, public_id, Setback("again", answer=answer))
    following = next_after(waiting_for(request.user), public_id)
    try:
        answer.send(held, request.user)
    except ToolgateError as error:
        return _answered(request, public_id, Setback.from_error(error, answer), status_of(error))
    messages.success(request, told(answer.verdict), extra_tags=public_id)
    return _answered(request, following)


@require_POST
@signed_in
def undo(request: PageRequest, public_id: str) -> HttpResponse:
    """Take one's own answer back."""
    try:
        decisions.undo(_held(request, public_id), by=request.user)
    except ToolgateError as error:
        return _answered(request, public_id, Setback.from_error(error), status_of(error))
    messages.success(request, "Taken back. It waits again.")
    return _answered(request, public_id)


def _held(request: PageRequest, public_id: str) -> ApprovalRequest:
    try:
        return request_for(request.user, public_id)
    except ApprovalRequest.DoesNotExist:
        raise Http404 from None


def _answered(request: PageRequest, public_id: str, setback: Setback | None = None, status: int = 200) -> HttpResponse:
    """Show where the inbox stands after an answer: parts for htmx, a page for setbacks, else another address."""
    by_htmx, address = "HX-Request" in request.headers, address_of(public_id)
    if setback is None and not by_htmx:
        return redirect(address)
    shown = _context(inbox_for(request.user, Asked(WAITING, public_id))) | {"setback": setback}
    shown["pane_swap"] = not wants_part(request, "pane")
    template = "approvals/_answer.html" if by_htmx else "approvals/inbox.html"
    response = render(request, template, shown, status=status)
    if by_htmx and setback is None:
        response["HX-Replace-Url"] = address
    return response


def _context(shown: Inbox) -> dict[str, object]:
    return {"section": "approvals", "inbox": shown, "brief": shown.shown}
