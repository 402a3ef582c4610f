"""Sources and their tools as rows: creating and changing sources, previewing and synchronising them.

An upstream's change of a tool makes a new version. It is held until an administrator accepts it, unless a trusted
source only changed words; the tool cannot be called meanwhile. What an upstream no longer offers is kept in history.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Case, F, Q, QuerySet, When

from catalog import signals
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, digest
from catalog.core.transactions import log_unexpected
from catalog.definitions.levels import SafetyLevel
from catalog.errors import (
    Conflict,
    ParameterError,
    SourceProblem,
    UpstreamError,
    UpstreamUnavailable,
    field_error,
)
from catalog.inventory import search, snapshot
from catalog.inventory.overrides import InvalidOverride, apply_overrides, can_override
from catalog.inventory.sync import SyncResult, level_change_fact, loaded_modules
from catalog.inventory.versions import (
    bump_revision,
    catalog_write_lock,
    columns_fingerprint,
    create_version,
    publish_version,
    version_columns,
    version_facts,
    with_overrides,
)
from catalog.models import Category, Implementation, Source, Tool
from catalog.sources import openapi
from catalog.sources.definitions import (
    Definition,
    Listing,
    catalog_names,
    differ_in_words_only,
)
from catalog.sources.documents import fetch_document
from catalog.sources.loading import build_tool, judge_definition
from catalog.sources.mcp_client import close_connections, keep_connections, list_upstream, register_change_listener
from catalog.sources.settings import (
    MASK,
    OTHER_ORIGIN,
    UpstreamSettings,
    check_program_environment,
    check_source,
    encrypt_secrets,
    origin_of,
    read_secrets,
    scrubbed_errors,
    scrubber_of,
    settings_of,
    unmasked,
)
from catalog.tools.registry import get_all_tools

RESYNC_AFTER = timedelta(minutes=15)
"""Age of the last synchronisation after which an enabled source is due again."""
RETRY_AFTER = timedelta(minutes=1)
"""Age after which a failing source is due again."""
MAX_READINGS = 3
"""Attempts to read an upstream whose source is changed or synchronised by another process meanwhile."""
TOOLS_AT_ONCE = 50
"""Tools that one transaction writes."""
FIELDS = ("name", "kind", "url", "command", "document", "base_url", "timeout", "trusted", "enabled")
AUDITED = ("url", "command", "base_url", "timeout", "trusted", "enabled")
"""Fields whose values the audit log keeps; of others it keeps the names."""
ADDRESS = ("url", "command", "document", "base_url")
READ_WITH = (*ADDRESS, "api_origin", "secrets", "timeout", "trusted", "enabled", "last_sync_at")
"""Fields that must not change between reading an upstream and writing what it offers."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as a preview shows it; `change` is `new`, `changed`, `same` or `removed`.

    `digest` identifies what the upstream says of it, whatever the source's settings are.
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
    """The tools that a source would bring, and its problems; nothing is stored."""

    tools: tuple[OfferedTool, ...]
    problems: tuple[str, ...]


def imported_sources() -> QuerySet[Source]:
    """Return the sources that were imported, by name."""
    return Source.objects.filter(kind__in=(Source.Kind.MCP, Source.Kind.OPENAPI)).order_by("name")


def create_source(
    values: Mapping[str, Any], *, by: User, any_command: bool = False, is_claimed: bool = False
) -> Source:
    """Store a source; its first synchronisation is due at once, or claimed by a caller who does it.

    `any_command` admits programs that TOOLGATE_STDIO_COMMANDS does not list: for someone who has a shell anyway.
    Raises NotAllowed, ParameterError naming the field, and Conflict if the name is taken.
    """
    check_administrator(by)
    source = _built_source(Source(), values, _named_origin(Source(), values), any_command=any_command)
    _check_tool_settings(source.tool_settings)
    with catalog_write_lock():
        if is_name_taken(source.name):
            raise Conflict(f"There is already a source or a Python module called {source.name}.")
        source.sync_requested_at = _next_sync(source, is_claimed=is_claimed)
        source.save()
        signals.record_fact("source.created", by=by, source=source.name, kind_of_source=source.kind, **_facts(source))
    return source


