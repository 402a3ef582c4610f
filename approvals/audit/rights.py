"""Digests of the rows that decide users' rights, such as accounts, tokens and policies.

Each change of such a row writes its digest into the audit log. Comparing row and digest reveals changes by other means.
The digest is an HMAC under the key of the audit log, so that an exported log says nothing about passwords or secrets.
"""

import hmac
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.models import NOT_PROVIDED, Field, Model

from approvals.states import RequestStatus
from catalog.core.database import on_sqlite
from catalog.states import CallStatus

CHUNK = 500
RECORDED = "rights.recorded"
"""Action of the entry with the digests of rows that are older than the comparison with the log."""
MAX_REF = 64
CALL_ENDS = frozenset({"call.succeeded", "call.failed"})
REQUEST_CHANGES = frozenset(
    {
        *("approval.opened", "approval.prepared", "approval.edited"),
        *("approval.extended", "approval.escalated", "approval.delegated"),
    }
)


@dataclass(frozen=True, slots=True)
class IncludedRows:
    """Rows of another table that a row's digest includes: those whose column `owner` equals the row's column `of`."""

    model: str
    owner: str
    columns: tuple[str, ...] = ()
    """Columns that the digest includes; if empty, all columns except `left_out`."""
    left_out: frozenset[str] = frozenset()
    of: str = "id"
    where: str = ""


@dataclass(frozen=True, slots=True)
class RightsTable:
    """A table whose rows decide rights. Audit entries refer to a row by `prefix` and its value in the column `key`."""

    noun: str
    model: str
    key: str
    actions: tuple[str, ...]
    """Prefixes of the audit actions about its rows."""
    columns: tuple[str, ...] = ()
    left_out: frozenset[str] = frozenset()
    included: tuple[IncludedRows, ...] = ()
    prefix: str = ""
    where: str = ""
    """SQL condition for the rows that are compared with the log; empty for all rows."""
    is_recorded: bool = True
    """False if rows may lack a digest in the log, since only some of their changes write one."""

    def id_of(self, ref: str) -> str:
        """Return the id of a row for reports: its reference, preceded by the noun if the reference is ambiguous."""
        return ref if self.prefix or self.key == "public_id" else f"{self.noun}:{ref}"


_OPEN = ", ".join(f"'{status}'" for status in (RequestStatus.PENDING, RequestStatus.APPROVED))
_tables: dict[str, RightsTable] = {}


def register(table: RightsTable) -> None:
    """Compare the rows of a table with the audit log from now on."""
    _tables[table.noun] = table


for _table in (
    RightsTable(
        "account",
        "auth.User",
        "id",
        ("account.", "role."),
        prefix="user_",
        left_out=frozenset({"last_login", "first_name", "last_name", "email"}),
        included=(
            IncludedRows("auth.User_groups", "user_id", ("group_id",)),
            IncludedRows("auth.User_user_permissions", "user_id", ("permission_id",)),
        ),
    ),
    RightsTable(
        "role",
        "auth.Group",
        "id",
        ("role.",),
        prefix="group_",
        included=(IncludedRows("auth.Group_permissions", "group_id", ("permission_id",)),),
    ),
    RightsTable(
        "token", "catalog.ApiToken", "prefix", ("token.",), left_out=frozenset({"last_used_at", "first_refusal"})
    ),
    RightsTable(
        "connection",
        "connections.Connection",
        "token_id",
        ("connection.",),
        prefix="connection_",
        included=tuple(
            IncludedRows(f"connections.{model}", "api_token_id", left_out=frozenset({"updated"}), of="token_id")
            for model in ("AccessToken", "RefreshToken")
        ),
    ),
    RightsTable("link", "catalog.AccountLink", "public_id", ("link.",)),
    RightsTable(
        "source",
        "catalog.Source",
        "name",
        ("source.",),
        left_out=frozenset({"error", "api_origin", "sync_requested_at", "last_sync_at"}),
    ),
    RightsTable(
        "tool",
        "catalog.Tool",
        "name",
        ("tool.",),
        left_out=frozenset({"updated_at"}),
        included=(
            IncludedRows("catalog.ToolVersion", "tool_id"),
            IncludedRows("catalog.Tool_categories", "tool_id", ("category_id",)),
            # The code of an imported tool follows from its definition and its source.
            IncludedRows(
                "catalog.Implementation", "tool_id", left_out=frozenset({"updated_at"}), where="kind = 'python'"
            ),
        ),
    ),
    RightsTable(
        "policy",
        "approvals.Policy",
        "public_id",
        ("policy.",),
        included=(IncludedRows("approvals.PolicyRevision", "policy_id"),),
    ),
    RightsTable("stop", "approvals.Stop", "public_id", ("stop.",), left_out=frozenset({"counted_at"})),
    RightsTable("grant", "approvals.Grant", "public_id", ("grant.",), left_out=frozenset({"uses"})),
    RightsTable(
        "envelope",
        "approvals.Envelope",
        "public_id",
        ("envelope.",),
        included=(IncludedRows("approvals.EnvelopeItem", "envelope_id", left_out=frozenset({"used", "sum_used"})),),
    ),
    RightsTable(
        "approval",
        "approvals.ApprovalRequest",
        "public_id",
        ("approval.",),
        columns=(
            *("call_id", "policy_revision_id", "tool_version_id", "digest", "intent_digest", "plan_ref", "expires_at"),
            *("is_early", "escalated_to", "input_authors"),
        ),
        included=(
            IncludedRows("catalog.CallRequester", "call_id", ("user_id",), of="call_id"),
            IncludedRows("approvals.Delegation", "request_id", ("by_id", "to_id")),
        ),
        where=f"status IN ({_OPEN}) AND NOT (is_early AND ready_at IS NOT NULL)",
    ),
    RightsTable(
        "call",
        "catalog.Call",
        "public_id",
        tuple(sorted(CALL_ENDS)),
        columns=("response", "message", "error_kind"),
        where=f"status IN ('{CallStatus.COMPLETED}', '{CallStatus.FAILED}')",
        is_recorded=False,
    ),
):
    register(_table)


