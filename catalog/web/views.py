"""Views of the tool pages: the list, one tool, its versions."""

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from catalog.errors import ToolgateError
from catalog.inventory.overrides import can_override
from catalog.inventory.selectors import offering_sources, tool_or_404
from catalog.ui.list_views import render_list
from catalog.ui.requests import PageRequest, sign_in_required
from catalog.ui.toasts import ToastButton, announce
from catalog.web.change_forms import FORMS, EnabledForm, describe_changes
from catalog.web.tool_list import TOOL_LIST
from catalog.web.tool_page import tool_page_context, versions_page_context


@require_safe
@sign_in_required
def tools(request: PageRequest) -> HttpResponseBase:
    broken = [source for source in offering_sources() if source.error]
    return render_list(request, TOOL_LIST, "catalog/tools.html", {"section": "tools", "broken": broken})


@sign_in_required
def tool_detail(request: PageRequest, name: str) -> HttpResponse:
    shown = tool_page_context(tool_or_404(name), request.user, request.GET.dict())
    return render(request, "catalog/tool.html", {"section": "tools"} | shown)


@require_POST
@sign_in_required
def change_tool(request: PageRequest, name: str) -> HttpResponse:
    row = tool_or_404(name)
    if not can_override(request.user):
        raise PermissionDenied(_("Only an administrator may change tools."))
    kind = FORMS.get(request.POST.get("what", ""))
    if kind is None:
        raise BadRequest("This form does not exist.")
    form = kind(row, request.POST)
    if form.is_valid():
        try:
            changes = form.save(request.user)
        except ToolgateError as error:
            form.add_problems(error)
        else:
            undo = None
            if isinstance(form, EnabledForm):
                before = {"what": form.what, "enabled": "no" if form.cleaned_data["enabled"] == "yes" else "yes"}
                undo = ToastButton(_("Undo"), reverse("tool-change", args=[name]), before)
            announce(request, describe_changes(changes), undo)
            return redirect("tool", name)
    shown = tool_page_context(row, request.user, {}, form) | {"section": "tools"}
    return render(request, "catalog/tool.html", shown, status=422)


@sign_in_required
def versions(request: PageRequest, name: str) -> HttpResponse:
    shown = versions_page_context(tool_or_404(name), request.GET.dict())
    return render(request, "catalog/versions.html", {"section": "tools"} | shown)