def is_name_taken(name: str) -> bool:
    """Return whether a source or a loaded Python module has this name."""
    return Source.objects.filter(name=name).exists() or name in loaded_modules()


def update_source(
    source: Source, values: Mapping[str, Any], *, by: User, any_command: bool = False, is_claimed: bool = False
) -> Source:
    """Change a source; masks among headers and environment keep what is stored.

    Levels that follow from `trusted` apply at once, since an administrator changed it. Raises as `create_source`.
    """
    check_administrator(by)
    if {"name", "kind"} & values.keys() and any(
        values[name] != getattr(source, name) for name in ("name", "kind") if name in values
    ):
        message = "The name and kind of a source cannot be changed. Add another source under a name of its own."
        raise field_error("name", "invalid", message)
    before = _facts(source)
    origin = _named_origin(source, values)  # reading a large document takes seconds
    with catalog_write_lock():
        source = Source.objects.select_for_update().get(pk=source.pk)
        _built_source(source, values, origin, any_command=any_command)
        _check_tool_settings(source.tool_settings)
        source.error = ""
        source.sync_requested_at = _next_sync(source, is_claimed=is_claimed)
        source.save()
        _refresh_implementations(source)
        _apply_tool_settings(source, by=by, only=values.get("tools"))
        bump_revision()
        changed = {
            name: [before.get(name), value] for name, value in _facts(source).items() if value != before.get(name)
        }
        signals.record_fact("source.changed", by=by, source=source.name, fields=sorted(values), changes=changed)
    snapshot.drop_snapshot()
    return source


def end_source(source: Source, *, by: User) -> None:
    """Disable a source and with it all of its tools. Raises NotAllowed."""
    update_source(source, {"enabled": False}, by=by)


def preview_source(
    values: Mapping[str, Any], *, by: User, any_command: bool = False, is_new: bool = False
) -> SourcePreview:
    """Return what a source would bring; an upstream that fails is a problem of the preview.

    A stored source of this name is previewed with these changes, unless the source `is_new`.
    Stored headers and environment are used only with the stored address: a preview leaves no entry in the audit log.
    Raises as `create_source`.
    """
    check_administrator(by)
    stored = None if is_new else imported_sources().filter(name=values.get("name", "")).first()
    source = stored or Source()
    if any(getattr(source, name) != values[name] for name in ADDRESS if name in values):
        source.secrets = ""
    source = _built_source(source, values, _named_origin(source, values), any_command=any_command)
    try:
        listing = read_upstream(source, once=True)
        _check_origin(source, listing)
    except (SourceProblem, UpstreamUnavailable, UpstreamError) as error:
        return SourcePreview((), (error.message,))
    reached = settings_of(source)
    rows = _rows_by_upstream(source) if source.pk else {}
    accepted, problems = _judged(listing, reached)
    names = _names(source, accepted, rows)
    tools = [_offered(names[each.upstream], each, rows.get(each.upstream), source) for each in accepted]
    offered = {each.upstream for each in accepted}
    tools += [
        OfferedTool(row.name, row.declared_description, row.declared_level, "no longer offered", "removed")
        for upstream, row in rows.items()
        if upstream not in offered and row.registered
    ]
    return SourcePreview(tuple(tools), tuple(problems))


def read_upstream(source: Source, *, once: bool = False) -> Listing:
    """Return what an upstream offers now; with `once`, over a connection of its own.

    Raises SourceProblem, UpstreamUnavailable and UpstreamError.
    """
    reached = settings_of(source)
    with scrubbed_errors(scrubber_of(reached)):
        if source.kind == Source.Kind.MCP:
            return list_upstream(reached, once=once)
        text = source.document or fetch_document(reached)
        return openapi.list_operations(
            source.name, text, url=source.url, base_url=source.base_url, timeout=reached.timeout
        )


def sync_source(source: Source) -> SyncResult:
    """Read the upstream and write its tools into the catalog; return what changed.

    What was read is dropped and read again if the source was changed, or another process synchronised it, meanwhile.
    Raises SourceProblem, UpstreamUnavailable or UpstreamError; the source is then `failing` with the same words.
    """
    changes = SyncResult()
    for _ in range(MAX_READINGS):
        source = Source.objects.get(pk=source.pk)
        try:
            listing = read_upstream(source)
            _check_origin(source, listing)
        except (SourceProblem, UpstreamUnavailable, UpstreamError) as error:
            _finish_sync(source, error=error.message[:1000])
            raise
        if _write_listing(source, listing, changes):
            return changes
    raise SourceProblem(f"{source.name} was changed several times meanwhile. Synchronise it again.")


