"""The page of the insights: read, for some days."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals.insights_page import CHOICES, age_bars, day_bars, days_of
from approvals.queue.insights import insights_for
from catalog.ui.requests import PageRequest, signed_in


@require_safe
@signed_in
def insights(request: PageRequest) -> HttpResponse:
    """Show how people decided."""
    found = insights_for(request.user, days_of(request.GET))
    shown = {"found": found, "bars": day_bars(found.per_day), "ages": age_bars(found.ages), "choices": CHOICES}
    return render(request, "approvals/insights.html", {"section": "approvals", **shown})