def row_digest(noun: str, ref: str) -> dict[str, dict[str, str | None]]:
    """Return a row's digest as details of an audit entry: null if the row is gone, {} if the noun has no table."""
    table = _tables.get(noun)
    if table is None:
        return {}
    found = _digests(table, _rows(table, f"{table.key} = %s", [ref.removeprefix(table.prefix)]))
    return {"row": {noun: next((digest for _, digest in found), None)}}


def unrecorded_digests() -> dict[str, dict[str, str]]:
    """Return the digests of all rows of the tables that no RECORDED entry covers yet, by noun and reference."""
    known = _recorded_digests()
    return {
        table.noun: {ref: digest for rows in _chunks(table) for ref, digest in _digests(table, rows)}
        for table in _tables.values()
        if table.is_recorded and table.noun not in known
    }


def _recorded_digests() -> dict[str, dict[str, str]]:
    recorded: dict[str, dict[str, str]] = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT details FROM approvals_auditentry WHERE action = %s ORDER BY seq", [RECORDED])
        for (details,) in cursor.fetchall():
            recorded |= json.loads(details)["rows"]
    return recorded


def changed_rows() -> Iterator[tuple[str, str]]:
    """Yield the id and the noun of each row whose digest differs from the last one in the audit log."""
    recorded = _recorded_digests()
    for table in _tables.values():
        known = recorded.get(table.noun, {})
        for rows in _chunks(table):
            digests = _digests(table, rows)
            last = {**{ref: known[ref] for ref, _ in digests if ref in known}, **_last_digests(table, digests)}
            for ref, digest in digests:
                if last.get(ref) != digest and (table.is_recorded or ref in last):
                    yield table.id_of(ref), table.noun
        yield from ((table.id_of(ref), table.noun) for ref in _lost_rows(table, known))


def _last_digests(table: RightsTable, digests: Sequence[tuple[str, str]]) -> dict[str, str | None]:
    if not digests:
        return {}
    refs = [ref for ref, _ in digests]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT object_ref, details FROM approvals_auditentry "  # noqa: S608 - placeholders only
            f"WHERE details LIKE %s AND object_ref IN ({_marks(refs)}) ORDER BY seq",
            [f'%"row":{{"{table.noun}":%', *refs],
        )
        return {ref: json.loads(details)["row"][table.noun] for ref, details in cursor.fetchall()}


def _lost_rows(table: RightsTable, known: Iterable[str]) -> Iterator[str]:
    """Yield the references of rows that are in the log but were deleted from the table without an entry."""
    if table.where:
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {table.key} FROM {_model(table.model)._meta.db_table}")  # noqa: S608 - our names
        there = {f"{table.prefix}{key}"[:MAX_REF] for (key,) in cursor.fetchall()}
        last: dict[str, str | None] = dict.fromkeys(known, "")
        for action in table.actions:
            cursor.execute(
                "SELECT object_ref, details FROM approvals_auditentry WHERE action LIKE %s AND details LIKE %s "
                "ORDER BY seq",
                [f"{action}%", f'%"row":{{"{table.noun}":%'],
            )
            last |= {ref: json.loads(details)["row"][table.noun] for ref, details in cursor.fetchall()}
    yield from (ref for ref, digest in last.items() if digest is not None and ref not in there)


Stored = tuple[str, bytes] | None
"""A value as it is stored: its type and its text; None for NULL."""
_Row = tuple[Any, Mapping[str, Stored]]


