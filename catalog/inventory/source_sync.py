"""Synchronisation of sources: reading what an upstream offers and writing its tools into the catalog.

A changed tool is held until an administrator accepts it; only new descriptions of a trusted source apply at once.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection
from django.db.models import Case, F, Q, When

from catalog import signals
from catalog.core import clock
from catalog.core.transactions import log_unexpected
from catalog.definitions.levels import SafetyLevel
from catalog.errors import SourceProblem, UpstreamError, UpstreamUnavailable
from catalog.inventory import snapshot
from catalog.inventory.held_changes import hold_definition
from catalog.inventory.imported_tools import (
    TOOLS_AT_ONCE,
    is_same_offer,
    level_facts,
    names_for,
    offer_digest,
    publish_changes,
    rows_by_upstream,
    take_up_definition,
)
from catalog.inventory.sources import ADDRESS, RETRY_AFTER, claimed_until, imported_sources
from catalog.inventory.sync import SyncResult
from catalog.inventory.versions import bump_revision, catalog_write_lock, version_facts
from catalog.models import Source, Tool
from catalog.sources import openapi
from catalog.sources.definitions import Definition, Listing, differ_in_words_only
from catalog.sources.documents import fetch_document
from catalog.sources.loading import judge_definition
from catalog.sources.mcp_client import (
    close_connections,
    keep_connections,
    list_upstream,
    register_change_listener,
    register_failure_listener,
)
from catalog.sources.settings import (
    UpstreamSettings,
    origin_of,
    read_secrets,
    scrubbed_errors,
    scrubber_of,
    settings_of,
)

RESYNC_AFTER = timedelta(minutes=15)
"""Age of the last synchronisation after which an enabled source is due again."""
MAX_READINGS = 3
"""Attempts to read an upstream whose source is changed or synchronised by another process meanwhile."""
READ_WITH = (*ADDRESS, "only", "api_origin", "secrets", "timeout", "trusted", "enabled", "last_sync_at")
"""Fields that must not change between reading an upstream and writing what it offers."""


def read_upstream(source: Source, *, once: bool = False) -> Listing:
    """Return the tools that an upstream offers now. `once` opens a separate connection for this.

    Raises SourceProblem, UpstreamUnavailable and UpstreamError.
    """
    reached = settings_of(source)
    with scrubbed_errors(scrubber_of(reached)):
        if source.kind == Source.Kind.MCP:
            return list_upstream(reached, once=once)
        text = source.document or fetch_document(reached)
        read_with = openapi.ImportSettings(
            url=source.url,
            base_url=source.base_url,
            timeout=reached.timeout,
            only=source.only,
            query=reached.query.keys(),
        )
        return openapi.list_operations(source.name, text, read_with)


def sync_source(source: Source) -> SyncResult:
    """Read the upstream and write its tools into the catalog; return what changed.

    If the source is changed or synchronised by another process meanwhile, the upstream is read again. Raises
    SourceProblem, UpstreamUnavailable or UpstreamError, and stores the message as the source's error.
    """
    result = SyncResult()
    for _ in range(MAX_READINGS):
        source = Source.objects.get(pk=source.pk)
        try:
            listing = read_upstream(source)
            check_origin(source, listing)
        except (SourceProblem, UpstreamUnavailable, UpstreamError) as error:
            _finish_sync(source, error=error.message[:1000])
            raise
        if _write_listing(source, listing, result):
            return result
    raise SourceProblem(f"{source.name} was changed several times meanwhile. Synchronise it again.")


def check_origin(source: Source, listing: Listing) -> None:
    """Raise SourceProblem if a document now names another server than the stored credentials were entered for."""
    origin = _listed_origin(listing)
    secrets = read_secrets(source)
    if (secrets["headers"] or secrets["query"]) and source.api_origin and origin and origin != source.api_origin:
        raise SourceProblem(
            f"The document now names the server {origin}, and the stored credentials are for {source.api_origin}. "
            "Nothing was changed. To use the new server, enter it as the base URL, and the headers and query again."
        )


def _listed_origin(listing: Listing) -> str:
    """Return scheme and host of an OpenAPI document's operations, which share one server; empty without operations."""
    return next((origin_of(each.http["url"]) for each in listing.definitions if each.http), "")


