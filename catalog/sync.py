"""The registry becomes rows: tools, immutable versions, implementations, categories; says what changed.

Runs under one lock. Tools are never deleted: one that no loaded module offers is marked unregistered.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from django.db import connection, transaction
from django.db.models import F, Max, Q

from catalog import facts, snapshot
from catalog.models import Call, CatalogState, Category, Implementation, Source, Tool, ToolVersion
from catalog.registry import get_all_tools, initialize_tools
from catalog.snapshot import LoadedTool
from catalog.states import CallStatus

SYNC_LOCK = 0x746F6F6C67617465  # PostgreSQL's advisory locks are numbered; this one spells "toolgate".


@dataclass(frozen=True, slots=True)
class Changes:
    """The names of the tools that one sync touched."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    drifted: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, list[str]]:
        """Return the four lists by their names."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return one line per change: `added NAME`."""
        return [f"{word} {name}" for word, names in self.as_dict().items() for name in names]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def sync_tools() -> Changes:
    """Write the registered tools into the catalog, in one transaction; return what changed."""
    initialize_tools()
    changes = Changes()
    with transaction.atomic():
        _lock()
        rows = {row.name: row for row in Tool.objects.select_related("source", "current_version")}
        for tool in get_all_tools().values():
            _sync_tool(tool, rows.pop(tool.name, None), changes)
        _remove(rows.values(), changes)
        if changes:
            CatalogState.objects.filter(pk=1).update(revision=F("revision") + 1)
    snapshot.forget()
    return changes


def _lock() -> None:
    """Let one process sync at a time. SQLite's BEGIN IMMEDIATE already does."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [SYNC_LOCK])


def _sync_tool(tool: LoadedTool, row: Tool | None, changes: Changes) -> None:
    if row is None:
        _add(tool)
        changes.added.append(tool.name)
        return
    before = row.current_version
    touched = [_place(row, tool), _implement(row, tool), _categorise(row, tool), _promise(row, tool)]
    if not any(touched):
        return
    changes.changed.append(tool.name)
    _record("tool.changed", row)
    if before != row.current_version and _has_open_requests(row):
        changes.drifted.append(tool.name)
        _record("tool.drifted", row)


def _add(tool: LoadedTool) -> None:
    row = Tool.objects.create(name=tool.name, source=_source(tool))
    _implement(row, tool)
    _categorise(row, tool)
    _promise(row, tool)
    _record("tool.added", row)


def _place(row: Tool, tool: LoadedTool) -> bool:
    """Note where the tool comes from now; say whether that is new."""
    if row.registered and row.source.name == _module(tool):
        return False
    row.registered, row.source = True, _source(tool)
    row.save(update_fields=["registered", "source", "updated_at"])
    return True


def _source(tool: LoadedTool) -> Source:
    source, _ = Source.objects.get_or_create(name=_module(tool), defaults={"kind": Source.Kind.PYTHON, "trusted": True})
    return source


def _module(tool: LoadedTool) -> str:
    return tool.reference.partition(":")[0]


def _implement(row: Tool, tool: LoadedTool) -> bool:
    """Keep the code that serves the tool; say whether it is other code than before."""
    current = row.implementations.filter(reference=tool.reference, digest=tool.digest, enabled=True)
    if current.exists():
        return False
    row.implementations.filter(kind=Implementation.Kind.PYTHON).update(enabled=False)
    row.implementations.update_or_create(reference=tool.reference, defaults={"digest": tool.digest, "enabled": True})
    return True


def _categorise(row: Tool, tool: LoadedTool) -> bool:
    """Put the tool into its categories; say whether they are other ones than before."""
    wanted = set(tool.categories)
    if set(row.categories.values_list("name", flat=True)) == wanted:
        return False
    row.categories.set([Category.objects.get_or_create(name=name)[0] for name in sorted(wanted)])
    return True


def _promise(row: Tool, tool: LoadedTool) -> bool:
    """Point at the version with this contract, made when it is new; say whether it was another before."""
    if row.current_version is not None and row.current_version.fingerprint == tool.fingerprint:
        return False
    version = row.versions.filter(fingerprint=tool.fingerprint).first() or _new_version(row, tool)
    row.current_version = version
    row.save(update_fields=["current_version", "updated_at"])
    return True


def _new_version(row: Tool, tool: LoadedTool) -> ToolVersion:
    last = row.versions.aggregate(last=Max("number"))["last"] or 0
    return ToolVersion.objects.create(
        tool=row,
        number=last + 1,
        fingerprint=tool.fingerprint,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        query_types=list(tool.query_types or ()),
        safety_level=str(tool.safety_level),
        reversibility=str(tool.reversibility),
        retry_safe=tool.retry_safe,
        timeout=tool.timeout,
        output_key=tool.output_key or "",
        annotations=tool.annotations,
    )


def _has_open_requests(row: Tool) -> bool:
    """Say whether people are asked, or have agreed, to a call of an earlier version."""
    open_request = Q(status=CallStatus.HELD) | Q(status=CallStatus.READY, started_at=None)
    calls = Call.objects.filter(open_request, version__tool=row)
    return calls.exclude(version=row.current_version).exists()


def _remove(rows: Iterable[Tool], changes: Changes) -> None:
    for row in rows:
        if row.registered and row.source.kind == Source.Kind.PYTHON:
            row.registered = False
            row.save(update_fields=["registered", "updated_at"])
            changes.removed.append(row.name)
            _record("tool.removed", row)


def _record(kind: str, row: Tool) -> None:
    version = row.current_version
    facts.record(
        kind,
        tool=row.name,
        version=version.number if version else None,
        fingerprint=version.fingerprint if version else None,
    )
