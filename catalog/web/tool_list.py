"""The tool list page: URL parameters, rows, facets with counts."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode
from zlib import crc32

from django.core.paginator import Page, Paginator
from django.db.models import Count, F, Q
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from catalog.calls.statistics import Usage, usage_by_tool
from catalog.inventory.search import MAX_QUERY_LENGTH, MAX_WORD_LENGTH, matching_words, name_match_rank
from catalog.inventory.selectors import (
    FACET_COLUMNS,
    LEVELS,
    category_names,
    filtered_tools,
    offered_tools,
    offering_sources,
    tool_condition,
    with_list_details,
)
from catalog.models import Source, Tool
from catalog.schemas.description import parameter_count
from catalog.ui.labels import SAFETY_BADGES, status_badge

ENABLED_LABELS = {"true": "enabled", "false": "disabled"}
LEGENDS = {"safety_level": _("Safety"), "category": _("Category"), "source": _("Source"), "enabled": _("Status")}
OPTIONS_SHOWN = 8
"""Number of choices of a facet that are displayed at once; the others can be expanded."""
FacetSelection = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class FacetOption:
    """One choice of a facet; `count` is how many tools the list would have with this choice and the other facets."""

    name: str
    value: str
    label: str
    icon: str
    count: int
    chosen: bool

    @property
    def id(self) -> str:
        """The HTML id of its count. A checksum stands for the value, which may have any characters."""
        return f"n-{self.name}-{crc32(self.value.encode()):08x}"

    @property
    def parts(self) -> list[str]:
        """The label, split after each dot so that the template can allow a line break there."""
        return re.split(r"(?<=\.)", self.label)


@dataclass(frozen=True, slots=True)
class Facet:
    legend: str
    options: Sequence[FacetOption]

    @property
    def first(self) -> Sequence[FacetOption]:
        return self.options[:OPTIONS_SHOWN]

    @property
    def more(self) -> Sequence[FacetOption]:
        return self.options[OPTIONS_SHOWN:]

    @property
    def is_open(self) -> bool:
        return any(option.chosen for option in self.more)


@dataclass(frozen=True, slots=True)
class FacetCounts:
    total: int
    found: int
    facets: Sequence[Facet]

    @property
    def chosen(self) -> Iterator[FacetOption]:
        return (option for facet in self.facets for option in facet.options if option.chosen)

    def of(self, name: str, value: str) -> int:
        options = (option for facet in self.facets for option in facet.options)
        return next((option.count for option in options if (option.name, option.value) == (name, value)), 0)


def facet_condition(chosen: FacetSelection) -> Q:
    facets: dict[str, Any] = {**chosen, "enabled": [value == "true" for value in chosen["enabled"]]}
    return tool_condition(**facets)


def count_facets(searched: Q, chosen: FacetSelection, known: FacetSelection) -> FacetCounts:
    """Count all matching tools, and for each choice in `known` the tools with this choice and those of other facets."""
    offered = offered_tools().order_by()
    found = offered.filter(searched)
    facets = []
    for name, legend in LEGENDS.items():
        beside = found.filter(facet_condition({**chosen, name: ()}))
        counts = dict(beside.annotate(value=F(FACET_COLUMNS[name])).values_list("value").annotate(Count("pk")))
        values = {value: value == "true" if name == "enabled" else value for value in known[name]}
        options = []
        for value, key in values.items():
            badge = SAFETY_BADGES.get(value) if name == "safety_level" else None
            badge = status_badge(ENABLED_LABELS[value]) if name == "enabled" else badge
            label, icon = (badge.label if badge else value), (badge.icon if badge and name == "safety_level" else "")
            options.append(FacetOption(name, value, label, icon, counts.get(key, 0), value in chosen[name]))
        facets.append(Facet(str(legend), options))
    return FacetCounts(offered.count(), found.filter(facet_condition(chosen)).count(), facets)


PAGE_SIZE = 30
BEST_MATCH = "match"
SORT_ORDERS = {
    BEST_MATCH: ("nearness", "name"),
    "-level": ("-level_rank", "name"),
    "level": ("level_rank", "name"),
    "name": ("name",),
    "-name": ("-name",),
    "calls": ("call_count", "name"),
    "-calls": ("-call_count", "name"),
}
MAX_COMPARED_NAMES = 10_000
"""Maximum names compared with a text without matches, which takes at most a tenth of a second."""


@dataclass(frozen=True, slots=True)
class ToolListQuery:
    """The parameters of the URL. Invalid values are only in `ignored`, for a message."""

    q: str = ""
    safety_level: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    order: str = ""
    page: str = "1"
    ignored: tuple[str, ...] = ()

    @property
    def sort(self) -> str:
        """The sort order. By default, the best match is first; without search words, the highest level."""
        return self.order or (BEST_MATCH if self.q else "-level")

    @property
    def chosen(self) -> FacetSelection:
        return {name: getattr(self, name) for name in LEGENDS}

    @property
    def searched(self) -> Q:
        return matching_words(self.q) if self.q else Q()

    @property
    def is_narrowed(self) -> bool:
        return any(self.chosen.values())

    @property
    def url(self) -> str:
        parts = [("q", self.q)] if self.q else []
        parts += [(name, value) for name, values in self.chosen.items() for value in values]
        parts += [("sort", self.order)] if self.order else []
        parts += [("page", self.page)] if self.page != "1" else []
        return f"/tools/?{urlencode(parts)}" if parts else "/tools/"

    def without(self, option: FacetOption) -> "ToolListQuery":
        kept = tuple(value for value in self.chosen[option.name] if value != option.value)
        return replace(self, page="1", **{option.name: kept})  # type: ignore[arg-type] # the name of a facet


def parse_list_query(params: QueryDict, known: FacetSelection) -> ToolListQuery:
    """Return the parameters of a URL; `known` has the valid choices of each facet."""
    asked = {name: tuple(dict.fromkeys(params.getlist(name))) for name in LEGENDS}
    ignored = [value for name, values in asked.items() for value in values if value not in known[name]]
    words, order = params.get("q", "").replace("\x00", "").strip()[:MAX_QUERY_LENGTH], params.get("sort", "")
    ignored += [order] if order and order not in SORT_ORDERS else []
    chosen = {name: tuple(value for value in values if value in known[name]) for name, values in asked.items()}
    query = ToolListQuery(
        q=words,
        **chosen,  # type: ignore[arg-type] # the names of facets
        page=params.get("page", "1"),
        ignored=tuple(value[:40] for value in ignored),
    )
    return replace(query, order=order if order in SORT_ORDERS and order not in (query.sort, BEST_MATCH) else "")


@dataclass(frozen=True, slots=True)
class ToolRow:
    tool: Tool
    usage: Usage
    parameters: int


@dataclass(frozen=True, slots=True)
class ToolListPage:
    query: ToolListQuery
    page: "Page[Tool]"
    rows: Sequence[ToolRow]
    counts: FacetCounts
    broken: Sequence[Source]
    nearest: str

    @property
    def chips(self) -> list[tuple[str, FacetOption]]:
        """Each selected filter, with the address of the list without this filter."""
        return [(self.query.without(option).url, option) for option in self.counts.chosen]

    @property
    def disabled(self) -> int:
        return self.counts.of("enabled", "false") if self.query.enabled == ("true",) else 0


def tool_list(params: QueryDict) -> ToolListPage:
    """Return the content of the page for these URL parameters, in a fixed number of queries."""
    every = offering_sources()
    known = {
        "safety_level": LEVELS,
        "category": category_names(),
        "source": [source.name for source in every if source.offers],  # type: ignore[attr-defined] # an annotation
        "enabled": list(ENABLED_LABELS),
    }
    query = parse_list_query(params, known)
    counts = count_facets(query.searched, query.chosen, known)
    rows = filtered_tools(query.searched & facet_condition(query.chosen), query.sort)
    if query.sort == BEST_MATCH:
        rows = rows.annotate(nearness=name_match_rank(query.q))
    pages = Paginator(rows.order_by(*SORT_ORDERS[query.sort]), PAGE_SIZE)
    pages.count = counts.found  # Counted already, with the facets.
    page = pages.get_page(query.page)
    full = with_list_details(list(page.object_list))
    usage = usage_by_tool([tool.name for tool in full])
    return ToolListPage(
        query=replace(query, page=str(page.number)),
        page=page,
        rows=[ToolRow(tool, usage[tool.name], _parameter_count(tool)) for tool in full],
        counts=counts,
        broken=[source for source in every if source.error],
        nearest="" if counts.found else _suggested_name(query.q),
    )


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
    if len(_name_parts(meant)) == 1:
        known = {part for name in names for part in _name_parts(name) if len(part) > 2}
    close = difflib.get_close_matches(meant, sorted(known), n=1)
    return close[0] if close else ""


def _name_parts(name: str) -> list[str]:
    return name.casefold().replace("-", "_").split("_")
