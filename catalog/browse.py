"""The list of tools as a page asks for it: what the URL says, facets with their counts, rows. The URL is the state."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import Count, Q
from django.http import QueryDict

from catalog.models import Category, Tool
from catalog.parameters import parameter_count
from catalog.selectors import LEVELS, ToolFilters, tools
from catalog.usage import Usage, usage_by_tool
from catalog.words import SAFETY, status_word

PAGE_SIZE = 50
MAX_QUERY = 200
DEFAULT_SORT = "-level"
ORDERS = {
    "-level": ("-level_rank", "name"),
    "level": ("level_rank", "name"),
    "name": ("name",),
    "-name": ("-name",),
    "calls": ("call_count", "name"),
    "-calls": ("-call_count", "name"),
}
SWITCHES = {"true": "enabled", "false": "disabled"}


@dataclass(frozen=True, slots=True)
class ToolQuery:
    """What the URL asks for; values that mean nothing are in `ignored`."""

    q: str = ""
    safety_level: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    sort: str = DEFAULT_SORT
    page: str = "1"
    ignored: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address of this list, without what goes without saying."""
        parts = [("q", self.q)] if self.q else []
        for name in FACETS:
            parts += [(name, value) for value in getattr(self, name)]
        parts += [("sort", self.sort)] if self.sort != DEFAULT_SORT else []
        parts += [("page", self.page)] if self.page != "1" else []
        return f"/tools/?{urlencode(parts)}" if parts else "/tools/"

    def without(self, name: str, value: str) -> "ToolQuery":
        """Return the query with one filter taken away."""
        kept = tuple(each for each in getattr(self, name) if each != value)
        return replace(self, page="1", **{name: kept})  # type: ignore[arg-type] # the name of a facet

    def condition(self, besides: str = "") -> Q:
        """Return what the tools must fulfil, leaving one facet out."""
        enabled = set(self.enabled if besides != "enabled" else ())
        filters = ToolFilters(
            q=self.q,
            category=self.category if besides != "category" else (),
            enabled=None if len(enabled) != 1 else enabled == {"true"},
        )
        levels = self.safety_level if besides != "safety_level" else ()
        return filters.as_q() & (Q(current_version__safety_level__in=levels) if levels else Q())


FACETS = ("safety_level", "category", "enabled")


def read_query(params: QueryDict, categories: Iterable[str]) -> ToolQuery:
    """Return what a URL asks for."""
    known = {"safety_level": set(LEVELS), "category": set(categories), "enabled": set(SWITCHES)}
    chosen = {name: tuple(dict.fromkeys(params.getlist(name))) for name in FACETS}
    ignored = [value for name in FACETS for value in chosen[name] if value not in known[name]]
    sort = params.get("sort", DEFAULT_SORT)
    ignored += [sort] if sort not in ORDERS else []
    return ToolQuery(
        q=params.get("q", "").replace("\x00", "").strip()[:MAX_QUERY],
        **{name: tuple(value for value in chosen[name] if value in known[name]) for name in FACETS},
        sort=sort if sort in ORDERS else DEFAULT_SORT,
        page=params.get("page", "1"),
        ignored=tuple(value[:40] for value in ignored),
    )


@dataclass(frozen=True, slots=True)
class Option:
    """One choice of a facet; `count` is how many tools it would show beside the other facets."""

    name: str
    value: str
    label: str
    icon: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool of the list."""

    tool: Tool
    usage: Usage
    parameters: int


@dataclass(frozen=True, slots=True)
class ToolList:
    """All that the page of tools shows."""

    query: ToolQuery
    page: "Page[Tool]"
    rows: Sequence[ToolRow]
    facets: Sequence[tuple[str, Sequence[Option]]]
    total: int
    nearest: str

    @property
    def chips(self) -> list[tuple[str, Option]]:
        """Each filter that applies, with the address of the list without it."""
        chosen = [option for _, options in self.facets for option in options if option.chosen]
        return [(self.query.without(option.name, option.value).url, option) for option in chosen]


def tool_list(params: QueryDict) -> ToolList:
    """Return the list that a URL asks for, in a fixed number of queries."""
    categories = list(Category.objects.filter(tools__registered=True).distinct().values_list("name", flat=True))
    query = read_query(params, categories)
    found = tools(ToolFilters()).filter(query.condition()).order_by(*ORDERS[query.sort])
    page = Paginator(found, PAGE_SIZE).get_page(query.page)
    query = replace(query, page=str(page.number))
    usage = usage_by_tool([tool.name for tool in page])
    rows = [ToolRow(tool, usage[tool.name], _parameters(tool)) for tool in page]
    names = list(Tool.objects.filter(registered=True).values_list("name", flat=True))
    return ToolList(query, page, rows, _facets(query, categories), len(names), _nearest(query.q, names))


def _parameters(tool: Tool) -> int:
    return parameter_count(tool.current_version) if tool.current_version else 0


def _nearest(words: str, names: Sequence[str]) -> str:
    """Return the name, or word of a name, that was most likely meant; empty when nothing is near."""
    known = {part for name in names for part in (name, *name.replace("-", "_").split("_")) if len(part) > 2}
    close = difflib.get_close_matches(words.lower(), sorted(known), n=1)
    return close[0] if words and close else ""


def _facets(query: ToolQuery, categories: Sequence[str]) -> list[tuple[str, Sequence[Option]]]:
    levels = _counts(query, "safety_level", "current_version__safety_level")
    of_category = _counts(query, "category", "categories__name")
    switched = _counts(query, "enabled", "enabled")
    return [
        ("Safety", [_option(query, "safety_level", level, levels.get(level, 0)) for level in LEVELS]),
        ("Category", [_option(query, "category", name, of_category.get(name, 0)) for name in categories]),
        ("Status", [_option(query, "enabled", key, switched.get(key == "true", 0)) for key in SWITCHES]),
    ]


def _counts(query: ToolQuery, besides: str, column: str) -> dict[object, int]:
    found = Tool.objects.filter(query.condition(besides), current_version__isnull=False).order_by()
    return {row[column]: row["n"] for row in found.values(column).annotate(n=Count("pk", distinct=True))}


def _option(query: ToolQuery, name: str, value: str, count: int) -> Option:
    word = SAFETY.get(value) or (status_word(SWITCHES[value]) if value in SWITCHES else None)
    label, icon = (word.label, word.icon if name == "safety_level" else "") if word else (value, "")
    return Option(name, value, label, icon, count, value in getattr(query, name))
