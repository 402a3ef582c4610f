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
from catalog.sources.definitions import Definition
from catalog.sources.loading import build_tool
from catalog.sources.settings import settings_of
from catalog.sources.tool_names import catalog_names
from catalog.tools.registry import get_all_tools

TOOLS_AT_ONCE = 50
"""Tools that one transaction writes."""


def publish_changes(facts: Sequence[signals.Fact], *, is_changed: bool) -> None:
    """Record facts in the audit log, and if anything changed, make all processes read the catalog again."""
    search.index_changed_tools()
    if is_changed:
        bump_revision()
    for fact in facts:  # last: each waits for the head of the audit log
        signals.record_fact(fact.kind, by=fact.by, **fact.data)


def rows_by_upstream(source: Source, only: Sequence[str] | None = None) -> dict[str, Tool]:
    rows = source.tools.select_related("current_version", "held_version")
    rows = rows.prefetch_related("implementations", "categories")
    if only is not None:
        upstream = Cast(KT("definition__upstream"), TextField())
        rows = rows.alias(upstream=upstream).filter(upstream__in=list(only))
    return {tool_row.definition["upstream"]: tool_row for tool_row in rows if tool_row.definition is not None}


def names_for(source: Source, definitions: Sequence[Definition], tool_rows: Mapping[str, Tool]) -> dict[str, str]:
    kept = {each.upstream: tool_rows[each.upstream].name for each in definitions if each.upstream in tool_rows}
    taken = {*Tool.objects.exclude(name__in=kept.values()).values_list("name", flat=True), *get_all_tools()}
    return catalog_names(source.name, [each.upstream for each in definitions], kept=kept, taken=taken)


def level_facts(tool_row: Tool) -> dict[str, Any]:
    """Return the audit facts about a tool, with its level."""
    return {
        **version_facts(tool_row),
        "level": tool_row.current_version.safety_level if tool_row.current_version else None,
    }


def is_same_offer(known_definition: Definition, offered_definition: Definition) -> bool:
    """Return whether the upstream offers the same. Ignores level and timeout, which the source's settings decide."""
    return _offer(known_definition) == _offer(offered_definition)


def _offer(definition: Definition) -> str:
    if definition.offered_digest:  # of all that an MCP server says, however this version of Toolgate reads it
        return definition.offered_digest
    return canonical_text(
        replace(definition, safety_level="", why="", timeout=0.0, categories=(), retry_safe=False).as_json()
    )


def offer_digest(definition: Definition) -> str:
    return digest(_offer(definition))


def override_beside(tool_row: Tool, definition: Definition) -> str:
    """Return the administrator's level override that remains after a new definition is accepted; empty for none.

    If the upstream declares a higher level than before, a lower override ends.
    """
    declared = SafetyLevel(definition.safety_level)
    is_raised = bool(tool_row.declared_level) and declared.rank > SafetyLevel(tool_row.declared_level).rank
    is_lower = bool(tool_row.level_override) and SafetyLevel(tool_row.level_override).rank < declared.rank
    return "" if is_raised and is_lower else tool_row.level_override


def take_up_definition(tool_row: Tool, definition: Definition) -> list[signals.Fact]:
    """Make a definition the current one and publish its version; return the facts to record if an override ends."""
    reached = settings_of(tool_row.source)
    before, override = tool_row.declared_level, tool_row.level_override
    tool_row.level_override = override_beside(tool_row, definition)
    tool_row.definition, tool_row.held_definition, tool_row.held_version = definition.as_json(), None, None
    tool_row.declared_description, tool_row.declared_level = definition.description, definition.safety_level
    tool_row.registered = True
    tool_row.save()
    tool = build_tool(tool_row.name, definition, reached)
    _write_implementation(tool_row, tool.reference, tool.digest)
    if tool_row.categories_override is None:
        tool_row.categories.set([Category.objects.get_or_create(name=each)[0] for each in definition.categories])
    publish_version(tool_row, version_columns(with_overrides(tool, tool_row)))
    return [level_change_fact(tool_row, before)] if tool_row.level_override != override else []


def _write_implementation(tool_row: Tool, reference: str, digest: str) -> None:
    kind = Implementation.Kind((tool_row.definition or {})["kind"])
    tool_row.implementations.exclude(reference=reference).filter(registered=True).update(registered=False)
    tool_row.implementations.update_or_create(
        reference=reference, defaults={"kind": kind, "digest": digest, "registered": True}
    )


def refresh_implementations(source: Source) -> None:
    """Store new digests of a source's tools, because the digests cover where calls are sent."""
    reached = settings_of(source)
    for tool_row in source.tools.filter(definition__isnull=False):
        tool = build_tool(tool_row.name, Definition.from_json(tool_row.definition or {}), reached)
        _write_implementation(tool_row, tool.reference, tool.digest)