def _write_listing(source: Source, listing: Listing, result: SyncResult) -> bool:
    """Write an upstream's tools in several transactions; return False if the source has changed since it was read."""
    accepted, problems = judged_definitions(listing, settings_of(source))
    origin = _listed_origin(listing)
    with _unchanged(source) as is_unchanged:
        if not is_unchanged:
            return False
        if origin not in ("", source.api_origin):
            source.api_origin = origin
            source.save(update_fields=["api_origin"])
            bump_revision()
    for start in range(0, len(accepted), TOOLS_AT_ONCE):
        part = accepted[start : start + TOOLS_AT_ONCE]
        with _unchanged(source) as is_unchanged:
            if not is_unchanged:
                return False
            before = result.count()
            rows = rows_by_upstream(source, [each.upstream for each in part])
            names = names_for(source, part, rows)
            facts: list[signals.Fact] = []
            for each in part:
                facts += _sync_tool(source, names[each.upstream], each, rows.get(each.upstream), result)
            publish_changes(facts, is_changed=result.count() != before)
    with _unchanged(source) as is_unchanged:
        if not is_unchanged:
            return False
        offered = {each.upstream for each in accepted}
        rows = rows_by_upstream(source)
        gone = [tool_row for upstream, tool_row in rows.items() if upstream not in offered and tool_row.registered]
        facts = []
        for tool_row in gone:
            tool_row.registered, tool_row.held_version, tool_row.held_definition = False, None, None
            tool_row.save(update_fields=["registered", "held_version", "held_definition", "updated_at"])
            result.removed.append(tool_row.name)
            facts.append(signals.Fact("tool.removed", data=version_facts(tool_row)))
        _finish_sync(source)
        publish_changes(facts, is_changed=bool(gone))
    snapshot.drop_snapshot()
    result.problems.extend(problems)
    return True


@contextmanager
def _unchanged(source: Source) -> Iterator[bool]:
    """Lock the catalog and yield whether the source is still as it was when it was read."""
    with catalog_write_lock():
        now = Source.objects.get(pk=source.pk)
        yield all(getattr(now, name) == getattr(source, name) for name in READ_WITH)


def _finish_sync(source: Source, error: str = "") -> None:
    """Store the outcome of a synchronisation. If another was requested after `source` was read, it stays due."""
    is_same_request = When(sync_requested_at=source.sync_requested_at, then=None)
    Source.objects.filter(pk=source.pk).update(
        error=error,
        last_sync_at=clock.now(),
        sync_requested_at=Case(is_same_request, default=F("sync_requested_at"))
        if source.sync_requested_at
        else F("sync_requested_at"),
    )


def request_sync(source_pk: int) -> None:
    """Make the synchronisation of a source due, because its upstream announced a change."""
    try:
        Source.objects.filter(pk=source_pk, enabled=True).update(sync_requested_at=clock.now())
    finally:
        connection.close()  # it is called in a thread of the event loop's pool


def record_unreachable(source_pk: int, reason: str) -> None:
    """Store why a call could not reach its upstream, as the source's error; the source is then tried again."""
    try:
        Source.objects.filter(pk=source_pk, enabled=True, error="").update(error=reason[:1000])
    finally:
        connection.close()  # it is called in a thread of the event loop's pool


register_change_listener(request_sync)
register_failure_listener(record_unreachable)


def sync_due_sources() -> int:
    """Synchronise the sources that are due, each claimed by a conditional UPDATE; return how many were tried."""
    now = clock.now()
    is_stale = Q(kind=Source.Kind.MCP, last_sync_at__lte=now - RESYNC_AFTER)
    is_stale |= Q(last_sync_at__lte=now - RETRY_AFTER) & ~Q(error="")
    due = Q(sync_requested_at__lte=now) | Q(sync_requested_at=None) & is_stale
    tried = 0
    for source in imported_sources().filter(due, enabled=True):
        mine = Source.objects.filter(
            pk=source.pk, sync_requested_at=source.sync_requested_at, last_sync_at=source.last_sync_at
        )
        until = claimed_until(source)
        if not mine.update(sync_requested_at=until):
            continue
        tried += 1
        try:
            sync_source(source)
        except (SourceProblem, UpstreamUnavailable, UpstreamError):
            continue  # the source says so
        except Exception as error:  # noqa: BLE001 - one source must not keep the others waiting
            log_unexpected(error)
            source.sync_requested_at = until
            _finish_sync(source, error="The synchronisation failed unexpectedly; the log has the reason.")
    return tried


