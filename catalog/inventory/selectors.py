"""What is in the catalog: tools as lists and as one, each with a fixed number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Case, Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.http import Http404

from catalog.calls.statistics import since
from catalog.definitions.levels import SafetyLevel
from catalog.inventory import search
from catalog.models import Call, Category, Source, Tool, ToolVersion
from catalog.states import CallStatus

if TYPE_CHECKING:
    pass


def tool_or_404(name: str) -> Tool:
    """Return the tool of this name. Raises Http404."""
    try:
        return tool_named(name)
    except Tool.DoesNotExist:
        raise Http404 from None


LEVELS: Sequence[str] = [level.value for level in SafetyLevel]
SORTS = ("name", "-name", "level", "-level", "calls", "-calls")
# What a sort is called outside → the column that holds it.
COLUMNS = {"name": "name", "level": "level_rank", "calls": "call_count"}
# Long columns that no list shows.
UNLISTED = (
    *(f"current_version__{name}" for name in ("output_schema", "annotations")),
    *("examples", "declared_description", "description_override"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFilters:
    """What a list of tools is narrowed to; what is None or empty does not narrow."""

    q: str = ""
    category: Sequence[str] = ()
    safety_level: str | None = None
    max_level: str | None = None
    source: str | None = None
    enabled: bool | None = None

    def as_q(self) -> Q:
        """Return the condition."""
        condition = search.matching(self.q) if self.q else Q()
        if self.safety_level:
            condition &= Q(current_version__safety_level=self.safety_level)
        if self.max_level:
            allowed = LEVELS[: LEVELS.index(self.max_level) + 1]
            condition &= Q(current_version__safety_level__in=allowed)
        if self.source:
            condition &= Q(source__name=self.source)
        if self.enabled is not None:
            condition &= Q(enabled=self.enabled)
        if self.category:
            condition &= within_categories(self.category)
        return condition


def within_categories(names: Sequence[str]) -> Q:
    """Return the condition of tools that are in any of these categories."""
    having = Tool.categories.through.objects.filter(category__name__in=names)
    return Q(pk__in=having.values("tool_id"))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How the calls of a tool, or of one implementation, ended."""

    calls: int
    completed: int
    failed: int
    last_call_at: datetime | None = None


def offered() -> "QuerySet[Tool]":
    """Return the tools that a source offers and that have a version to show."""
    return Tool.objects.filter(registered=True, current_version__isnull=False)


def tools(condition: Q, sort: str) -> "QuerySet[Tool]":
    """Return the tools that fit, with what `sort` needs; `in_full` gives the rows of a page all the rest."""
    rows = offered().filter(condition).only("pk", "name")
    match sort.lstrip("-"):
        case "level":
            return rows.annotate(level_rank=_level_rank())
        case "calls":
            return rows.annotate(call_count=_calls_lately())
    return rows


def in_full(rows: Sequence[Tool], *, counted: bool = False) -> list[Tool]:
    """Return the tools of a page with version, source, categories and when they were last called.

    With `counted` also with how often, and with how many failures, in the last days.
    """
    full = Tool.objects.select_related("source", "current_version").prefetch_related("categories").defer(*UNLISTED)
    full = full.annotate(last_call_at=Subquery(_calls().order_by("-created_at").values("created_at")[:1]))
    if counted:
        full = full.annotate(call_count=_calls_lately(), failed_count=_calls_lately(status=CallStatus.FAILED))
    by_pk = full.in_bulk([row.pk for row in rows])
    return [by_pk[row.pk] for row in rows if row.pk in by_pk]


def _level_rank() -> Case:
    ranks = [When(current_version__safety_level=level, then=Value(rank)) for rank, level in enumerate(LEVELS)]
    return Case(*ranks, default=Value(0), output_field=IntegerField())


def _calls(**terms: object) -> "QuerySet[Call]":
    return Call.objects.filter(tool_name=OuterRef("name"), **terms).order_by()


def _calls_lately(**terms: object) -> Coalesce:
    """Count within the days that pages show, so that a long history costs nothing."""
    calls = _calls(created_at__gte=since(), **terms).values("tool_name")
    return Coalesce(Subquery(calls.annotate(n=Count("*")).values("n")), 0)


def category_names() -> list[str]:
    """Return the categories that tools are in."""
    used = Tool.categories.through.objects.filter(category=OuterRef("pk"), tool__registered=True)
    return list(Category.objects.filter(Exists(used)).values_list("name", flat=True))


def sources() -> list[Source]:
    """Return the sources that offer tools, and those that could not be loaded, by name."""
    offers = Tool.objects.filter(source=OuterRef("pk"), registered=True)
    return list(Source.objects.annotate(offers=Exists(offers)).filter(Q(offers=True) | ~Q(error="")).order_by("name"))


def order_of(sort: str) -> str:
    """Return the column of a sort, with its direction."""
    return sort.replace(sort.lstrip("-"), COLUMNS[sort.lstrip("-")])


def tool_named(name: str) -> Tool:
    """Return one tool with its version, also when nothing offers it any more. Raises Tool.DoesNotExist."""
    rows = Tool.objects.select_related("source", "current_version").prefetch_related("categories")
    return rows.get(name=name, current_version__isnull=False)


def versions_of(tool: Tool) -> "QuerySet[ToolVersion]":
    """Return the tool's versions."""
    return tool.versions.annotate(is_current=Q(pk=tool.current_version_id)).select_related("tool")


def current_version_of(tool: Tool) -> ToolVersion:
    """Return the version that is offered now, its tool at hand. Raises ToolVersion.DoesNotExist."""
    return tool.versions.select_related("tool").get(pk=tool.current_version_id or 0)


def usage_of(tool: Tool) -> Outcomes:
    """Return how the tool's calls ended."""
    calls = Call.objects.filter(tool_name=tool.name)
    counted = calls.aggregate(
        calls=Count("*"),
        completed=Count("pk", filter=Q(status=CallStatus.COMPLETED)),
        failed=Count("pk", filter=Q(status=CallStatus.FAILED)),
    )
    latest = calls.order_by("-created_at").values_list("created_at", flat=True).first()
    return Outcomes(**counted, last_call_at=latest)


def callable_versions(condition: Q) -> "QuerySet[ToolVersion]":
    """Return the current version of every tool that fits and may be called, by name."""
    current = ToolVersion.objects.filter(tool__current_version=F("pk"))
    wanted = offered().filter(condition, enabled=True)
    return current.filter(tool__in=wanted).select_related("tool").order_by("tool__name")
