"""Queries for tools: lists and single tools, each with a fixed number of queries."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.http import Http404

from catalog.calls.statistics import usage_window_start
from catalog.definitions.levels import SafetyLevel
from catalog.inventory import search
from catalog.models import Call, Category, Source, Tool, ToolVersion
from catalog.states import CallStatus
from catalog.tools.registry import STEP_TOOLS

NO_CONDITION = Q()


def tool_or_404(name: str, condition: Q = NO_CONDITION) -> Tool:
    try:
        return get_tool_row(name, condition)
    except Tool.DoesNotExist:
        raise Http404 from None


LEVELS: Sequence[str] = [level.value for level in SafetyLevel]
SORT_KEYS = ("name", "-name", "level", "-level", "calls", "-calls")
# Public name of a sort order → its column.
SORT_COLUMNS = {"name": "name", "level": "level_rank", "calls": "call_count"}
FACET_COLUMNS = {
    "safety_level": "current_version__safety_level",
    "category": "categories__name",
    "source": "source__name",
    "enabled": "in_use",
}
# Long columns that lists do not need.
DEFERRED_COLUMNS = (
    *(f"current_version__{name}" for name in ("output_schema", "annotations")),
    *("examples", "declared_description", "description_override"),
    *(f"source__{name}" for name in ("document", "secrets", "tool_settings")),
)


def tool_condition(*, q: str = "", max_level: str = "", **facets: Any) -> Q:
    """Return the condition for tools that match all words of `q`, have at most `max_level`, and match every facet.

    The names of facets are the keys of `FACET_COLUMNS`. A tool must have the value of a facet, or one of a list of
    values; an empty list matches all tools.
    """
    condition = search.matching_words(q) if q else Q()
    if max_level:
        condition &= Q(current_version__safety_level__in=LEVELS[: LEVELS.index(max_level) + 1])
    for name, value in facets.items():
        values = value if isinstance(value, list | tuple) else [value]
        if values and name == "category":
            condition &= Q(pk__in=Tool.categories.through.objects.filter(category__name__in=values).values("tool_id"))
        elif values:
            condition &= Q(**{f"{FACET_COLUMNS[name]}__in": values})
    return condition


@dataclass(frozen=True, slots=True)
class CallCounts:
    calls: int
    completed: int
    failed: int
    last_call_at: datetime | None = None


def offered_tools() -> "QuerySet[Tool]":
    """Return the tools that a source offers now, including disabled ones; their alias `in_use` is true if enabled."""
    offered = Tool.objects.filter(registered=True, current_version__isnull=False)
    return offered.alias(in_use=Q(enabled=True, source__enabled=True))


MAX_COMPARED_NAMES = 10_000
"""Maximum names compared with a text without matches, which takes at most a tenth of a second."""
MAX_RANKED_NAMES = 50


def name_parts(name: str) -> list[str]:
    return name.casefold().replace("-", "_").split("_")


def similar_tool_names(text: str, *, most: int) -> list[str]:
    """Return the names of offered tools that are most similar to a text, best first.

    Words are compared first, and whole names only of tools that share a similar word: comparing the text with thousands
    of long names would take seconds.
    """
    typed = [word for word in name_parts(text)[: search.MAX_QUERY_WORDS] if 0 < len(word) <= search.MAX_WORD_LENGTH]
    names = offered_tools().order_by("name").values_list("name", flat=True)[:MAX_COMPARED_NAMES] if typed else ()
    parts = {name: set(name_parts(name)) for name in names}
    known = sorted({part for own in parts.values() for part in own if len(part) > 2})
    near = {part for word in typed for part in difflib.get_close_matches(word, known)}
    shared = [name for name, own in parts.items() if own & near]
    shared.sort(key=lambda name: -len(parts[name] & near))
    return difflib.get_close_matches("_".join(typed), shared[:MAX_RANKED_NAMES], n=most)


def filtered_tools(condition: Q, sort: str) -> "QuerySet[Tool]":
    """Return the matching tools with only the columns that `sort` needs. `with_list_details` loads the rest."""
    rows = offered_tools().filter(condition).only("pk", "name")
    match sort.lstrip("-"):
        case "level":
            ranks = [When(current_version__safety_level=level, then=Value(rank)) for rank, level in enumerate(LEVELS)]
            return rows.annotate(level_rank=Case(*ranks, default=Value(0), output_field=IntegerField()))
        case "calls":
            return rows.annotate(call_count=recent_call_count())
    return rows


def with_list_details(tool_rows: Sequence[Tool], *, counted: bool = False) -> list[Tool]:
    """Return the tools of a page with version, source, categories and the time of the last call.

    If `counted`, they also have the numbers of recent calls and failures.
    """
    full = (
        Tool.objects.select_related("source", "current_version").prefetch_related("categories").defer(*DEFERRED_COLUMNS)
    )
    full = full.annotate(last_call_at=Subquery(_calls_of_outer_tool().order_by("-created_at").values("created_at")[:1]))
    if counted:
        full = full.annotate(call_count=recent_call_count(), failed_count=recent_call_count(status=CallStatus.FAILED))
    by_pk = full.in_bulk([row.pk for row in tool_rows])
    return [by_pk[row.pk] for row in tool_rows if row.pk in by_pk]


def _calls_of_outer_tool(**terms: object) -> "QuerySet[Call]":
    return Call.objects.filter(tool_name=OuterRef("name"), **terms).order_by()


def recent_call_count(**terms: object) -> Coalesce:
    """Count the calls of those days that pages display; counting a long history would be slow."""
    calls = _calls_of_outer_tool(created_at__gte=usage_window_start(), **terms).values("tool_name")
    return Coalesce(Subquery(calls.annotate(n=Count("*")).values("n")), 0)


def category_names() -> list[str]:
    used = Tool.categories.through.objects.filter(category=OuterRef("pk"), tool__registered=True)
    return list(Category.objects.filter(Exists(used)).values_list("name", flat=True))


def offering_sources() -> list[Source]:
    """Return the sources that offer tools or failed to load, by name."""
    offers = Tool.objects.filter(source=OuterRef("pk"), registered=True)
    found = Source.objects.annotate(offers=Exists(offers)).filter(Q(offers=True) | ~Q(error="")).order_by("name")
    return list(found.defer("document", "secrets", "tool_settings"))


def sort_column(sort: str) -> str:
    return sort.replace(sort.lstrip("-"), SORT_COLUMNS[sort.lstrip("-")])


def get_tool_row(name: str, condition: Q = NO_CONDITION) -> Tool:
    """Return the tool with this name, even if no source offers it any more. Raises Tool.DoesNotExist."""
    rows = Tool.objects.select_related("source", "current_version", "held_version").prefetch_related("categories")
    return rows.get(condition, name=name, current_version__isnull=False)


def tool_versions(tool: Tool, *, with_held: bool = False) -> "QuerySet[ToolVersion]":
    """Return the tool's versions. A held version that is not the current one is included only if `with_held`."""
    found = tool.versions.annotate(is_current=Q(pk=tool.current_version_id)).select_related("tool")
    held = tool.held_version_id
    return found if with_held or held in (None, tool.current_version_id) else found.exclude(pk=held)


def get_current_version(tool: Tool) -> ToolVersion:
    """Return the current version with its tool loaded. Raises ToolVersion.DoesNotExist."""
    return tool.versions.select_related("tool").get(pk=tool.current_version_id or 0)


def call_counts(tool: Tool) -> CallCounts:
    calls = Call.objects.filter(tool_name=tool.name)
    counted = calls.aggregate(
        calls=Count("*"),
        completed=Count("pk", filter=Q(status=CallStatus.COMPLETED)),
        failed=Count("pk", filter=Q(status=CallStatus.FAILED)),
    )
    latest = calls.order_by("-created_at").values_list("created_at", flat=True).first()
    return CallCounts(**counted, last_call_at=latest)


def callable_versions(condition: Q) -> "QuerySet[ToolVersion]":
    """Return the current versions of the matching tools that may be called directly, sorted by name."""
    current = ToolVersion.objects.filter(tool__current_version=F("pk")).exclude(tool__name__in=STEP_TOOLS)
    wanted = offered_tools().filter(condition & Q(in_use=True)).exclude(source__kind=Source.Kind.CLIENT)
    return current.filter(tool__in=wanted).select_related("tool").order_by("tool__name")
