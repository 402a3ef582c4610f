"""Held changes: definitions that an upstream changed and that an administrator must accept first."""

from collections.abc import Iterable, Mapping
from copy import copy

from django.contrib.auth.models import User

from catalog import signals
from catalog.core.canonical_json import canonical_text, digest
from catalog.inventory import snapshot
from catalog.inventory.imported_tools import (
    TOOLS_AT_ONCE,
    level_facts,
    override_beside,
    publish_changes,
    take_up_definition,
)
from catalog.inventory.overrides import InvalidOverride
from catalog.inventory.sources import check_administrator
from catalog.inventory.versions import (
    catalog_write_lock,
    columns_fingerprint,
    create_version,
    version_columns,
    version_facts,
    with_overrides,
)
from catalog.models import Source, Tool
from catalog.sources.definitions import Definition
from catalog.sources.loading import build_tool
from catalog.sources.settings import settings_of


def accept_version(tool_row: Tool, number: int, *, by: User, reason: str) -> None:
    """Accept the held version of a tool, so that it becomes the current one.

    Raises NotAllowed. Raises InvalidOverride if version `number` is not held, or if the change affects only the request
    or also its address: a version's number does not identify such a change, so use `accept_changes`.
    """
    _check_acceptance(by, reason)
    with catalog_write_lock():
        tool_row = Tool.objects.select_related("source", "current_version", "held_version").get(pk=tool_row.pk)
        if tool_row.held_version is None or tool_row.held_version.number != number:
            raise InvalidOverride("accept_version", f"Version {number} is not held.")
        held, current = (
            (definition or {}).get("http") for definition in (tool_row.held_definition, tool_row.definition)
        )
        same_target = all((held or {}).get(name) == (current or {}).get(name) for name in ("method", "url"))
        # A number identifies a change that makes a version of its own and leaves method and address alone.
        if held != current and (not same_target or tool_row.held_version == tool_row.current_version):
            message = (
                "The change concerns the request, which a version's number does not identify. "
                f"Accept it on the tool's page, or with POST sources/{tool_row.source.name}/accept/."
            )
            raise InvalidOverride("accept_version", message)
        _accept([tool_row], by=by, reason=reason)
    snapshot.drop_snapshot()


def held_digest(tool_row: Tool) -> str:
    """Return the SHA-256 of a tool's held definition: a change of the request alone makes no new version."""
    return digest(canonical_text(tool_row.held_definition))


def accept_changes(source: Source, changes: Mapping[str, str], *, by: User, reason: str) -> None:
    """Accept held changes of a source's tools; `changes` maps the name of each tool to its `held_digest`.

    Tools are written in transactions of TOOLS_AT_ONCE. Raises NotAllowed. Raises InvalidOverride if a change is no
    longer the held one: its transaction is rolled back, later ones do not start, and the message counts those accepted.
    """
    _check_acceptance(by, reason)
    names = sorted(changes)
    try:
        for start in range(0, len(names), TOOLS_AT_ONCE):
            part = names[start : start + TOOLS_AT_ONCE]
            with catalog_write_lock():
                now = Source.objects.get(pk=source.pk)  # where calls go may have been changed while this waited
                rows = now.tools.select_related("current_version", "held_version").filter(name__in=part)
                held = {tool_row.name: held_digest(tool_row) for tool_row in rows if tool_row.held_version is not None}
                for name in part:
                    if held.get(name) != changes[name]:
                        before = f" Accepted before it: {start}." if start else ""
                        message = f"The change of {name} is no longer the one that was shown.{before}"
                        raise InvalidOverride("held", message)
                _accept(rows, by=by, reason=reason)
    finally:
        snapshot.drop_snapshot()


def _check_acceptance(by: User, reason: str) -> None:
    check_administrator(by)
    if not reason.strip():
        raise InvalidOverride("reason", "Say why the change is accepted.")


def _accept(tool_rows: Iterable[Tool], *, by: User, reason: str) -> None:
    """Make the held definition of each tool the current one. Call it inside `catalog_write_lock`."""
    facts: list[signals.Fact] = []
    for tool_row in tool_rows:
        facts += take_up_definition(tool_row, Definition.from_json(tool_row.held_definition or {}))
    publish_changes(facts, is_changed=True)
    for tool_row in tool_rows:  # last: each waits for the head of the audit log
        signals.record_fact("tool.accepted", by=by, reason=reason, **level_facts(tool_row))


def hold_definition(tool_row: Tool, definition: Definition) -> signals.Fact:
    """Store a definition as a held version: the tool cannot be called until an administrator accepts it."""
    tool = build_tool(tool_row.name, definition, settings_of(tool_row.source))
    accepted = copy(tool_row)
    accepted.level_override = override_beside(tool_row, definition)
    columns = version_columns(with_overrides(tool, accepted))
    fingerprint = columns_fingerprint(tool_row.name, columns)
    held = tool_row.versions.filter(fingerprint=fingerprint).first() or create_version(tool_row, fingerprint, columns)
    tool_row.held_version, tool_row.held_definition = held, definition.as_json()
    tool_row.save(update_fields=["held_version", "held_definition", "updated_at"])
    names = {"held": held.number, "held_fingerprint": fingerprint}
    return signals.Fact("tool.held", data={**version_facts(tool_row), **names})
