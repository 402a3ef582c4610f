"""List of tools: level, use and last call of each, with filters that count, and the most similar name."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Case, CharField, F, IntegerField, Q, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Concat, LPad
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from catalog.calls.statistics import Usage, usage_by_tool
from catalog.inventory.search import MAX_WORD_LENGTH, matching_words, name_match_rank
from catalog.inventory.selectors import (
    FACET_COLUMNS,
    LEVELS,
    MAX_COMPARED_NAMES,
    category_names,
    name_parts,
    offered_tools,
    offering_sources,
    recent_call_count,
    tool_condition,
    with_list_details,
)
from catalog.models import Tool
from catalog.schemas.description import parameter_count
from catalog.ui.lists import (
    Choice,
    Column,
    ListDefinition,
    ListFilter,
    ListPage,
    SortOrder,
    level_choices,
    register_list,
)

MOST_CALLS = 10**9


@dataclass(frozen=True, slots=True)
class ToolRow:
    tool: Tool
    usage: Usage
    parameters: int


def _rows(_viewer: User, tools: Sequence[Tool]) -> list[ToolRow]:
    full = with_list_details(tools)
    usage = usage_by_tool([tool.name for tool in full])
    return [ToolRow(tool, usage[tool.name], _parameter_count(tool)) for tool in full]


def _parameter_count(tool: Tool) -> int:
    version = tool.current_version
    return parameter_count(version.input_schema, version.query_types) if version else 0


def _suggested_name(typed: str) -> str:
    """Return the tool name, or word in a tool name, that is most similar to a text; empty if none is similar."""
    meant = typed.casefold()
    if not meant or len(meant) > MAX_WORD_LENGTH:
        return ""
    names = offered_tools().order_by("name").values_list("name", flat=True)[:MAX_COMPARED_NAMES]
    known = set(names)
    if len(name_parts(meant)) == 1:
        known = {part for name in names for part in name_parts(name) if len(part) > 2}
    close = difflib.get_close_matches(meant, sorted(known), n=1)
    return close[0] if close else ""


@dataclass(frozen=True, slots=True)
class ToolHint:
    """Help where no tool matches: the most similar name, and the number of disabled tools that match."""

    nearest: str
    disabled: int


def _hint(page: ListPage[Tool]) -> ToolHint:
    nearest = _suggested_name(page.query.q)
    disabled = page.counts["tab_false"] if page.query.tab == "true" else 0
    return ToolHint(nearest if nearest != page.query.q else "", disabled)


def _by_number(number: Combinable) -> Combinable:
    """Return a sort key: the number, then the name."""
    return Concat(LPad(Cast(number, CharField()), 10, Value("0")), F("name"), output_field=CharField())


def _level_rank(levels: Sequence[str]) -> Combinable:
    ranks = [When(current_version__safety_level=level, then=Value(rank)) for rank, level in enumerate(levels)]
    return Case(*ranks, default=Value(len(levels)), output_field=IntegerField())


IN_USE = Q(enabled=True, source__enabled=True)
TOOL_LIST = register_list(
    ListDefinition[Tool](
        name="tools",
        path="/tools/",
        count_text=ngettext_lazy("%(shown)s tool", "%(shown)s tools", "count"),
        search_label=_("Search tools"),
        search_hint=_("Name, description or parameter"),
        rows=lambda _viewer, _query: offered_tools().only("pk", "name"),
        present=_rows,
        search=matching_words,
        tab_name="enabled",
        tabs={
            "": (_("All"), Q()),
            "true": (_("Enabled"), IN_USE),
            "false": (_("Disabled"), ~IN_USE),
        },
        filters=(
            ListFilter(
                name="safety_level",
                label=_("Safety"),
                offer=lambda _viewer, _chosen: level_choices(),
                condition=lambda values: tool_condition(safety_level=values),
                counted_by=FACET_COLUMNS["safety_level"],
            ),
            ListFilter(
                name="category",
                label=_("Category"),
                offer=lambda _viewer, _chosen: [Choice(name, name) for name in category_names()],
                condition=lambda values: tool_condition(category=values),
                counted_by=FACET_COLUMNS["category"],
            ),
            ListFilter(
                name="source",
                label=_("Source"),
                offer=lambda _viewer, _chosen: [
                    Choice(source.name, source.name)
                    for source in offering_sources()
                    if source.offers  # type: ignore[attr-defined] # an annotation
                ],
                condition=lambda values: tool_condition(source=values),
                counted_by=FACET_COLUMNS["source"],
            ),
        ),
        orders={
            "match": SortOrder(_("Best match first"), lambda text: _by_number(name_match_rank(text))),
            "-level": SortOrder(_("Dangerous first"), _by_number(_level_rank(LEVELS[::-1]))),
            "level": SortOrder(_("Safe first"), _by_number(_level_rank(LEVELS))),
            "name": SortOrder(_("Name, A to Z"), "name"),
            "-name": SortOrder(_("Name, Z to A"), "-name"),
            "-calls": SortOrder(
                _("Most calls first"), lambda _text: _by_number(Value(MOST_CALLS) - recent_call_count())
            ),
            "calls": SortOrder(_("Fewest calls first"), lambda _text: _by_number(recent_call_count())),
        },
        search_order="match",
        columns=(
            Column(_("Safety"), "level", "-level"),
            Column(_("Name"), "name", "-name", down_first=False),
            Column(_("Categories")),
            Column(_("Params"), classes="align-end"),
            Column(_("Calls, 14 days"), "calls", "-calls"),
            Column(_("Success"), classes="align-end"),
            Column(_("Last call")),
        ),
        row_template="catalog/_tool.html",
        empty_template="catalog/_no_tools.html",
        no_match_template="catalog/_no_match.html",
        no_match_hint=_hint,
        csv_columns={
            "name": lambda row: row.tool.name,
            "level": lambda row: row.tool.current_version.safety_level,
            "status": lambda row: row.tool.status,
            "description": lambda row: row.tool.current_version.description,
            "categories": lambda row: ", ".join(category.name for category in row.tool.categories.all()),
            "source": lambda row: row.tool.source.name,
            "parameters": lambda row: row.parameters,
            "calls_14_days": lambda row: row.usage.calls,
            "success_percent": lambda row: row.usage.success,
            "last_call_at": lambda row: row.tool.last_call_at,
        },
    )
)