def _chunks(table: RightsTable) -> Iterator[list[_Row]]:
    """Yield the rows to compare, each with its primary key, in chunks to limit memory."""
    last = 0
    condition = f"({table.where}) AND id > %s" if table.where else "id > %s"
    order = f"{_model(table.model)._meta.db_table}.id"
    while rows := list(_rows(table, f"{condition} ORDER BY {order} LIMIT {CHUNK}", [last])):
        yield rows
        last = rows[-1][0]


def _rows(table: RightsTable, condition: str, parameters: Sequence[Any]) -> Iterator[_Row]:
    columns = {table.key, *(each.of for each in table.included), *_columns(table.model, table.columns, table.left_out)}
    return _read(table.model, "id", sorted(columns), condition, parameters)


def _digests(table: RightsTable, rows: Iterable[_Row]) -> list[tuple[str, str]]:
    rows = list(rows)
    covered = _columns(table.model, table.columns, table.left_out)
    included = [_included_rows(each, [values[each.of] for _, values in rows]) for each in table.included]
    found = []
    for _, values in rows:
        belonging = (
            rows_of.get(_text(values[of.of]), []) for of, rows_of in zip(table.included, included, strict=True)
        )
        encoded = [table.noun.encode(), _encoded(table.model, values, covered), *map(_joined, belonging)]
        digest = hmac.digest(settings.TOOLGATE_AUDIT_KEY.encode(), _joined(encoded), "sha256").hex()
        found.append((f"{table.prefix}{_text(values[table.key])}"[:MAX_REF], digest))
    return found


def _included_rows(included: IncludedRows, owners: Sequence[Stored]) -> dict[str, list[bytes]]:
    """Return the encoded rows of each owner. They are sorted: the digest must not depend on the order of insertion."""
    keys = [_text(owner) for owner in owners if owner is not None]
    if not keys:
        return {}
    columns = _columns(included.model, included.columns, included.left_out)
    condition = f"{included.owner} IN ({_marks(keys)})" + (f" AND {included.where}" if included.where else "")
    rows = sorted(
        (str(owner), _encoded(included.model, values, columns))
        for owner, values in _read(included.model, included.owner, columns, condition, keys)
    )
    return {owner: [data for _, data in group] for owner, group in groupby(rows, itemgetter(0))}


def _read(
    model: str, key: str, columns: Sequence[str], condition: str, parameters: Sequence[Any]
) -> Iterator[tuple[Any, Mapping[str, Stored]]]:
    """Yield the column `key` of each row, and `columns` as bytes, which works for values that Django cannot read."""
    # As bytes, since SQLite stores any value in any column, and Django's converters fail for some.
    form = "typeof({0}), CAST({0} AS BLOB)" if on_sqlite() else "'text', CAST({0} AS text)"
    selected = ", ".join(form.format(connection.ops.quote_name(column)) for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {key}, {selected} FROM {_model(model)._meta.db_table} WHERE {condition}",  # noqa: S608 - our names
            parameters,
        )
        for owner, *values in cursor.fetchall():
            pairs = zip(values[::2], values[1::2], strict=True)
            texts = ((kind, data.encode() if isinstance(data, str) else data) for kind, data in pairs)
            stored = [None if data is None else (kind, bytes(data)) for kind, data in texts]
            yield owner, dict(zip(columns, stored, strict=True))


def _text(value: Stored) -> str:
    return "" if value is None else value[1].decode(errors="replace")


def _encoded(model: str, values: Mapping[str, Stored], columns: Sequence[str]) -> bytes:
    """Return a row's columns as bytes. Default values are left out, so that adding a column changes no digest."""
    defaults = _defaults(model)
    texts: list[bytes] = []
    for name in columns:
        value = values[name]
        if name not in defaults or (value and value[1]) != defaults[name]:
            texts += [name.encode(), *((b"null", b"") if value is None else (value[0].encode(), value[1]))]
    return _joined(texts)


def _joined(texts: Iterable[bytes]) -> bytes:
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)


@cache
def _model(label: str) -> type[Model]:
    return apps.get_model(label)


@cache
def _columns(model: str, columns: tuple[str, ...], left_out: frozenset[str]) -> tuple[str, ...]:
    fields = (str(field.column) for field in _model(model)._meta.concrete_fields)
    return columns or tuple(sorted(name for name in fields if name not in left_out))


@cache
def _defaults(model: str) -> dict[str, bytes | None]:
    fields: Iterable[Field[Any, Any]] = _model(model)._meta.concrete_fields
    plain = (field for field in fields if field.default in (NOT_PROVIDED, list, dict) or not callable(field.default))
    return {str(field.column): _stored_default(field) for field in plain}


def _stored_default(field: "Field[Any, Any]") -> bytes | None:
    default = field.get_default()
    if default is None or isinstance(default, str):
        return None if default is None else default.encode()
    if isinstance(default, bool) and on_sqlite():
        return b"1" if default else b"0"
    return json.dumps(default).encode()


def _marks(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))
