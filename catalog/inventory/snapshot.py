"""In-memory snapshot of the tools that this process may call, at most a second behind the catalog. Never writes."""

import threading
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate
from operator import attrgetter
from time import monotonic
from typing import Any, cast

from django.db.models import Q

from catalog.access.limits import Limits, breaches_of, tools_within
from catalog.definitions.grant_limits import GrantLimits
from catalog.definitions.tool import Tool as DeclaredTool
from catalog.errors import NoImplementation, SchemaProblem, ToolError, ToolRemoved
from catalog.inventory.versions import with_overrides
from catalog.models import CatalogState, Tool, ToolVersion
from catalog.sources.loading import load_imported_tools
from catalog.tools.registry import get_all_tools, get_tool, loaded_variants, set_imported_tools, unknown_tool_error

SNAPSHOT_SECONDS = 1.0
"""Seconds for which a process uses its copy of the catalog and of the policies before it checks for changes."""

LoadedTool = DeclaredTool[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableTool:
    """A loaded tool joined with its rows and overrides, with one of its implementations.

    `drifted` is true if the loaded code differs from the rows. `implementation_pk` is None if no implementation is
    available. If there are several, `options` has this tool with each, and `bounds` their cumulative weights.
    """

    tool: LoadedTool
    tool_pk: int
    version_pk: int
    version_number: int
    fingerprint: str
    implementation_pk: int | None
    implementation_digest: str
    enabled: bool
    categories: frozenset[str]
    source: str
    drifted: bool
    held: bool = False
    """True while a change of the definition waits for acceptance; the tool cannot be called until then."""
    grant_limits: GrantLimits | None = None
    later: LoadedTool | None = None
    """The tool with the catalog's contract, if this is a later version than that of the loaded code; else None."""
    options: tuple["CallableTool", ...] = ()
    bounds: tuple[int, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True if the tool is enabled and served here, with the code of the catalog and without a held change."""
        is_served = not self.tool.runs_in_client and (self.implementation_pk is not None or any(self.bounds))
        return self.enabled and is_served and not self.drifted and not self.held

    def with_catalog_contract(self) -> "CallableTool | None":
        """Return the tool with the catalog's contract; None if the code here is newer than the last synchronisation."""
        if self.fingerprint == self.tool.fingerprint:
            return self
        return replace(self, tool=self.later) if self.later is not None else None

    def select_implementation(self, plan_ref: str, kept: int | None = None) -> "CallableTool":
        """Return the tool with the implementation `kept` if it is still active, otherwise with one chosen by weight.

        A plan always gets the same implementation unless the weights change. Raises NoImplementation.
        """
        if not self.options and self.implementation_pk is not None:
            return self
        if kept is not None:
            for option in self.options:
                if option.implementation_pk == kept:
                    return option
        if not self.bounds or not self.bounds[-1]:
            raise NoImplementation(self.tool.name)
        drawn = blake2b(f"{plan_ref} {self.tool.name}".encode(), digest_size=8).digest()
        return self.options[bisect_right(self.bounds, int.from_bytes(drawn) % self.bounds[-1])]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    revision: int = -1
    checked_at: float = float("-inf")
    tools: Mapping[str, CallableTool] = field(default_factory=dict)


_EMPTY_SNAPSHOT = _Snapshot()
_snapshot = _EMPTY_SNAPSHOT
_refresh_lock = threading.Lock()


def callable_tool(name: str) -> CallableTool | None:
    """Return the callable tool with this name; None if it is not loaded or not in the catalog."""
    view = _snapshot
    if monotonic() - view.checked_at > SNAPSHOT_SECONDS:
        view = _refresh()
    return view.tools.get(name)


def loaded_tool(name: str) -> LoadedTool | None:
    """Return the declaration of a tool for display. Unlike `registry.get_tool`, it always finds imported tools."""
    if (known := get_tool(name)) is not None:
        return known
    found = callable_tool(name)
    return found.tool if found is not None else None


def missing_tool_error(name: str, limits: Limits | None = None) -> ToolError:
    """Return the error for a name that `callable_tool` does not know: the tool was removed, or never existed.

    The error names no tool and no source outside the limits of the token that asks.
    """
    removed = Tool.objects.filter(tools_within(limits), registered=False).select_related("source")
    named = removed.only("name", "source__name").filter(name=name)
    tool_row = named.first() if "\0" not in name else None  # PostgreSQL cannot compare it
    if tool_row is not None:
        return ToolRemoved(tool_row.name, tool_row.source.name)
    return unknown_tool_error(name, among=None if limits is None else _names_within(limits))


def _names_within(limits: Limits) -> list[str]:
    return [
        name
        for name, each in callable_tools().items()
        if not breaches_of(limits, level=each.tool.safety_level, categories=each.tool.categories, source=each.source)
    ]


def callable_tools() -> Mapping[str, CallableTool]:
    view = _snapshot
    if monotonic() - view.checked_at > SNAPSHOT_SECONDS:
        view = _refresh()
    return view.tools


def last_read(name: str) -> CallableTool | None:
    """Return the tool from the current snapshot without a database query, as an event loop requires."""
    return _snapshot.tools.get(name)


def drop_snapshot() -> None:
    """Discard the snapshot, because this process has just changed the rows."""
    global _snapshot  # a single reference, replaced atomically: readers need no lock
    with _refresh_lock:
        _snapshot = _EMPTY_SNAPSHOT


def _refresh() -> _Snapshot:
    global _snapshot  # as above
    old = _snapshot
    if not _refresh_lock.acquire(blocking=old is _EMPTY_SNAPSHOT):
        return old
    try:
        if monotonic() - _snapshot.checked_at > SNAPSHOT_SECONDS:
            _snapshot = _load_snapshot(_snapshot)
        return _snapshot
    finally:
        _refresh_lock.release()


def _load_snapshot(old_snapshot: _Snapshot) -> _Snapshot:
    now = monotonic()
    revision = CatalogState.objects.values_list("revision", flat=True).get(pk=1)
    if revision == old_snapshot.revision:
        return _Snapshot(revision, now, old_snapshot.tools)
    callable_rows = (
        Tool.objects.filter(registered=True, current_version__isnull=False)
        .select_related("current_version", "source")
        .defer("source__document", "source__tool_settings")  # up to 20 MB, which each tool of the source would load
        .prefetch_related("implementations", "categories")
    )
    rows = list(callable_rows.filter(Q(name__in=get_all_tools()) | Q(definition__isnull=False)))
    imported = load_imported_tools(tool_row for tool_row in rows if tool_row.definition is not None)
    set_imported_tools(imported)
    loaded = get_all_tools() | imported
    rows = [tool_row for tool_row in rows if tool_row.name in loaded]
    return _Snapshot(revision, now, {tool_row.name: _join_tool(loaded[tool_row.name], tool_row) for tool_row in rows})


def _join_tool(tool: LoadedTool, tool_row: Tool) -> CallableTool:
    """Join a loaded tool with its rows. If it has several active implementations, `options` has one tool for each."""
    loaded = with_overrides(tool, tool_row)
    version = cast("ToolVersion", tool_row.current_version)
    drifted = version.fingerprint != loaded.fingerprint
    whole = CallableTool(
        tool=loaded,
        tool_pk=tool_row.pk,
        version_pk=version.pk,
        version_number=version.number,
        fingerprint=version.fingerprint,
        implementation_pk=None,
        implementation_digest="",
        enabled=tool_row.enabled and tool_row.source.enabled,
        held=tool_row.held_version_id is not None,
        categories=frozenset(category.name for category in tool_row.categories.all()),
        source=tool_row.source.name,
        drifted=drifted,
        grant_limits=tool_row.grant_limits,
        later=_newer_tool(loaded, tool_row, version) if drifted else None,
    )
    in_use = [each for each in tool_row.implementations.all() if each.registered and each.enabled]
    in_use.sort(key=attrgetter("pk"))
    codes = {reference: with_overrides(code, tool_row) for reference, code in loaded_variants(tool).items()}
    options = tuple(
        replace(
            whole,
            tool=codes.get(each.reference, loaded),
            implementation_pk=each.pk,
            implementation_digest=each.digest,
            # Also if this process has different code for the implementation, or none.
            drifted=drifted or each.reference not in codes or codes[each.reference].digest != each.digest,
        )
        for each in in_use
    )
    if len(options) == 1 and in_use[0].weight:
        return options[0]
    return replace(
        whole,
        drifted=drifted or any(option.drifted for option in options),
        options=options,
        bounds=tuple(accumulate(each.weight for each in in_use)),
    )


def _newer_tool(tool: LoadedTool, tool_row: Tool, version: ToolVersion) -> LoadedTool | None:
    """Return the tool with the catalog's contract, if the loaded code has an earlier version of it; else None."""
    if not tool_row.versions.filter(fingerprint=tool.fingerprint).exists():
        return None
    contract = {name: getattr(version, name) for name in ("description", "input_schema", "safety_level")}
    try:
        later = tool.with_contract(contract, query_types=version.query_types)
    except SchemaProblem:  # this older code accepts fewer schemas
        return None
    later.categories = tuple(sorted(category.name for category in tool_row.categories.all()))
    return later
