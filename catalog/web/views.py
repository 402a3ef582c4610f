"""The tool pages: the list that the URL describes, and one tool as models and people see it."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from catalog.inventory.selectors import tool_or_404
from catalog.ui.requests import PageRequest, name_address, signed_in, wants_part
from catalog.web.change_forms import Refusal, change, said
from catalog.web.tool_list import tool_list
from catalog.web.tool_page import shown_of, versions_page


@signed_in
def tools(request: PageRequest) -> HttpResponse:
    """Show the tools that fit."""
    listed = tool_list(request.GET)
    shown = {"section": "tools", "listed": listed, "query": listed.query}
    if not wants_part(request, "results"):
        return render(request, "catalog/tools.html", shown)
    response = render(request, "catalog/_answer.html", shown)
    name_address(request, response, listed.query.url)
    return response


@signed_in
def tool(request: PageRequest, name: str) -> HttpResponse:
    """Show one tool: its contract, its schema as each provider reads it, its use."""
    shown = shown_of(tool_or_404(name), request.user, request.GET.dict())
    return render(request, "catalog/tool.html", {"section": "tools"} | shown)


@require_POST
@signed_in
def change_tool(request: PageRequest, name: str) -> HttpResponse:
    """Change what an administrator may about a tool, and lead back to it; else show why not, at its field."""
    row = tool_or_404(name)
    changed = change(row, request.POST, request.user)
    if isinstance(changed, Refusal):
        shown = shown_of(row, request.user, {}) | {"section": "tools", "refusal": changed}
        return render(request, "catalog/tool.html", shown, status=changed.status)
    messages.success(request, said(changed))
    return redirect("tool", name)


@signed_in
def versions(request: PageRequest, name: str) -> HttpResponse:
    """Show the versions of a tool, each with what changed in it."""
    shown = versions_page(tool_or_404(name), request.GET.dict())
    return render(request, "catalog/versions.html", {"section": "tools"} | shown)