def _check_origin(source: Source, listing: Listing) -> None:
    """Raise SourceProblem if a document has come to name another server than the one that the headers are for."""
    origin = _listed_origin(listing)
    if read_secrets(source)["headers"] and source.api_origin and origin and origin != source.api_origin:
        raise SourceProblem(
            f"The document now names the server {origin}, and the stored headers are for {source.api_origin}. "
            "Nothing was changed. To use the new server, enter it as the base URL, and the headers again."
        )


def _listed_origin(listing: Listing) -> str:
    """Return scheme and host of the operations of an OpenAPI document, which has one server; empty for others."""
    return next((origin_of(each.http["url"]) for each in listing.definitions if each.http), "")


def _write_listing(source: Source, listing: Listing, changes: SyncResult) -> bool:
    """Write what an upstream offers; return whether the source stayed as it was when it was read.

    Each part is a transaction of its own: others can write in between, and what a killed process began is continued by
    the next synchronisation.
    """
    accepted, problems = _judged(listing, settings_of(source))
    if not _write_origin(source, _listed_origin(listing)):
        return False
    parts = [accepted[start : start + TOOLS_AT_ONCE] for start in range(0, len(accepted), TOOLS_AT_ONCE)]
    for part in parts:
        if not _write_part(source, part, changes):
            return False
    with _unchanged(source) as is_unchanged:
        if not is_unchanged:
            return False
        offered = {each.upstream for each in accepted}
        rows = _rows_by_upstream(source)
        gone = [row for upstream, row in rows.items() if upstream not in offered and row.registered]
        told = list(_remove_tools(gone, changes))
        _finish_sync(source)
        _publish(told, is_changed=bool(gone))
    snapshot.drop_snapshot()
    changes.problems.extend(problems)
    return True


def _write_origin(source: Source, origin: str) -> bool:
    """Store the origin of a source's operations; return whether the source stayed as it was."""
    with _unchanged(source) as is_unchanged:
        if is_unchanged and origin not in ("", source.api_origin):
            source.api_origin = origin
            source.save(update_fields=["api_origin"])
            bump_revision()
    return is_unchanged


def _write_part(source: Source, part: Sequence[Definition], changes: SyncResult) -> bool:
    """Write some of the tools; return whether the source stayed as it was."""
    with _unchanged(source) as is_unchanged:
        if not is_unchanged:
            return False
        before = changes.count()
        rows = _rows_by_upstream(source, [each.upstream for each in part])
        names = _names(source, part, rows)
        told: list[signals.Fact] = []
        for definition in part:
            told += _sync_tool(source, names[definition.upstream], definition, rows.get(definition.upstream), changes)
        _publish(told, is_changed=changes.count() != before)
    return True


@contextmanager
def _unchanged(source: Source) -> Iterator[bool]:
    """Lock the catalog; yield whether the source is as it was when it was read."""
    with catalog_write_lock():
        now = Source.objects.get(pk=source.pk)
        yield all(getattr(now, name) == getattr(source, name) for name in READ_WITH)


def _publish(told: Sequence[signals.Fact], *, is_changed: bool) -> None:
    """Let processes read the catalog again if it changed, and record the facts."""
    search.index_changed_tools()
    if is_changed:
        bump_revision()
    for fact in told:  # last: each waits for the head of the audit log
        signals.record_fact(fact.kind, **fact.data)


def _finish_sync(source: Source, error: str = "") -> None:
    """Store the outcome. A request that came after `source` was read stays, so that it is read again."""
    is_same_request = When(sync_requested_at=source.sync_requested_at, then=None)
    Source.objects.filter(pk=source.pk).update(
        error=error,
        last_sync_at=clock.now(),
        sync_requested_at=Case(is_same_request, default=F("sync_requested_at"))
        if source.sync_requested_at
        else F("sync_requested_at"),
    )


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
    _publish(told, is_changed=True)
    for row in rows:  # last: each waits for the head of the audit log
        signals.record_fact("tool.accepted", by=by, reason=reason, **level_facts(row))


