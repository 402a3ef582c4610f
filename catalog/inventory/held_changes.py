"""Held changes: definitions that an upstream changed and that wait for an administrator."""

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


def accept_version(row: Tool, number: int, *, by: User, reason: str) -> None:
    """Take up the held version of a tool.

    Raises NotAllowed, and InvalidOverride if that version is not held, or if its number does not identify the change,
    because that changes only the request or also its address: `accept_changes` takes up such changes.
    """
    _check_acceptance(by, reason)
    with catalog_write_lock():
        row = Tool.objects.select_related("source", "current_version", "held_version").get(pk=row.pk)
        if row.held_version is None or row.held_version.number != number:
            raise InvalidOverride("accept_version", f"Version {number} is not held.")
        if not _is_identified_by_number(row):
            message = (
                "The change concerns the request, which a version's number does not identify. "
                f"Accept it on the tool's page, or with POST sources/{row.source.name}/accept/."
            )
            raise InvalidOverride("accept_version", message)
        _accept([row], by=by, reason=reason)
    snapshot.drop_snapshot()


def _is_identified_by_number(row: Tool) -> bool:
    """Return whether a held change leaves method and address of the requests alone, and makes a version of its own."""
    held, current = ((definition or {}).get("http") for definition in (row.held_definition, row.definition))
    if held == current:
        return True
    same_target = all((held or {}).get(name) == (current or {}).get(name) for name in ("method", "url"))
    return same_target and row.held_version != row.current_version


def held_digest(row: Tool) -> str:
    """Return the SHA-256 of the held definition of a tool.

    A version's number does not identify it: a change of the request alone, such as another host, makes no new version.
    """
    return digest(canonical_text(row.held_definition))


def accept_changes(source: Source, changes: Mapping[str, str], *, by: User, reason: str) -> None:
    """Take up held changes of a source's tools, given by name and `held_digest`.

    Each part of TOOLS_AT_ONCE tools is a transaction of its own. Raises NotAllowed, and InvalidOverride if one of the
    changes is not held any more; its part and the later ones are then not taken up, and the message says how many were.
    """
    _check_acceptance(by, reason)
    names = sorted(changes)
    try:
        for start in range(0, len(names), TOOLS_AT_ONCE):
            part = {name: changes[name] for name in names[start : start + TOOLS_AT_ONCE]}
            _accept_part(source, part, by=by, reason=reason, accepted=start)
    finally:
        snapshot.drop_snapshot()


def _accept_part(source: Source, changes: Mapping[str, str], *, by: User, reason: str, accepted: int) -> None:
    with catalog_write_lock():
        source = Source.objects.get(pk=source.pk)  # where calls go may have been changed while this waited
        rows = source.tools.select_related("current_version", "held_version").filter(name__in=changes)
        held = {row.name: held_digest(row) for row in rows if row.held_version is not None}
        for name, shown in changes.items():
            if held.get(name) != shown:
                before = f" Accepted before it: {accepted}." if accepted else ""
                raise InvalidOverride("held", f"The change of {name} is no longer the one that was shown.{before}")
        _accept(rows, by=by, reason=reason)


def _check_acceptance(by: User, reason: str) -> None:
    check_administrator(by)
    if not reason.strip():
        raise InvalidOverride("reason", "Say why the change is accepted.")


def _accept(rows: Iterable[Tool], *, by: User, reason: str) -> None:
    """Take up what is held of each tool, inside the lock of the catalog."""
    told: list[signals.Fact] = []
    for row in rows:
        told += take_up_definition(row, Definition.from_json(row.held_definition or {}))
    publish_changes(told, is_changed=True)
    for row in rows:  # last: each waits for the head of the audit log
        signals.record_fact("tool.accepted", by=by, reason=reason, **level_facts(row))


def hold_definition(row: Tool, definition: Definition) -> signals.Fact:
    """Store a definition as a held version: the tool cannot be called until an administrator accepts it."""
    tool = build_tool(row.name, definition, settings_of(row.source))
    accepted = copy(row)
    accepted.level_override = override_beside(row, definition)
    columns = version_columns(with_overrides(tool, accepted))
    fingerprint = columns_fingerprint(row.name, columns)
    held = row.versions.filter(fingerprint=fingerprint).first() or create_version(row, fingerprint, columns)
    row.held_version, row.held_definition = held, definition.as_json()
    row.save(update_fields=["held_version", "held_definition", "updated_at"])
    names = {"held": held.number, "held_fingerprint": fingerprint}
    return signals.Fact("tool.held", data={**version_facts(row), **names})
