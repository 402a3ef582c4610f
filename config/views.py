"""The front door: where signing in leads."""

from django.http import HttpResponse
from django.shortcuts import redirect

from approvals.selectors import waiting_count
from catalog.access import REVIEWER, has_role
from catalog.doors import PageRequest, signed_in


@signed_in
def home(request: PageRequest) -> HttpResponse:
    """Lead reviewers to what waits for them, everyone else to the plans."""
    is_needed = has_role(request.user, REVIEWER) and waiting_count(request.user)
    return redirect("approvals" if is_needed else "/plans/")