def request_sync(source_pk: int) -> None:
    """Make a source's synchronisation due: its upstream announced a change."""
    try:
        Source.objects.filter(pk=source_pk, enabled=True).update(sync_requested_at=clock.now())
    finally:
        connection.close()  # it is called in a thread of the event loop's pool


register_change_listener(request_sync)


def sync_due_sources() -> int:
    """Synchronise the sources that are due; return how many were tried.

    A conditional UPDATE claims each one by moving its time, so that another process tries again if this one is killed.
    """
    now = clock.now()
    is_stale = Q(kind=Source.Kind.MCP, last_sync_at__lte=now - RESYNC_AFTER)
    is_stale |= Q(last_sync_at__lte=now - RETRY_AFTER) & ~Q(error="")
    due = Q(sync_requested_at__lte=now) | Q(sync_requested_at=None) & is_stale
    tried = 0
    for source in imported_sources().filter(due, enabled=True):
        mine = Source.objects.filter(
            pk=source.pk, sync_requested_at=source.sync_requested_at, last_sync_at=source.last_sync_at
        )
        claimed_until = _claimed_until(source)
        if not mine.update(sync_requested_at=claimed_until):
            continue
        tried += 1
        try:
            sync_source(source)
        except (SourceProblem, UpstreamUnavailable, UpstreamError):
            continue  # the source says so
        except Exception as error:  # noqa: BLE001 - one source must not keep the others waiting
            log_unexpected(error)
            source.sync_requested_at = claimed_until
            _finish_sync(source, error="The synchronisation failed unexpectedly; the log has the reason.")
    return tried


def _next_sync(source: Source, *, is_claimed: bool) -> datetime | None:
    """Return the time at which a source that was just written is due."""
    if not source.enabled:
        return None
    return _claimed_until(source) if is_claimed else clock.now()


def _claimed_until(source: Source) -> datetime:
    """Return the time until which other processes leave a source to the one that synchronises it now."""
    return clock.now() + RETRY_AFTER + timedelta(seconds=2 * source.timeout)


