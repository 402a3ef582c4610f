"""The pages of grants: those there are, and one made out of a request that was approved."""

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from approvals.grant_forms import entered, make_from, proposed
from approvals.grant_page import grants_page
from approvals.grants.services import grants_for, revoke
from approvals.models import ApprovalRequest, Grant
from approvals.requests.queries import request_for
from catalog.errors import Conflict
from catalog.ui.requests import PageRequest, signed_in


@require_safe
@signed_in
def grants(request: PageRequest) -> HttpResponse:
    """Show the grants in force and those that have ended."""
    page = grants_page(request.user, request.GET)
    return render(request, "approvals/grants.html", {"section": "approvals", "page": page})


@require_POST
@signed_in
def revoke_grant(request: PageRequest, public_id: str) -> HttpResponse:
    """End a grant."""
    try:
        revoke(grants_for(request.user).get(public_id=public_id), by=request.user)
        messages.success(request, "Revoked. Calls like these wait for people again.")
    except Grant.DoesNotExist:
        raise Http404 from None
    except Conflict as error:
        messages.warning(request, error.message)
    return redirect("grants")


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def grant_from(request: PageRequest, public_id: str) -> HttpResponse:
    """Propose a grant out of an approved request; a POST holds what was entered against history, or makes it."""
    held = _held(request, public_id)
    form = (
        entered(held, request.user, request.POST.dict()) if request.method == "POST" else proposed(held, request.user)
    )
    if request.method == "POST" and request.POST.get("do") == "make" and make_from(form, request.user) is not None:
        messages.success(request, "Remembered. Calls like this run without asking until it ends.")
        return redirect("grants")
    return render(request, "approvals/grant.html", {"section": "approvals", "form": form}, status=form.answered_with)


def _held(request: PageRequest, public_id: str) -> ApprovalRequest:
    try:
        return request_for(request.user, public_id)
    except ApprovalRequest.DoesNotExist:
        raise Http404 from None
