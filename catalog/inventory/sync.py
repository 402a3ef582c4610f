"""Synchronisation of the registry with the database: tools, immutable versions, implementations, categories.

Runs under one lock and deletes nothing. If code lowers a level, the old level stays until an administrator agrees.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from django.conf import settings

from catalog import signals
from catalog.core import clock
from catalog.definitions.examples import serialize_examples
from catalog.definitions.levels import SafetyLevel
from catalog.errors import ToolDefinitionError
from catalog.inventory import search, snapshot
from catalog.inventory.snapshot import LoadedTool
from catalog.inventory.versions import (
    bump_revision,
    catalog_write_lock,
    drift_fact,
    publish_version,
    version_columns,
    version_facts,
    with_overrides,
)
from catalog.models import Call, Category, Implementation, Source, Tool
from catalog.signals import Fact
from catalog.tools.registry import SHIPPED_PACKAGE, broken_modules, get_all_tools, initialize_tools, loaded_variants

MAX_SOURCE_NAME = 128


@dataclass(frozen=True, slots=True)
class SyncResult:
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    drifted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Sentences about tools that an upstream offers but that could not be imported."""

    def as_dict(self) -> dict[str, list[str]]:
        return {name: names for name, names in asdict(self).items() if name != "problems"}

    def merged(self, other_result: "SyncResult") -> "SyncResult":
        mine, others = asdict(self), asdict(other_result)
        return SyncResult(**{name: [*mine[name], *others[name]] for name in mine})

    def count(self) -> int:
        return sum(map(len, self.as_dict().values()))

    def lines(self) -> list[str]:
        """Return one line for each change, such as `added NAME`."""
        return [f"{word} {name}" for word, names in self.as_dict().items() for name in names]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def sync_tools() -> SyncResult:
    """Load this process's tools and synchronise the catalog; return the changes."""
    initialize_tools()
    return sync_registered_tools()


def sync_registered_tools() -> SyncResult:
    """Synchronise the catalog with the registered tools, in one transaction; return the changes.

    Raises ToolDefinitionError if a module has the name of an imported source, since both would use the same row.
    """
    result, facts = SyncResult(), list[Fact]()
    with catalog_write_lock():
        imported = Source.objects.exclude(kind=Source.Kind.PYTHON).filter(name__in=loaded_modules()).first()
        if imported is not None:
            raise ToolDefinitionError(f"There is an imported source called {imported.name}: rename the Python module.")
        known = set(Source.objects.values_list("pk", flat=True))
        # Why a module could not be loaded is shown on the tools page until it loads.
        broken = {name[:MAX_SOURCE_NAME]: why for name, why in broken_modules().items()}
        for name, why in broken.items():
            Source.objects.update_or_create(
                name=name, defaults={"error": why}, create_defaults=_python_source_defaults(error=why)
            )
        Source.objects.filter(kind=Source.Kind.PYTHON).exclude(name__in=broken).exclude(error="").update(error="")
        tool_rows = Tool.objects.select_related("source", "current_version")
        rows = {tool_row.name: tool_row for tool_row in tool_rows.prefetch_related("implementations", "categories")}
        for name in get_all_tools().keys() & rows.keys():
            tool_row = rows[name]
            # Python code may take the name of an imported tool, which gets another at the next sync of its source.
            if tool_row.definition is not None:
                tool_row.definition = tool_row.held_definition = tool_row.held_version = None
                tool_row.save(update_fields=["definition", "held_definition", "held_version", "updated_at"])
                tool_row.implementations.update(registered=False)
                Source.objects.filter(pk=tool_row.source_id).update(sync_requested_at=clock.now())
        enabled = list(_enable_named_sets())
        facts += enabled
        for tool in get_all_tools().values():
            facts += _sync_tool(tool, rows.pop(tool.name, None), result)
        for tool_row in rows.values():  # no loaded module offers it
            if tool_row.registered and tool_row.source.kind == Source.Kind.PYTHON:
                tool_row.registered = False
                tool_row.save(update_fields=["registered", "updated_at"])
                result.removed.append(tool_row.name)
                facts.append(Fact("tool.removed", data=version_facts(tool_row)))
        search.index_changed_tools()
        if result or enabled:
            bump_revision()
        # Last: each locks the head of the audit log, and calls then wait for this transaction.
        for source in Source.objects.exclude(pk__in=known).order_by("pk"):
            record_source(source)
        for fact in facts:
            signals.record_fact(fact.kind, **fact.data)
    snapshot.drop_snapshot()
    return result


def _python_source_defaults(error: str = "") -> dict[str, object]:
    return {"kind": Source.Kind.PYTHON, "trusted": True, "error": error}


def _enable_named_sets() -> Iterator[Fact]:
    """Enable the shipped sets in TOOLGATE_TOOLS, but not those that an administrator has enabled or disabled before."""
    named = [name for name in settings.TOOLGATE_TOOLS if is_shipped_set(name)]
    for source in Source.objects.filter(name__in=named, enabled=False, switched_at=None):
        source.enabled = True
        source.save(update_fields=["enabled"])
        facts = {"fields": ["enabled"], "changes": {"enabled": [False, True]}, "setting": "TOOLGATE_TOOLS"}
        yield Fact("source.changed", data={"source": source.name, **facts})


def is_shipped_set(name: str) -> bool:
    return name.rpartition(".")[0] == SHIPPED_PACKAGE