class SyncThread:
    """A thread that synchronises due sources, so that a slow upstream holds up nothing else."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def look(self) -> None:
        """Close connections to disabled sources; start a round unless one is running here."""
        enabled = list(imported_sources().filter(enabled=True).values_list("pk", flat=True))
        keep_connections(enabled)
        is_busy = self._thread is not None and self._thread.is_alive()
        if enabled and not is_busy and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._sync, name="toolgate-sources", daemon=True)
            self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Start nothing more, wait a moment for the current round, and end the connections of this process."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)
        close_connections()

    def _sync(self) -> None:
        try:
            sync_due_sources()
        except Exception as error:  # noqa: BLE001 - the next round tries again
            log_unexpected(error)
        finally:
            connection.close()


def check_administrator(by: User) -> None:
    if not can_override(by):
        raise NotAllowed("Only an administrator may change sources.")


def _built_source(source: Source, values: Mapping[str, Any], origin: str, *, any_command: bool) -> Source:
    """Return the source with these values set and checked; `origin` is from `_named_origin`. Raises ParameterError."""
    stored = read_secrets(source)
    program = (source.command, stored["env"])
    before = {name: getattr(source, name) for name in ADDRESS}
    headers = unmasked("headers", values.get("headers", stored["headers"]), stored["headers"])
    env = unmasked("env", values.get("env", stored["env"]), stored["env"])
    for name in FIELDS:
        if name in values:
            setattr(source, name, values[name])
    if "tools" in values:
        source.tool_settings = {**source.tool_settings, **values["tools"]}
    check_source({name: getattr(source, name) for name in FIELDS} | {"headers": headers, "env": env})
    if any(getattr(source, name) != value for name, value in before.items()):
        keeps_headers = any(values.get("headers", {}).get(name, MASK) == MASK for name in headers)
        if not keeps_headers:
            source.api_origin = origin
        elif origin_of(source.url) != origin_of(before["url"]) or origin not in ("", source.api_origin):
            raise field_error("headers", "other_origin", OTHER_ORIGIN)
    is_listed = not source.command or source.command[0] in settings.TOOLGATE_STDIO_COMMANDS
    if not any_command and (source.command, env) != program:
        if not is_listed:
            message = (
                "This program is not listed in TOOLGATE_STDIO_COMMANDS. An operator with a shell can use import_mcp."
            )
            raise field_error("command", "not_allowed", message)
        check_program_environment(env)
    source.secrets = encrypt_secrets(headers, env)
    return source


def _named_origin(source: Source, values: Mapping[str, Any]) -> str:
    """Return scheme and host of the API once the source has these values.

    It is empty if that follows from the document at the source's URL, which is read by the synchronisation.
    """
    url, document, base_url = (values.get(name, getattr(source, name)) for name in ("url", "document", "base_url"))
    if base_url or not document:
        return origin_of(base_url)
    if (url, document, base_url) == (source.url, source.document, source.base_url):
        return source.api_origin
    try:
        return origin_of(openapi.server_of(openapi.read_document(document), url, base_url))
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
    """Return the fields that the audit log keeps: no headers, environment or document."""
    return {name: getattr(source, name) for name in AUDITED}


def _judged(listing: Listing, reached: UpstreamSettings) -> tuple[list[Definition], list[str]]:
    """Return the definitions that can be imported, and the problems of the others."""
    accepted: list[Definition] = []
    problems = list(listing.problems)
    for definition in listing.definitions:
        problem = judge_definition("imported", definition, reached)
        if problem:
            problems.append(problem)
        else:
            accepted.append(definition)
    return accepted, problems


def _rows_by_upstream(source: Source, only: Sequence[str] | None = None) -> dict[str, Tool]:
    rows = source.tools.select_related("current_version", "held_version")
    rows = rows.prefetch_related("implementations", "categories")
    if only is not None:
        rows = rows.filter(definition__upstream__in=list(only))
    return {row.definition["upstream"]: row for row in rows if row.definition is not None}


def _names(source: Source, definitions: Sequence[Definition], rows: Mapping[str, Tool]) -> dict[str, str]:
    kept = {each.upstream: rows[each.upstream].name for each in definitions if each.upstream in rows}
    taken = {*Tool.objects.exclude(name__in=kept.values()).values_list("name", flat=True), *get_all_tools()}
    return catalog_names(source.name, [each.upstream for each in definitions], kept=kept, taken=taken)


def _offered(name: str, definition: Definition, row: Tool | None, source: Source) -> OfferedTool:
    setting = source.tool_settings.get(definition.upstream, {})
    level = setting.get("safety_level") or (row.level_override if row else "") or definition.safety_level
    why = definition.why if level == definition.safety_level else f"set by an administrator ({definition.why})"
    change = "new" if row is None else "same" if row.definition == definition.as_json() else "changed"
    return OfferedTool(name, definition.description, level, why, change, definition.upstream, _offer_digest(definition))


def _sync_tool(
    source: Source, name: str, definition: Definition, row: Tool | None, changes: SyncResult
) -> Iterator[signals.Fact]:
    """Write one tool that the upstream offers; yield what the audit log keeps of it."""
    if row is None:
        row = _add_tool(source, name, definition, changes)
        changes.added.append(name)
        yield signals.Fact("tool.added", data=version_facts(row))
        if row.level_override:
            setting = source.tool_settings[definition.upstream]
            levels = {"before": row.declared_level, "after": row.level_override, "reason": setting.get("reason", "")}
            yield signals.Fact("tool.level_set", data={**version_facts(row), **levels})
        return
    known = Definition.from_json(row.definition or {})
    came_back = not row.registered
    if came_back:
        row.registered = True
        row.save(update_fields=["registered", "updated_at"])
    if _is_same_offer(known, definition):
        is_taken_up = row.held_version_id is not None or known != definition
        if is_taken_up:
            yield from take_up_definition(row, definition)
        if is_taken_up or came_back:
            changes.changed.append(name)
            yield signals.Fact("tool.changed", data={**level_facts(row), "source": source.name})
    elif source.trusted and differ_in_words_only(known, definition):
        yield from take_up_definition(row, definition)
        changes.changed.append(name)
        yield signals.Fact("tool.changed", data=version_facts(row))
    elif name in changes.drifted:
        return  # it was written before the source was read again
    elif row.held_definition != definition.as_json():
        changes.drifted.append(name)
        yield _hold(row, definition)
    else:
        changes.drifted.append(name)


def level_facts(row: Tool) -> dict[str, Any]:
    """Return the properties of a tool that facts contain which may explain a lower level."""
    return {**version_facts(row), "level": row.current_version.safety_level if row.current_version else None}


def _is_same_offer(known: Definition, offered: Definition) -> bool:
    """Return whether the upstream says the same as before; level and timeout follow from the source's settings."""
    return _offer(known) == _offer(offered)


