"""The page of one tool: contract, schemas, examples, implementations, usage, and versions."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db.models import prefetch_related_objects
from django.http import Http404
from django.utils.translation import gettext_lazy

from catalog.calls.statistics import Usage, implementation_stats, last_calls, p95_ms, usage_by_tool
from catalog.exports.providers import PROVIDERS, export_for_page
from catalog.inventory import snapshot
from catalog.inventory.http_tools import is_defined_by_hand, operation_of
from catalog.inventory.overrides import can_override
from catalog.inventory.selectors import tool_versions
from catalog.models import Source, Tool
from catalog.schemas.description import parameter_tables
from catalog.text.formats import format_day, format_number
from catalog.ui.charts import ChartPart, DayChart, FigureRow, FigureTable, day_chart
from catalog.ui.requests import parse_number
from catalog.ui.version_changes import VersionChange, held_change, pair_versions
from catalog.web.change_forms import ChangeForm, change_forms, implementation_rows

VERSIONS_A_PAGE = 20
MOST_EXAMPLES = 20
NOT_FAILED = ChartPart("plain", gettext_lazy("others"))
FAILED = ChartPart("failed", gettext_lazy("rejected or failed"), is_hatched=True)
PROVIDER_NAMES = {"openai": "OpenAI", "anthropic": "Anthropic", "mcp": "MCP", "gram": "gram", "json": "JSON"}


def tool_page_context(
    tool: Tool, viewer: User, query: Mapping[str, str], refused_form: ChangeForm | None = None
) -> dict[str, Any]:
    usage = usage_by_tool([tool.name])[tool.name]
    version = tool.current_version
    if version is None:
        raise Http404
    version.tool = tool
    chosen = query.get("schema", "")
    prefetch_related_objects([tool], "implementations")  # for the statistics and the form
    outcomes = implementation_stats(tool)
    may_change = can_override(viewer)
    forms = change_forms(tool, refused_form) if may_change else {}
    found = snapshot.callable_tool(tool.name)
    return {
        "tool": tool,
        "version": version,
        "operation": operation_of(tool),
        "is_by_hand": is_defined_by_hand(tool),
        "has_source_page": may_change and (tool.source.is_imported or tool.source.kind == Source.Kind.CLIENT),
        "tables": parameter_tables(version.input_schema, version.query_types),
        "schemas": [(key, PROVIDER_NAMES.get(key, key.title()), *export_for_page(key, version)) for key in PROVIDERS],
        "chosen": chosen if chosen in PROVIDERS else PROVIDERS[0],
        "examples": tool.examples[:MOST_EXAMPLES],
        "implementations": implementation_rows(outcomes, forms.get("implementations")),
        "usage": usage,
        "chart": usage_chart(usage),
        "calls_by_day": usage_table(usage),
        "p95": p95_ms(tool),
        "last_calls": last_calls(tool, viewer),
        "latest": pair_versions(list(tool_versions(tool).order_by("-number")[:2]))[:1],
        "held": held_change(tool),
        "may_change": may_change,
        "forms": forms,
        "refused": refused_form,
        "loaded": "no" if found is None else "drifted" if found.drifted else "yes",
    }


def usage_chart(usage: Usage) -> DayChart:
    days = {day.day: (day.calls - day.failed, day.failed) for day in usage.days}
    return day_chart("calls", gettext_lazy("Calls by day"), days, [NOT_FAILED, FAILED])


def usage_table(usage: Usage) -> FigureTable:
    rows = [FigureRow(format_day(day.day), [format_number(day.calls), format_number(day.failed)]) for day in usage.days]
    columns = [gettext_lazy("Calls"), gettext_lazy("Rejected or failed")]
    return FigureTable("calls", gettext_lazy("Calls by day"), gettext_lazy("Day"), columns, rows)


def versions_page_context(tool: Tool, query: Mapping[str, str]) -> dict[str, Any]:
    before = parse_number(query.get("before", ""), most_digits=7)
    rows = tool_versions(tool).order_by("-number")
    if before is not None:
        rows = rows.filter(number__lt=before)
    found = list(rows[: VERSIONS_A_PAGE + 1])
    changes: list[VersionChange] = pair_versions(found)
    return {
        "tool": tool,
        "changes": changes,
        "older": changes[-1].new.number if changes and changes[-1].old is not None else None,
        "is_first_page": before is None,
        "open_diff": parse_number(query.get("diff", ""), most_digits=7),
    }