def _sync_tool(tool: LoadedTool, tool_row: Tool | None, result: SyncResult) -> Iterator[Fact]:
    if tool_row is None:
        result.added.append(tool.name)
        tool_row = Tool.objects.create(name=tool.name, source=_get_or_create_source(tool))
        for step in (_sync_implementations, _sync_categories, _sync_declaration, _sync_version):
            step(tool_row, tool)
        yield Fact("tool.added", data=version_facts(tool_row))
        return
    before, level = tool_row.current_version, tool_row.level_override
    is_moved = not tool_row.registered or tool_row.source.name != _module_name(tool)
    if is_moved:
        tool_row.registered, tool_row.source = True, _get_or_create_source(tool)
        tool_row.save(update_fields=["registered", "source", "updated_at"])
    touched = [
        is_moved,
        _sync_implementations(tool_row, tool),
        _sync_categories(tool_row, tool),
        _sync_declaration(tool_row, tool),
        _sync_version(tool_row, tool),
    ]
    if tool_row.level_override != level:
        yield level_change_fact(tool_row, level)
    if not any(touched):
        return
    result.changed.append(tool.name)
    yield Fact("tool.changed", data=version_facts(tool_row))
    drift = drift_fact(tool_row) if before != tool_row.current_version else None
    if drift is not None:
        result.drifted.append(tool.name)
        yield drift


def _get_or_create_source(tool: LoadedTool) -> Source:
    """Return a tool's source. A new shipped set is disabled, unless TOOLGATE_TOOLS names it or the tool has calls."""
    name = _module_name(tool)
    source = Source.objects.filter(name=name).first()
    if source is None:
        is_asked_for = not is_shipped_set(name) or name in settings.TOOLGATE_TOOLS
        enabled = is_asked_for or Call.objects.filter(tool_name=tool.name).exists()
        source = Source.objects.create(name=name, enabled=enabled, **_python_source_defaults())
    return source


def record_source(source: Source) -> None:
    """Record in the audit log a source that nobody added: a Python module, or the source of HTTP tools."""
    signals.record_fact("source.created", source=source.name, kind_of_source=source.kind, trusted=source.trusted)


def loaded_modules() -> set[str]:
    """Return the names of the modules that this process loaded tools from, or failed to load."""
    return {*broken_modules(), *map(_module_name, get_all_tools().values())}


def _module_name(tool: LoadedTool) -> str:
    return tool.reference.partition(":")[0]


def _sync_implementations(tool_row: Tool, tool: LoadedTool) -> bool:
    """Store the implementations in the code; return whether they changed. Only administrators change weights."""
    known = {each.reference: each for each in tool_row.implementations.all() if each.kind == Implementation.Kind.PYTHON}
    codes = loaded_variants(tool)
    now = {reference: (code.digest, True) for reference, code in codes.items()}
    now |= {reference: (each.digest, False) for reference, each in known.items() if reference not in codes}
    before = {reference: (each.digest, each.registered) for reference, each in known.items()}
    for reference, (digest, registered) in now.items():
        if before.get(reference) != (digest, registered):
            values = {"digest": digest, "registered": registered}
            tool_row.implementations.update_or_create(reference=reference, defaults=values)
    return now != before


def _sync_categories(tool_row: Tool, tool: LoadedTool) -> bool:
    wanted = set(tool.categories if tool_row.categories_override is None else tool_row.categories_override)
    if {category.name for category in tool_row.categories.all()} == wanted:
        return False
    tool_row.categories.set([Category.objects.get_or_create(name=name)[0] for name in sorted(wanted)])
    return True


def _sync_declaration(tool_row: Tool, tool: LoadedTool) -> bool:
    level = _level_override(tool_row, tool.safety_level)
    declared = {
        "declared_description": tool.description,
        "declared_level": str(tool.safety_level),
        "level_override": str(level or ""),
        "accepts_overrides": tool.accepts_overrides,
        "returns_private_data": tool.returns_private_data,
        "examples": serialize_examples(tool),
    }
    before = {name: getattr(tool_row, name) for name in declared}
    if before == declared:
        return False
    for name, value in declared.items():
        setattr(tool_row, name, value)
    tool_row.save(update_fields=[*declared, "updated_at"])
    return bool(before["declared_level"])


def _level_override(tool_row: Tool, declared_level: SafetyLevel) -> SafetyLevel | None:
    """Return the level override that applies, or None.

    A higher level in the code applies at once and ends a lower override. After a lower level in the code, the old level
    stays as an override.
    """
    version = tool_row.current_version
    was = SafetyLevel(tool_row.declared_level or (version.safety_level if version else declared_level))
    stands = SafetyLevel(tool_row.level_override or was)
    if declared_level == was:
        return SafetyLevel(tool_row.level_override) if tool_row.level_override else None
    if declared_level.rank > was.rank and stands.rank < declared_level.rank:
        return None
    return stands if stands != declared_level else None


def level_change_fact(tool_row: Tool, before: str) -> Fact:
    """Return the audit fact about a new declared level: the old level stays as override, or an override has ended."""
    kind = "tool.level_kept" if tool_row.level_override else "tool.level_raised"
    level = tool_row.level_override or tool_row.declared_level
    data = {"tool": tool_row.name, "declared": tool_row.declared_level, "level": level, "before": before or None}
    return Fact(kind, data=data)


def _sync_version(tool_row: Tool, tool: LoadedTool) -> bool:
    return publish_version(tool_row, version_columns(with_overrides(tool, tool_row)))