def _offer(definition: Definition) -> str:
    return canonical_text(
        replace(definition, safety_level="", why="", timeout=0.0, categories=(), retry_safe=False).as_json()
    )


def _offer_digest(definition: Definition) -> str:
    return digest(_offer(definition))


def _add_tool(source: Source, name: str, definition: Definition, changes: SyncResult) -> Tool:
    """Add a tool with what was chosen for it; a lower level without a reason, or for another tool, is not taken."""
    setting = source.tool_settings.get(definition.upstream, {})
    level = setting.get("safety_level") or definition.safety_level
    if SafetyLevel(level).rank < SafetyLevel(definition.safety_level).rank:
        problem = "" if setting.get("reason", "").strip() else f"lowering its level to {level} needs a reason."
        if setting.get("digest", "") not in ("", _offer_digest(definition)):  # an upstream can change after a preview
            problem = f"it is not the tool whose level was lowered to {level}."
        if problem:
            changes.problems.append(f"{name} stays {definition.safety_level}: {problem}")
            level = definition.safety_level
    row = Tool.objects.create(
        name=name,
        source=source,
        enabled=bool(setting.get("enabled", True)),
        level_override="" if level == definition.safety_level else level,
        definition=definition.as_json(),
    )
    take_up_definition(row, definition)
    return row


def _override_beside(row: Tool, definition: Definition) -> str:
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
    row.level_override = _override_beside(row, definition)
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


def _hold(row: Tool, definition: Definition) -> signals.Fact:
    """Store a definition as a held version: the tool cannot be called until an administrator accepts it."""
    tool = build_tool(row.name, definition, settings_of(row.source))
    accepted = copy(row)
    accepted.level_override = _override_beside(row, definition)
    columns = version_columns(with_overrides(tool, accepted))
    fingerprint = columns_fingerprint(row.name, columns)
    held = row.versions.filter(fingerprint=fingerprint).first() or create_version(row, fingerprint, columns)
    row.held_version, row.held_definition = held, definition.as_json()
    row.save(update_fields=["held_version", "held_definition", "updated_at"])
    names = {"held": held.number, "held_fingerprint": fingerprint}
    return signals.Fact("tool.held", data={**version_facts(row), **names})


def _write_implementation(row: Tool, reference: str, digest: str) -> None:
    kind = Implementation.Kind.MCP if (row.definition or {}).get("kind") == "mcp" else Implementation.Kind.HTTP
    row.implementations.exclude(reference=reference).filter(registered=True).update(registered=False)
    row.implementations.update_or_create(
        reference=reference, defaults={"kind": kind, "digest": digest, "registered": True}
    )


def _refresh_implementations(source: Source) -> None:
    """Write the digests of a source's tools again: they cover where calls go."""
    reached = settings_of(source)
    for row in source.tools.exclude(definition=None):
        tool = build_tool(row.name, Definition.from_json(row.definition or {}), reached)
        _write_implementation(row, tool.reference, tool.digest)


def _remove_tools(rows: Any, changes: SyncResult) -> Iterator[signals.Fact]:
    for row in rows:
        if row.registered:
            row.registered, row.held_version, row.held_definition = False, None, None
            row.save(update_fields=["registered", "held_version", "held_definition", "updated_at"])
            changes.removed.append(row.name)
            yield signals.Fact("tool.removed", data=version_facts(row))


def _apply_tool_settings(source: Source, *, by: User, only: Mapping[str, Any] | None) -> None:
    """Set levels and switches of existing tools as a change of the source asks for. Raises ParameterError."""
    rows = _rows_by_upstream(source) if only else {}
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
