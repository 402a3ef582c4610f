"""Preview of a source: the tools that it would add or change, without storing anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from catalog.errors import SourceProblem, UpstreamError, UpstreamUnavailable
from catalog.inventory.imported_tools import names_for, offer_digest, rows_by_upstream
from catalog.inventory.source_sync import check_origin, judged_definitions, read_upstream
from catalog.inventory.sources import ADDRESS, built_source, check_administrator, imported_sources, named_origin
from catalog.models import Source
from catalog.sources.settings import settings_of


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as a preview shows it; `change` is `new`, `changed`, `same` or `removed`.

    `digest` covers what the upstream offers, but not the source's settings.
    """

    name: str
    description: str
    safety_level: str
    why: str
    change: str
    upstream: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class SourcePreview:
    tools: tuple[OfferedTool, ...]
    problems: tuple[str, ...]


def preview_source(
    values: Mapping[str, Any], *, by: User, any_command: bool = False, is_new: bool = False
) -> SourcePreview:
    """Return the tools of a source with these values. If the upstream fails, the preview has a problem and no tools.

    If a source of this name is stored, the values are applied to it, unless `is_new`. Its stored secrets are used only
    if its address stays the same: a preview leaves no audit entry, so it must not send secrets anywhere else. Raises
    what `create_source` raises.
    """
    check_administrator(by)
    stored = None if is_new else imported_sources().filter(name=values.get("name", "")).first()
    source = stored or Source()
    if any(getattr(source, name) != values[name] for name in ADDRESS if name in values):
        source.secrets = ""
    source = built_source(source, values, named_origin(source, values), any_command=any_command)
    try:
        listing = read_upstream(source, once=True)
        check_origin(source, listing)
    except (SourceProblem, UpstreamUnavailable, UpstreamError) as error:
        return SourcePreview((), (error.message,))
    reached = settings_of(source)
    rows = rows_by_upstream(source) if source.pk else {}
    accepted, problems = judged_definitions(listing, reached)
    names = names_for(source, accepted, rows)
    tools = []
    for each in accepted:
        tool_row, setting = rows.get(each.upstream), source.tool_settings.get(each.upstream, {})
        level = setting.get("safety_level") or (tool_row.level_override if tool_row else "") or each.safety_level
        why = each.why if level == each.safety_level else f"set by an administrator ({each.why})"
        change = "new" if tool_row is None else "same" if tool_row.definition == each.as_json() else "changed"
        name = names[each.upstream]
        tools.append(OfferedTool(name, each.description, level, why, change, each.upstream, offer_digest(each)))
    offered = {each.upstream for each in accepted}
    tools += [
        OfferedTool(
            tool_row.name, tool_row.declared_description, tool_row.declared_level, "no longer offered", "removed"
        )
        for upstream, tool_row in rows.items()
        if upstream not in offered and tool_row.registered
    ]
    return SourcePreview(tuple(tools), tuple(problems))
