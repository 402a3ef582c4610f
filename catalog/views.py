"""The tool pages: the list that the URL describes, and one tool as models and people see it."""

from django.http import Http404, HttpResponse
from django.shortcuts import render

from catalog.browse import tool_list
from catalog.charts import usage_bars
from catalog.doors import PageRequest, name_address, signed_in, wants_part
from catalog.exports import PROVIDERS
from catalog.models import Tool
from catalog.parameters import parameter_tables
from catalog.selectors import current_version_of, implementations_of, tool_named
from catalog.usage import last_calls, p95_ms, usage_by_tool


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
    try:
        row = tool_named(name)
    except Tool.DoesNotExist:
        raise Http404 from None
    return render(request, "catalog/tool.html", {"section": "tools", "tool": row} | _contract(row, request))


def _contract(row: Tool, request: PageRequest) -> dict[str, object]:
    version, usage = current_version_of(row), usage_by_tool([row.name])[row.name]
    chosen = request.GET.get("schema", "")
    return {
        "version": version,
        "tables": parameter_tables(version),
        "schemas": [(key, export(version)) for key, export in PROVIDERS.items()],
        "chosen": chosen if chosen in PROVIDERS else next(iter(PROVIDERS)),
        "implementations": implementations_of(row),
        "usage": usage,
        "bars": usage_bars(usage),
        "p95": p95_ms(row),
        "last_calls": last_calls(row, request.user),
    }
