"""Views of the values of a plan: a page for each, its members alone for htmx, and downloads."""

from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.ui.requests import PageRequest, sign_in_required
from plans.models import Plan
from plans.store.privacy import hidden_parts
from plans.web.access import plan_or_404
from plans.web.plan.values import StoredValue, file_response, part_of_call, value_in_memory, value_page


@require_safe
@sign_in_required
def value(request: PageRequest, public_id: str, key: str) -> HttpResponse:
    plan = plan_or_404(request.user, public_id)
    return _page(request, plan, value_in_memory(plan, key, hidden_parts(request.user, plan)))


@require_safe
@sign_in_required
def part(request: PageRequest, public_id: str, step_id: int, name: str) -> HttpResponse:
    plan = plan_or_404(request.user, public_id)
    return _page(request, plan, part_of_call(plan, step_id, name, hidden_parts(request.user, plan)))


@require_safe
@sign_in_required
def value_file(request: PageRequest, public_id: str, key: str) -> HttpResponseBase:
    plan = plan_or_404(request.user, public_id)
    return _file(request, value_in_memory(plan, key, hidden_parts(request.user, plan)))


@require_safe
@sign_in_required
def part_file(request: PageRequest, public_id: str, step_id: int, name: str) -> HttpResponseBase:
    plan = plan_or_404(request.user, public_id)
    return _file(request, part_of_call(plan, step_id, name, hidden_parts(request.user, plan)))


def _page(request: PageRequest, plan: Plan, stored: StoredValue | None) -> HttpResponse:
    if stored is None:
        raise Http404
    page = value_page(request.user, plan, stored, request.GET.dict())
    is_members = page.tree is not None and (request.htmx.target or "").startswith("m-")
    template = "plans/values/_members.html" if is_members else "plans/values/value.html"
    return render(request, template, {"section": "plans", "page": page, "member": page.tree})


def _file(request: PageRequest, stored: StoredValue | None) -> HttpResponseBase:
    response = file_response(stored, request.GET.get("path", "")) if stored is not None else None
    if response is None:
        raise Http404
    return response
