"""The page of a plan slice: reading it changes nothing, its forms ask people early and approve."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from catalog.ui.requests import PageRequest, signed_in
from plans.plan_page import plan_or_404
from plans.slice_page import approve, ask, page_of


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def plan_slice(request: PageRequest, public_id: str) -> HttpResponse:
    """Show what is to come; ask about more of it, or approve what is checked."""
    plan = plan_or_404(request.user, public_id)
    if request.method != "POST":
        page = page_of(request.user, plan)
    else:
        page = (approve if request.POST.get("do") == "approve" else ask)(request.user, plan, request.POST)
    return render(request, "plans/slice.html", {"section": "plans", "page": page}, status=page.answered_with)
