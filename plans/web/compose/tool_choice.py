"""The choice of a step's tool in the plan builder: search, what each tool asks, and the state of the chosen one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from catalog.inventory.search import MAX_QUERY_LENGTH, matching_words, name_match_rank
from catalog.inventory.selectors import offered_tools, similar_tool_names
from catalog.models import Source, Tool, ToolVersion
from catalog.schemas.description import parameter_tables
from catalog.schemas.resolver import SchemaMapping
from catalog.tools.registry import PLANNER_CATEGORY

MAX_HITS = 20
MAX_SIMILAR = 3
MAX_ASKED = 5
NO_SCHEMA: SchemaMapping = {"type": "object"}


@dataclass(frozen=True, slots=True)
class ToolHit:
    name: str
    level: str
    description: str
    asks: str
    is_used: bool = False


def find_tools(text: str, used: Sequence[str] = ()) -> tuple[list[ToolHit], int]:
    """Return at most MAX_HITS tools that match all words of a text, and how many more match.

    Without a text, the tools that the plan uses come first.
    """
    text = text.replace("\0", " ").strip()[:MAX_QUERY_LENGTH]
    found = offered_tools().filter(Q(in_use=True)).exclude(categories__name=PLANNER_CATEGORY)
    found = found.exclude(source__kind=Source.Kind.CLIENT)  # no plan runs these
    if text:
        in_category = Tool.categories.through.objects.filter(category__name__icontains=text).values("tool_id")
        found = found.filter(matching_words(text) | Q(pk__in=in_category))
        found = found.order_by(name_match_rank(text), "name")
    else:
        found = found.order_by("name")
    used = [name for name in used if "\0" not in name]
    columns = ("name", "current_version_id")
    listed = dict(found.filter(name__in=used).values_list(*columns)) if used and not text else {}
    rows = {name: listed[name] for name in dict.fromkeys(used) if name in listed}
    rows |= dict(found.exclude(name__in=rows).values_list(*columns)[:MAX_HITS])
    shown = dict(list(rows.items())[:MAX_HITS])
    versions = ToolVersion.objects.defer("output_schema", "annotations").in_bulk(shown.values())
    hits = [
        ToolHit(name, version.safety_level, version.description, what_it_asks(version), name in listed)
        for name, pk in shown.items()
        if (version := versions.get(pk)) is not None
    ]
    return hits, max(0, found.count() - len(hits))


def what_it_asks(version: ToolVersion) -> str:
    """Return a sentence about the parameters that a call must have."""
    if version.query_types:
        names = list(version.query_types)
        return _("Asks for a kind of query: %(names)s.") % {"names": _listed(names)}
    table = parameter_tables(version.input_schema)[0]
    required = [row.name for row in table.rows if row.depth == 0 and row.required]
    if required:
        return _("Asks for %(names)s.") % {"names": _listed(required)}
    count = table.top_count
    if not count:
        return _("Asks for nothing.")
    return ngettext("Takes %(count)d optional value.", "Takes %(count)d optional values.", count) % {"count": count}


def _listed(names: Sequence[str]) -> str:
    shown = [name[:40] for name in names[:MAX_ASKED]]
    if len(names) > MAX_ASKED:
        shown.append(_("%(count)d more") % {"count": len(names) - MAX_ASKED})
    return ", ".join(shown)


@dataclass(kw_only=True)
class ChosenTool:
    """The tool of a step, by its name in the document; `number` is the version whose form a person filled in."""

    name: str = ""
    number: int | None = None
    hits: Sequence[ToolHit] = field(default=())
    more: int = 0

    @cached_property
    def row(self) -> Tool | None:
        if not self.name or "\0" in self.name:  # PostgreSQL refuses to look for it
            return None
        known = Tool.objects.select_related("source", "current_version").filter(current_version__isnull=False)
        return known.filter(name=self.name).first()

    @property
    def version(self) -> ToolVersion | None:
        return self.row.current_version if self.row else None

    @property
    def level(self) -> str:
        return self.version.safety_level if self.version else ""

    @property
    def schema(self) -> SchemaMapping:
        """The current schema of the arguments; that of an unknown tool takes any."""
        return self.version.input_schema if self.version else NO_SCHEMA

    @cached_property
    def filled_schema(self) -> SchemaMapping:
        """The schema of the version whose form was filled in."""
        if self.row is None or self.number in (None, self.version.number if self.version else None):
            return self.schema
        old = self.row.versions.filter(number=self.number).first()
        return old.input_schema if old else self.schema

    @property
    def can_run(self) -> bool:
        row = self.row
        return row is not None and row.registered and row.enabled and row.source.enabled

    @property
    def asks(self) -> str:
        return what_it_asks(self.version) if self.version else ""

    @cached_property
    def problem(self) -> str:
        """The reason why the step could not call the tool, or an empty string."""
        if not self.name or self.can_run:
            return ""
        if self.row is None:
            return _("There is no tool with this name.")
        if not self.row.registered:
            return _("No source offers this tool any more. Its form shows the last known version.")
        return _("This tool is disabled: the step will fail unless it is enabled again.")

    @cached_property
    def similar(self) -> list[str]:
        """The names of similar tools in place of one that does not exist."""
        if not self.name or (self.row is not None and self.row.registered):
            return []
        return [name for name in similar_tool_names(self.name, most=MAX_SIMILAR) if name != self.name]


def query_type_of(arguments: Mapping[str, Any]) -> str:
    """Return the query type that the arguments of a tool name, or an empty string."""
    query_type = arguments.get("query_type")
    return query_type if isinstance(query_type, str) else ""