class SyncThread:
    """A thread that synchronises due sources, so that a slow upstream delays nothing else."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def look(self) -> None:
        """Close connections to disabled sources, and start synchronising unless this process is already doing so."""
        enabled = list(imported_sources().filter(enabled=True).values_list("pk", flat=True))
        keep_connections(enabled)
        is_busy = self._thread is not None and self._thread.is_alive()
        if enabled and not is_busy and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._sync, name="toolgate-sources", daemon=True)
            self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Start no more synchronisations, wait briefly for the current ones, and close this process's connections."""
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


def judged_definitions(listing: Listing, settings: UpstreamSettings) -> tuple[list[Definition], list[str]]:
    """Return the definitions that can be imported, and the problems of the others and of the listing."""
    accepted: list[Definition] = []
    problems = list(listing.problems)
    for definition in listing.definitions:
        problem = judge_definition("imported", definition, settings)
        if problem:
            problems.append(problem)
        else:
            accepted.append(definition)
    return accepted, problems


def _sync_tool(
    source: Source, name: str, definition: Definition, tool_row: Tool | None, result: SyncResult
) -> Iterator[signals.Fact]:
    """Write one tool that the upstream offers; yield the audit facts about it."""
    if tool_row is None:
        tool_row = _add_tool(source, name, definition, result)
        result.added.append(name)
        yield signals.Fact("tool.added", data=version_facts(tool_row))
        if tool_row.level_override:
            setting = source.tool_settings[definition.upstream]
            levels = {
                "before": tool_row.declared_level,
                "after": tool_row.level_override,
                "reason": setting.get("reason", ""),
            }
            yield signals.Fact("tool.level_set", data={**version_facts(tool_row), **levels})
        return
    known = Definition.from_json(tool_row.definition or {})
    came_back = not tool_row.registered
    if came_back:
        tool_row.registered = True
        tool_row.save(update_fields=["registered", "updated_at"])
    if is_same_offer(known, definition):
        is_taken_up = tool_row.held_version_id is not None or known != definition
        if is_taken_up:
            yield from take_up_definition(tool_row, definition)
        if is_taken_up or came_back:
            result.changed.append(name)
            yield signals.Fact("tool.changed", data={**level_facts(tool_row), "source": source.name})
    elif source.trusted and differ_in_words_only(known, definition):
        yield from take_up_definition(tool_row, definition)
        result.changed.append(name)
        yield signals.Fact("tool.changed", data=version_facts(tool_row))
    elif name in result.drifted:
        return  # it was written before the source was read again
    elif tool_row.held_definition != definition.as_json():
        result.drifted.append(name)
        yield hold_definition(tool_row, definition)
    else:
        result.drifted.append(name)


def _add_tool(source: Source, name: str, definition: Definition, result: SyncResult) -> Tool:
    """Add a tool with the settings chosen for it; a lower level needs a reason.

    A lower level that was chosen for another definition than the one offered now is ignored.
    """
    setting = source.tool_settings.get(definition.upstream, {})
    level = setting.get("safety_level") or definition.safety_level
    if SafetyLevel(level).rank < SafetyLevel(definition.safety_level).rank:
        problem = "" if setting.get("reason", "").strip() else f"lowering its level to {level} needs a reason."
        if setting.get("digest", "") not in ("", offer_digest(definition)):  # an upstream can change after a preview
            problem = f"it is not the tool whose level was lowered to {level}."
        if problem:
            result.problems.append(f"{name} stays {definition.safety_level}: {problem}")
            level = definition.safety_level
    tool_row = Tool.objects.create(
        name=name,
        source=source,
        enabled=bool(setting.get("enabled", True)),
        level_override="" if level == definition.safety_level else level,
        definition=definition.as_json(),
    )
    take_up_definition(tool_row, definition)
    return tool_row
