"""The page on which a plan's prompts are read."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.ui.requests import PageRequest, signed_in
from plans.llm.transcripts import askings_of
from plans.plan_page import plan_or_404


@require_safe
@signed_in
def prompts(request: PageRequest, public_id: str) -> HttpResponse:
    """Show each time a model was asked for this plan; only to its owner and administrators."""
    plan = plan_or_404(request.user, public_id)
    askings = askings_of(request.user, plan, request.GET.get("after", ""))
    return render(request, "plans/prompts.html", {"section": "plans", "askings": askings})
