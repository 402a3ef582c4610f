"""Reading of audit log entries as the bytes that the database stores, so that malformed entries can be recognised."""

import hmac
import re
from collections.abc import Iterator, Sequence
from typing import cast

from django.db import connection

from approvals.audit.log import ENTRY_COLUMNS, HashedFields, make_hasher
from catalog.core.database import on_sqlite

CHUNK = 5000
TEXT = "'text'"
STORED_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{6}))?", re.ASCII)
"""A time as Django stores it on SQLite: in UTC, without a fraction for whole seconds."""
TIME_TEXT = """to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def stored_entries(after: int, upto: int) -> Iterator[tuple[HashedFields | None, str]]:
    """Yield the entries after `after` and up to `upto` with their hashes, in order; None for a malformed entry."""
    names = ENTRY_COLUMNS[1:]
    is_sqlite = on_sqlite()
    if is_sqlite:
        types = {"seq": "'integer'", "actor_id": "'integer', 'null'"}
        checks = " AND ".join(f"typeof({name}) IN ({types.get(name, TEXT)})" for name in (*ENTRY_COLUMNS, "hash"))
        columns = ", ".join(f"CAST({name} AS BLOB)" for name in (*names, "hash"))
    else:
        checks = "TRUE"
        columns = ", ".join((TIME_TEXT, *names[1:], "hash"))
    statement = (
        f"SELECT seq, {checks}, {columns} FROM approvals_auditentry "  # noqa: S608 - names of our columns
        f"WHERE seq > %s AND seq <= %s ORDER BY seq LIMIT {CHUNK}"
    )
    while True:
        with connection.cursor() as cursor:
            cursor.execute(statement, [after, upto])
            chunk = cursor.fetchall()
        for seq, is_well_formed, *values in chunk:
            if not is_well_formed:
                yield None, ""
            elif is_sqlite:
                yield _read_sqlite(seq, values)
            else:
                yield cast("HashedFields", (seq, *values[:-1])), values[-1]
        if len(chunk) < CHUNK:
            return
        after = chunk[-1][0]


def _read_sqlite(seq: int, values: Sequence[bytes | None]) -> tuple[HashedFields | None, str]:
    try:
        at, actor, *texts = (None if value is None else value.decode() for value in values)
    except UnicodeDecodeError:
        return None, ""
    time = STORED_TIME.fullmatch(at or "")
    if time is None:
        return None, ""
    moment = f"{time[1]}T{time[2]}.{time[3] or '000000'}Z"
    row = (seq, moment, None if actor is None else int(actor), *texts[:-1])
    return cast("HashedFields", row), str(texts[-1])


def is_authentic(seq: int, instance_name: str) -> bool:
    """Return True if the entry `seq` exists, is well formed and has the correct hash."""
    hash_of = make_hasher(instance_name)
    found = next(stored_entries(seq - 1, seq), (None, ""))
    return found[0] is not None and hmac.compare_digest(found[1], hash_of(found[0]))
