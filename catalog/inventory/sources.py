"""Sources as rows: creating, changing and disabling imported sources; switching the sets that ship on and off."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from catalog import signals
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.errors import Conflict, ParameterError, SourceProblem, field_error
from catalog.inventory import snapshot
from catalog.inventory.imported_tools import refresh_implementations, rows_by_upstream
from catalog.inventory.overrides import InvalidOverride, apply_overrides, can_override
from catalog.inventory.sync import is_shipped_set, loaded_modules
from catalog.inventory.versions import bump_revision, catalog_write_lock
from catalog.models import Source
from catalog.sources.openapi_document import read_document, server_of
from catalog.sources.selection import check_only
from catalog.sources.settings import (
    MASK,
    OTHER_ORIGIN,
    SECRETS,
    check_program_environment,
    check_source,
    encrypt_secrets,
    origin_of,
    read_secrets,
    unmasked,
)
from catalog.tools.registry import shipped_modules

RETRY_AFTER = timedelta(minutes=1)
"""Age after which a failing source is due again."""
FIELDS = ("name", "kind", "url", "command", "document", "base_url", "only", "timeout", "trusted", "enabled")
AUDITED = ("url", "command", "base_url", "only", "timeout", "trusted", "enabled")
"""Fields whose values the audit log keeps; of other fields it keeps only the names."""
ADDRESS = ("url", "command", "document", "base_url")


IMPORTED = Q(kind__in=(Source.Kind.MCP, Source.Kind.OPENAPI))


def imported_sources() -> QuerySet[Source]:
    return Source.objects.filter(IMPORTED).order_by("name")


def switchable_sources() -> QuerySet[Source]:
    """Return the sources that administrators can enable and disable, by name: imported ones, clients, shipped sets."""
    shipped = Q(kind=Source.Kind.PYTHON, name__in=shipped_modules())
    return Source.objects.filter(IMPORTED | Q(kind=Source.Kind.CLIENT) | shipped).order_by("name")


def create_source(
    values: Mapping[str, Any], *, by: User, any_command: bool = False, is_claimed: bool = False
) -> Source:
    """Store a source. Its first synchronisation is due at once, unless `is_claimed` by a caller who does it.

    `any_command` allows programs that TOOLGATE_STDIO_COMMANDS does not list, for callers who have a shell anyway.
    Raises NotAllowed, ParameterError naming the field, and Conflict if the name is taken.
    """
    check_administrator(by)
    source = built_source(Source(), values, named_origin(Source(), values), any_command=any_command)
    _check_tool_settings(source.tool_settings)
    with catalog_write_lock():
        if is_name_taken(source.name):
            raise Conflict(f"There is already a source or a Python module called {source.name}.")
        source.sync_requested_at = _next_sync(source, is_claimed=is_claimed)
        source.save()
        signals.record_fact("source.created", by=by, source=source.name, kind_of_source=source.kind, **_facts(source))
    return source


def is_name_taken(name: str) -> bool:
    return Source.objects.filter(name=name).exists() or name in loaded_modules()


def update_source(
    source: Source, values: Mapping[str, Any], *, by: User, any_command: bool = False, is_claimed: bool = False
) -> Source:
    """Change a source. Masked values of secrets keep the stored ones.

    Of a client or a shipped set, only `enabled` can be changed.

    Levels that follow from a changed `trusted` apply at once. Raises what `create_source` raises.
    """
    check_administrator(by)
    if not source.is_imported:
        return _switch_set(source, values, by=by)
    if {"name", "kind"} & values.keys() and any(
        values[name] != getattr(source, name) for name in ("name", "kind") if name in values
    ):
        message = "The name and kind of a source cannot be changed. Add another source under a name of its own."
        raise field_error("name", "invalid", message)
    before = _facts(source)
    origin = named_origin(source, values)  # reading a large document takes seconds
    with catalog_write_lock():
        source = Source.objects.select_for_update().get(pk=source.pk)
        built_source(source, values, origin, any_command=any_command)
        _check_tool_settings(source.tool_settings)
        if source.enabled != before["enabled"]:
            source.switched_at = clock.now()
        source.error = ""
        source.sync_requested_at = _next_sync(source, is_claimed=is_claimed)
        source.save()
        refresh_implementations(source)
        _apply_tool_settings(source, by=by, only=values.get("tools"))
        bump_revision()
        changed = {
            name: [before.get(name), value] for name, value in _facts(source).items() if value != before.get(name)
        }
        signals.record_fact("source.changed", by=by, source=source.name, fields=sorted(values), changes=changed)
    snapshot.drop_snapshot()
    return source


def _switch_set(source: Source, values: Mapping[str, Any], *, by: User) -> Source:
    """Enable or disable a client or a shipped set.

    Raises ParameterError for other changes, and Conflict for other modules.
    """
    if source.kind != Source.Kind.CLIENT and not is_shipped_set(source.name):
        raise Conflict("Only imported sources, clients and the sets that ship with Toolgate can be changed.")
    other = next((name for name in values if name != "enabled"), None)
    if other is not None:
        message = "A client, or a set that ships with Toolgate, can only be enabled or disabled."
        raise field_error(other, "invalid", message)
    with catalog_write_lock():
        source = Source.objects.select_for_update().get(pk=source.pk)
        before, source.enabled = source.enabled, values.get("enabled", source.enabled)
        source.switched_at = clock.now()
        source.save(update_fields=["enabled", "switched_at"])
        bump_revision()
        changes = {"enabled": [before, source.enabled]} if before != source.enabled else {}
        signals.record_fact("source.changed", by=by, source=source.name, fields=sorted(values), changes=changes)
    snapshot.drop_snapshot()
    return source


def end_source(source: Source, *, by: User) -> None:
    """Disable a source, and thereby all its tools. Raises NotAllowed."""
    update_source(source, {"enabled": False}, by=by)


def _next_sync(source: Source, *, is_claimed: bool) -> datetime | None:
    if not source.enabled:
        return None
    return claimed_until(source) if is_claimed else clock.now()


def claimed_until(source: Source) -> datetime:
    """Return the time until which a source that is synchronised now is not due for other processes."""
    return clock.now() + RETRY_AFTER + timedelta(seconds=2 * source.timeout)


def check_administrator(by: User) -> None:
    if not can_override(by):
        raise NotAllowed("Only an administrator may change sources.")


def built_source(source: Source, values: Mapping[str, Any], origin: str, *, any_command: bool) -> Source:
    """Return the source with these values, checked. `origin` comes from `named_origin`. Raises ParameterError."""
    stored = read_secrets(source)
    program = (source.command, stored["env"])
    before = {name: getattr(source, name) for name in ADDRESS}
    secrets = {name: unmasked(name, values.get(name, stored[name]), stored[name]) for name in SECRETS}
    for name in FIELDS:
        if name in values:
            setattr(source, name, values[name])
    if "tools" in values:
        source.tool_settings = {**source.tool_settings, **values["tools"]}
    check_source({name: getattr(source, name) for name in FIELDS} | secrets)
    source.only = check_only(source.only)
    if any(getattr(source, name) != value for name, value in before.items()):
        keeps_credentials = any(
            values.get(field, {}).get(name, MASK) == MASK for field in ("headers", "query") for name in secrets[field]
        )
        if not keeps_credentials:
            source.api_origin = origin
        elif origin_of(source.url) != origin_of(before["url"]) or origin not in ("", source.api_origin):
            raise field_error("headers" if secrets["headers"] else "query", "other_origin", OTHER_ORIGIN)
    is_listed = not source.command or source.command[0] in settings.TOOLGATE_STDIO_COMMANDS
    if not any_command and (source.command, secrets["env"]) != program:
        if not is_listed:
            message = (
                "This program is not listed in TOOLGATE_STDIO_COMMANDS. An operator with a shell can use import_mcp."
            )
            raise field_error("command", "not_allowed", message)
        check_program_environment(secrets["env"])
    source.secrets = encrypt_secrets(secrets)
    return source


def named_origin(source: Source, values: Mapping[str, Any]) -> str:
    """Return scheme and host of the API that a source would call; empty if only the document at its URL names them."""
    url, document, base_url = (values.get(name, getattr(source, name)) for name in ("url", "document", "base_url"))
    if base_url or not document:
        return origin_of(base_url)
    if (url, document, base_url) == (source.url, source.document, source.base_url):
        return source.api_origin
    try:
        return origin_of(server_of(read_document(document), url, base_url))
    except SourceProblem:  # the synchronisation says so
        return ""


def _check_tool_settings(tools: Mapping[str, Any]) -> None:
    for name, each in tools.items():
        if "\0" in name:  # PostgreSQL cannot store it
            raise field_error("tools", "invalid", "A tool's name contains the character NUL.")
        level = each.get("safety_level")
        if level is not None and level not in list(SafetyLevel):
            raise field_error(f"tools.{name}.safety_level", "invalid", "A level is safe, cautious or dangerous.")


def _facts(source: Source) -> dict[str, Any]:
    """Return the fields for the audit log: no secrets and no document."""
    return {name: getattr(source, name) for name in AUDITED}


def _apply_tool_settings(source: Source, *, by: User, only: Mapping[str, Any] | None) -> None:
    """Set levels of existing tools, and enable or disable them, as a change says. Raises ParameterError."""
    rows = rows_by_upstream(source) if only else {}
    for upstream, setting in (only or {}).items():
        row = rows.get(upstream)
        if row is None:
            continue
        values = {name: setting[name] for name in ("enabled", "safety_level") if name in setting}
        try:
            apply_overrides(row.name, values, by=by, reason=setting.get("reason", ""))
        except InvalidOverride as error:
            problem = error.details["errors"][0]
            raise ParameterError(
                error.message, {"errors": [{**problem, "path": f"tools.{upstream}.{problem['path']}"}]}
            ) from None
