"""The page on which several requests are answered together: reading it changes nothing, its form decides."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from approvals.inbox import queue_of
from approvals.several import Several, answer, several_of
from catalog.ui.requests import PageRequest, signed_in, wants_part


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def several(request: PageRequest) -> HttpResponse:
    """Show what differs between the selected requests; answer them when the form was sent."""
    if request.method == "POST":
        shown = answer(request.user, request.POST)
        return _shown(request, shown, 422 if shown.setback else 200)
    return _shown(request, several_of(request.user, request.GET.getlist("item")), 200)


def _shown(request: PageRequest, shown: Several, status: int) -> HttpResponse:
    context = {"section": "approvals", "several": shown, "inbox": queue_of(request.user)}
    template = "approvals/several.html"
    if wants_part(request, "pane"):
        template = "approvals/_several_answer.html" if request.method == "POST" else "approvals/_several.html"
    return render(request, template, context, status=status)
