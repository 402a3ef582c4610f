"""Queries and export of the audit log: filters, newest first, keyset cursors.

An export is a stream of JSON Lines or CSV, oldest entry first, and is recorded in the log. It contains texts by users
and agents, so CSV cells are protected against formulas and hidden characters are spelled out.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from pydantic_core import to_json

from approvals.audit.log import AuditRecord, append_entry
from approvals.models import AuditEntry
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.core.canonical_json import format_utc
from catalog.text.spreadsheets import csv_text

SEARCHED_COLUMNS = ("actor_name", "action", "object_ref", "tool_name", "plan_ref", "details")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTextFilters:
    """Text filters of the audit log: words, username, action, tool, plan and object. Empty texts are ignored."""

    q: str = ""
    who: str = ""
    action: str = ""
    tool: str = ""
    plan: str = ""
    object: str = ""


TEXT_FILTER_NAMES = tuple(field.name for field in fields(AuditTextFilters))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilters(AuditTextFilters):
    """Filters by text, time span and entry numbers. Entries numbered `before` and `after` are not included."""

    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    after: int | None = None


NO_FILTERS = AuditFilters()


def entries_for(viewer: User, filters: AuditFilters = NO_FILTERS) -> QuerySet[AuditEntry]:
    """Return the matching entries, newest first. Raises NotAllowed for users other than administrators."""
    if agent_token_of(viewer) is not None or not has_role(viewer, ADMINISTRATOR):
        raise NotAllowed("Only administrators may read the audit log.")
    return filter_entries(filters)


def filter_entries(filters: AuditFilters) -> QuerySet[AuditEntry]:
    """Return the matching entries, newest first, without a permission check."""
    exact = {
        "actor_name": filters.who,
        "action": filters.action,
        "tool_name": filters.tool,
        "plan_ref": filters.plan,
        "object_ref": filters.object,
        "at__gte": filters.since,
        "at__lt": filters.until,
        "seq__lt": filters.before,
        "seq__gt": filters.after,
    }
    entries = AuditEntry.objects.filter(**{name: value for name, value in exact.items() if value not in ("", None)})
    return entries.filter(words_condition(filters.q)).select_related("actor").order_by("-seq")


def words_condition(text: str) -> Q:
    """Return the condition for entries that contain each word of a text, in any of `SEARCHED_COLUMNS`."""
    condition = Q()
    for word in text.split():
        anywhere = Q()
        for field in SEARCHED_COLUMNS:
            anywhere |= Q(**{f"{field}__icontains": word})
        condition &= anywhere
    return condition


FORMATS = {"jsonl": "application/jsonl", "csv": "text/csv; charset=utf-8"}
EXPORTED_FIELDS = ("seq", "at", "actor", "action", "object", "tool", "plan", "digest", "details", "prev_hash", "hash")
EXPORT_CHUNK = 1000


def export_entries(by: User, filters: AuditFilters, form: str) -> Iterator[str]:
    """Return the matching entries as text in `form`. Raises NotAllowed immediately, not on iteration."""
    entries = entries_for(by, filters)
    return _stream(entries, filters, form, by)


def export_entries_from_shell(filters: AuditFilters, form: str) -> Iterator[str]:
    """Return the matching entries as text, for management commands: without a permission check."""
    return _stream(filter_entries(filters), filters, form, None)


def _stream(entries: QuerySet[AuditEntry], filters: AuditFilters, form: str, by: "User | None") -> Iterator[str]:
    values = {name: format_utc(value) if hasattr(value, "tzinfo") else value for name, value in asdict(filters).items()}
    details = {"format": form, "filters": {name: value for name, value in values.items() if value not in ("", None)}}
    upto = append_entry(AuditRecord(action="audit.exported", by=by, details=details))
    return _export_chunks(entries.filter(seq__lt=upto).order_by("seq"), form)


def _export_chunks(entries: QuerySet[AuditEntry], form: str) -> Iterator[str]:
    """Yield the text of 1,000 entries at a time. Each chunk has its own query, so a slow reader holds no cursor."""
    if form == "csv":
        yield csv_text([EXPORTED_FIELDS])
    last = 0
    while chunk := list(entries.filter(seq__gt=last)[:EXPORT_CHUNK]):
        last = chunk[-1].seq
        rows: list[dict[str, Any]] = [
            {
                "seq": entry.seq,
                "at": format_utc(entry.at),
                "actor": entry.actor_name,
                "action": entry.action,
                "object": entry.object_ref,
                "tool": entry.tool_name,
                "plan": entry.plan_ref,
                "digest": entry.digest,
                "details": entry.details_json,
                "prev_hash": entry.prev_hash,
                "hash": entry.hash,
            }
            for entry in chunk
        ]
        if form == "csv":
            texts = [row | {"details": to_json(row["details"]).decode()} for row in rows]
            yield csv_text([[row[name] for name in EXPORTED_FIELDS] for row in texts])
        else:
            yield "".join(f"{to_json(row).decode()}\n" for row in rows)
