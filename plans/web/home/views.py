"""The view of the home page."""

from dataclasses import replace

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals.queue.saved_views import HOME
from approvals.web.review.inbox import InboxQuery, inbox_for
from approvals.web.review.views import inbox_context
from catalog.access.roles import can_see_all
from catalog.ui.requests import PageRequest, is_fragment_request, sign_in_required
from plans.web.home.activity import as_running_plan, failed_plans, running_rows
from plans.web.home.agents_today import agents_today
from plans.web.home.first_steps import first_steps_for
from plans.web.home.last_days import last_days
from plans.web.home.ungated_runs import ungated_runs_for


@require_safe
@sign_in_required
def home(request: PageRequest) -> HttpResponse:
    """Show the home page, or for htmx one of its requests."""
    shown = inbox_for(request.user, replace(InboxQuery.read(request.GET), status=HOME, cursor=None, ignored=""))
    request.queues = shown.queues  # type: ignore[attr-defined] # the frame shows one of this page's counts
    context = inbox_context(shown) | {"section": "home"}
    status = 404 if shown.missing else 200
    if is_fragment_request(request, "pane"):
        return render(request, "approvals/_pane.html", context, status=status)
    viewer, running = request.user, running_rows(request.user)
    request.running_plans = [as_running_plan(row.plan) for row in running]  # type: ignore[attr-defined] # as above
    context |= {
        "ungated": ungated_runs_for(viewer),
        "first_steps": first_steps_for(viewer),
        "running": running,
        "failed": failed_plans(viewer),
        "agents": agents_today(viewer),
        "days": last_days() if can_see_all(viewer) else None,
    }
    return render(request, "home/home.html", context, status=status)
