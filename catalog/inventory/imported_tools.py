"""Rows of imported tools: their names, and the definition that is called and shown."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import TextField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from catalog import signals
from catalog.core.canonical_json import canonical_text, digest
from catalog.definitions.levels import SafetyLevel
from catalog.inventory import search
from catalog.inventory.sync import level_change_fact
from catalog.inventory.versions import bump_revision, publish_version, version_columns, version_facts, with_overrides
from catalog.models import Category, Implementation, Source, Tool
from catalog.sources.definitions import Definition, catalog_names
from catalog.sources.loading import build_tool
from catalog.sources.settings import settings_of
from catalog.tools.registry import get_all_tools

TOOLS_AT_ONCE = 50
"""Tools that one transaction writes."""


def publish_changes(told: Sequence[signals.Fact], *, is_changed: bool) -> None:
    """Let processes read the catalog again if it changed, and record the facts."""
    search.index_changed_tools()
    if is_changed:
        bump_revision()
    for fact in told:  # last: each waits for the head of the audit log
        signals.record_fact(fact.kind, **fact.data)


def rows_by_upstream(source: Source, only: Sequence[str] | None = None) -> dict[str, Tool]:
    rows = source.tools.select_related("current_version", "held_version")
    rows = rows.prefetch_related("implementations", "categories")
    if only is not None:
        upstream = Cast(KT("definition__upstream"), TextField())
        rows = rows.alias(upstream=upstream).filter(upstream__in=list(only))
    return {row.definition["upstream"]: row for row in rows if row.definition is not None}


def names_for(source: Source, definitions: Sequence[Definition], rows: Mapping[str, Tool]) -> dict[str, str]:
    kept = {each.upstream: rows[each.upstream].name for each in definitions if each.upstream in rows}
    taken = {*Tool.objects.exclude(name__in=kept.values()).values_list("name", flat=True), *get_all_tools()}
    return catalog_names(source.name, [each.upstream for each in definitions], kept=kept, taken=taken)


def level_facts(row: Tool) -> dict[str, Any]:
    """Return the properties of a tool that facts contain which may explain a lower level."""
    return {**version_facts(row), "level": row.current_version.safety_level if row.current_version else None}


def is_same_offer(known: Definition, offered: Definition) -> bool:
    """Return whether the upstream says the same as before; level and timeout follow from the source's settings."""
    return _offer(known) == _offer(offered)


def _offer(definition: Definition) -> str:
    if definition.offered_digest:  # of all that an MCP server says, however this version of Toolgate reads it
        return definition.offered_digest
    return canonical_text(
        replace(definition, safety_level="", why="", timeout=0.0, categories=(), retry_safe=False).as_json()
    )


def offer_digest(definition: Definition) -> str:
    return digest(_offer(definition))


def override_beside(row: Tool, definition: Definition) -> str:
    """Return the override of the level that stays when a definition is taken up.

    An upstream that becomes more dangerous overrules a lower level that an administrator set before.
    """
    declared = SafetyLevel(definition.safety_level)
    is_raised = bool(row.declared_level) and declared.rank > SafetyLevel(row.declared_level).rank
    is_lower = bool(row.level_override) and SafetyLevel(row.level_override).rank < declared.rank
    return "" if is_raised and is_lower else row.level_override


def take_up_definition(row: Tool, definition: Definition) -> list[signals.Fact]:
    """Make a definition the one that is called and shown, and publish its version.

    Return what the audit log keeps of a level that an administrator set and that does not stand any more.
    """
    reached = settings_of(row.source)
    before, override = row.declared_level, row.level_override
    row.level_override = override_beside(row, definition)
    row.definition, row.held_definition, row.held_version = definition.as_json(), None, None
    row.declared_description, row.declared_level = definition.description, definition.safety_level
    row.registered = True
    row.save()
    tool = build_tool(row.name, definition, reached)
    _write_implementation(row, tool.reference, tool.digest)
    if row.categories_override is None:
        row.categories.set([Category.objects.get_or_create(name=each)[0] for each in definition.categories])
    publish_version(row, version_columns(with_overrides(tool, row)))
    return [level_change_fact(row, before)] if row.level_override != override else []


def _write_implementation(row: Tool, reference: str, digest: str) -> None:
    kind = Implementation.Kind.MCP if (row.definition or {}).get("kind") == "mcp" else Implementation.Kind.HTTP
    row.implementations.exclude(reference=reference).filter(registered=True).update(registered=False)
    row.implementations.update_or_create(
        reference=reference, defaults={"kind": kind, "digest": digest, "registered": True}
    )


def refresh_implementations(source: Source) -> None:
    """Write the digests of a source's tools again: they cover where calls go."""
    reached = settings_of(source)
    for row in source.tools.filter(definition__isnull=False):
        tool = build_tool(row.name, Definition.from_json(row.definition or {}), reached)
        _write_implementation(row, tool.reference, tool.digest)
