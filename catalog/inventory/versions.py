"""Immutable versions of a tool. Only synchronisation and overrides write them, and only under `catalog_write_lock`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.db.models import F, Max, Q

from catalog import signals
from catalog.core.canonical_json import canonical_text, digest
from catalog.core.locks import LockSpace, lock_until_commit
from catalog.definitions.levels import Reversibility, SafetyLevel, annotations_for, default_reversibility
from catalog.definitions.tool import FINGERPRINT_COLUMNS
from catalog.definitions.tool import Tool as LoadedTool
from catalog.models import Call, CatalogState, Tool, ToolVersion
from catalog.states import CallStatus
from catalog.tools.registry import get_tool

UNFINGERPRINTED_COLUMNS = ("query_types", "output_key")


@contextmanager
def catalog_write_lock() -> Iterator[None]:
    """Open a transaction in which no other process can write the catalog. On SQLite, BEGIN IMMEDIATE suffices."""
    with transaction.atomic():
        lock_until_commit(LockSpace.CATALOG, "")
        yield


def bump_revision() -> None:
    """Increment the revision that all processes check each second, so that they read the catalog again."""
    CatalogState.objects.filter(pk=1).update(revision=F("revision") + 1)


def with_overrides(tool: "LoadedTool[Any, Any]", tool_row: Tool) -> "LoadedTool[Any, Any]":
    override = tool_row.description_override if tool.accepts_overrides else ""
    categories = tool.categories if tool_row.categories_override is None else tuple(tool_row.categories_override)
    return tool.with_changes(
        description=override or tool.description,
        safety_level=SafetyLevel(tool_row.level_override or tool.safety_level),
        categories=categories,
    )


def version_columns(tool: "LoadedTool[Any, Any]") -> dict[str, Any]:
    return {
        **{name: value for name, value in tool.contract().items() if name in FINGERPRINT_COLUMNS},
        "query_types": list(tool.query_types or ()),
        "output_key": tool.output_key or "",
    }


def effective_columns(tool_row: Tool) -> dict[str, Any]:
    """Return the columns of the current version with the tool's present overrides, whatever code is loaded here.

    If the code is not loaded, a reversibility other than the default of the level counts as declared by the author.
    """
    version = tool_row.current_version
    if version is None:
        raise ToolVersion.DoesNotExist(tool_row.name)
    override = tool_row.description_override if tool_row.accepts_overrides else ""
    level = SafetyLevel(tool_row.level_override or tool_row.declared_level or version.safety_level)
    declared = tool_row.declared_description if tool_row.declared_level else version.description
    reversibility: Reversibility | str = version.reversibility
    loaded = get_tool(tool_row.name)
    if loaded is not None:
        reversibility = loaded.reversibility_at(level)
    elif version.reversibility == default_reversibility(SafetyLevel(version.safety_level)):
        reversibility = default_reversibility(level)
    set_now = {
        "description": override or declared,
        "safety_level": str(level),
        "annotations": annotations_for(level, retry_safe=version.retry_safe),
        "reversibility": str(reversibility),
    }
    return {name: getattr(version, name) for name in (*FINGERPRINT_COLUMNS, *UNFINGERPRINTED_COLUMNS)} | set_now


def columns_fingerprint(name: str, columns: Mapping[str, Any]) -> str:
    return digest(canonical_text({"name": name} | {column: columns[column] for column in FINGERPRINT_COLUMNS}))


def publish_version(tool_row: Tool, columns: Mapping[str, Any]) -> bool:
    """Make the version with these columns the current one, creating it if needed; return whether it changed."""
    fingerprint = columns_fingerprint(tool_row.name, columns)
    if tool_row.current_version is not None and tool_row.current_version.fingerprint == fingerprint:
        return False
    tool_row.current_version = tool_row.versions.filter(fingerprint=fingerprint).first() or create_version(
        tool_row, fingerprint, columns
    )
    tool_row.save(update_fields=["current_version", "updated_at"])
    return True


def create_version(tool_row: Tool, fingerprint: str, columns: Mapping[str, Any]) -> ToolVersion:
    """Store the next version of a tool without making it the current one."""
    last = tool_row.versions.aggregate(last=Max("number"))["last"] or 0
    return ToolVersion.objects.create(tool=tool_row, number=last + 1, fingerprint=fingerprint, **columns)


def drift_fact(tool_row: Tool) -> signals.Fact | None:
    """Return the audit fact that waiting calls were made with an earlier version of the tool; None without any."""
    undecided = Q(status=CallStatus.HELD) | Q(status=CallStatus.READY, started_at=None)
    stale = Call.objects.filter(undecided, version__tool=tool_row).exclude(version=tool_row.current_version)
    numbers = sorted(set(stale.values_list("version__number", flat=True)))
    return signals.Fact("tool.drifted", data={**version_facts(tool_row), "stale": numbers}) if numbers else None


def version_facts(tool_row: Tool) -> dict[str, Any]:
    version = tool_row.current_version
    return {
        "tool": tool_row.name,
        "version": version.number if version else None,
        "fingerprint": version.fingerprint if version else None,
    }
