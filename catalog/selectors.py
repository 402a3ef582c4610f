"""What is in the catalog: tools as lists and as one, each with a fixed number of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from catalog.definitions import SafetyLevel
from catalog.models import Call, Implementation, Tool, ToolVersion
from catalog.states import CallStatus

LEVELS: Sequence[str] = [level.value for level in SafetyLevel]
SORTS = ("name", "-name", "level", "-level", "calls", "-calls")
# What a sort is called outside → the column that holds it.
COLUMNS = {"name": "name", "level": "level_rank", "calls": "call_count"}


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
        condition = Q(registered=True)
        if self.q:
            condition &= Q(name__icontains=self.q) | Q(current_version__description__icontains=self.q)
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
            having = Tool.categories.through.objects.filter(category__name__in=self.category)
            condition &= Q(pk__in=having.values("tool_id"))
        return condition


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How the calls of a tool, or of one implementation, ended."""

    calls: int
    completed: int
    failed: int
    last_call_at: datetime | None = None


def tools(filters: ToolFilters) -> "QuerySet[Tool]":
    """Return the tools that fit, each with `level_rank`, `call_count`, `failed_count` and `last_call_at`."""
    calls = Call.objects.filter(tool_name=OuterRef("name")).order_by().values("tool_name")
    failed = calls.filter(status=CallStatus.FAILED)
    latest = Call.objects.filter(tool_name=OuterRef("name")).order_by("-id").values("created_at")[:1]
    ranks = [When(current_version__safety_level=level, then=Value(rank)) for rank, level in enumerate(LEVELS)]
    return (
        Tool.objects.filter(filters.as_q(), current_version__isnull=False)
        .select_related("source", "current_version")
        .prefetch_related("categories")
        .annotate(
            level_rank=Case(*ranks, default=Value(0), output_field=IntegerField()),
            call_count=Coalesce(Subquery(calls.annotate(n=Count("*")).values("n")), 0),
            failed_count=Coalesce(Subquery(failed.annotate(n=Count("*")).values("n")), 0),
            last_call_at=Subquery(latest),
        )
    )


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
    latest = calls.order_by("-id").values_list("created_at", flat=True).first()
    return Outcomes(**counted, last_call_at=latest)


def implementations_of(tool: Tool) -> "QuerySet[Implementation]":
    """Return the tool's implementations, each with `call_count`, `completed_count` and `failed_count`."""
    return tool.implementations.annotate(
        call_count=Count("calls"),
        completed_count=Count("calls", filter=Q(calls__status=CallStatus.COMPLETED)),
        failed_count=Count("calls", filter=Q(calls__status=CallStatus.FAILED)),
    ).order_by("pk")


def callable_versions() -> "QuerySet[ToolVersion]":
    """Return the current version of every tool that may be called, by name."""
    current = ToolVersion.objects.filter(tool__current_version=F("pk"))
    return current.filter(tool__enabled=True, tool__registered=True).select_related("tool").order_by("tool__name")
