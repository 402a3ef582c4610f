"""Differences between SQLite and PostgreSQL: times in hand-written statements, inserts and consistent reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, TypeVar

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import AutoField, BooleanField, CharField, Field, ForeignKey, IntegerField, Model, TextField
from django.db.models.base import ModelState

ModelT = TypeVar("ModelT", bound=Model)


@cache
def on_sqlite() -> bool:
    """Return whether this process uses SQLite; cached, because a process never changes its database."""
    return connection.vendor == "sqlite"


def bind_datetime(moment: datetime) -> Any:
    return _as_sqlite_text(moment) if on_sqlite() else moment


def read_datetime(value: datetime | str) -> datetime:
    """Convert a time read by a hand-written statement; SQLite returns it as text without a time zone."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@lru_cache(maxsize=256)
def _as_sqlite_text(moment: datetime) -> Any:
    """Convert a moment for SQLite; cached, because one transaction uses the same moment many times."""
    return str(moment.astimezone(UTC).replace(tzinfo=None))


def execute_pipelined(cursor: CursorWrapper, statement: str, parameters: Sequence[Any]) -> CursorWrapper:
    """Execute a statement whose result is not needed at once; return the cursor that will have the result.

    On PostgreSQL the statement is sent together with the next one, at the latest with COMMIT (`config.db.postgresql`).
    That later statement also raises the errors of this one.
    """
    if on_sqlite():
        cursor.execute(statement, parameters)
        return cursor
    left: CursorWrapper = cursor.leave(statement, parameters)
    return left


@contextmanager
def read_snapshot() -> Iterator[None]:
    """Make all reads in the body see one snapshot; writes fail. Inside a transaction, no new one is opened."""
    if connection.in_atomic_block:
        yield
    elif on_sqlite():
        with _read_snapshot_on_sqlite():
            yield
    else:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield


@contextmanager
def _read_snapshot_on_sqlite() -> Iterator[None]:
    """Open a deferred transaction: Django's would be IMMEDIATE and block every writer."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
        try:
            cursor.execute("BEGIN DEFERRED")
            yield
        finally:
            if connection.connection.in_transaction:
                cursor.execute("ROLLBACK")
            cursor.execute("PRAGMA query_only = OFF")


@cache
def _defaults_of(model: type[Model]) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """Return the fixed defaults of a model's fields, and those that are computed for each row."""
    fields = {field.attname: field for field in model._meta.concrete_fields}
    computed = {name: each.default for name, each in fields.items() if each.has_default() and callable(each.default)}
    return {name: each.get_default() for name, each in fields.items() if name not in computed}, computed


def new_row(model: type[ModelT], values: Mapping[str, Any]) -> ModelT:
    """Return an unsaved row with these values by column, several times faster than the model's constructor."""
    fixed, computed = _defaults_of(model)
    row = model.__new__(model)
    row.__dict__.update(fixed, **values, _state=ModelState())
    for name, default in computed.items():
        if name not in values:
            row.__dict__[name] = default()
    return row


PLAIN_FIELDS = (CharField, TextField, BooleanField, IntegerField, ForeignKey)
"""Fields whose values the drivers take as they are."""


@cache
def _insert_statement(
    model: type[Model], computed: tuple[tuple[str, str], ...]
) -> tuple[str, list[tuple[str, "Field[Any, Any] | None"]]]:
    # An attribute comes with its field where Django must convert the value.
    expressions, quote = dict(computed), connection.ops.quote_name
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, AutoField)]
    columns = ", ".join(quote(str(field.column)) for field in fields)
    values = ", ".join(expressions.get(str(field.attname), "%s") for field in fields)
    returned = ", ".join(["id", *(quote(name) for name in expressions)])
    statement = f"INSERT INTO {quote(model._meta.db_table)} ({columns}) VALUES ({values}) RETURNING {returned}"  # noqa: S608 (names of our models)
    parameters = [field for field in fields if field.attname not in expressions]
    return statement, [(each.attname, None if isinstance(each, PLAIN_FIELDS) else each) for each in parameters]


def insert_row(cursor: CursorWrapper, row: Model, **computed: str) -> None:
    """Insert a row like `save(force_insert=True)` in a tenth of the time, without signals, and set its key.

    `computed` maps columns to SQL expressions that the database computes; the row's attributes get their values.
    """
    statement, values = _insert(row, computed)
    cursor.execute(statement, values)
    for name, value in zip(["pk", *computed], cursor.fetchone(), strict=True):
        setattr(row, name, value)
    row._state.adding, row._state.db = False, connection.alias


def insert_row_pipelined(cursor: CursorWrapper, row: Model) -> None:
    """Insert a row whose key nobody needs; on PostgreSQL with the next statement, at the latest with COMMIT."""
    execute_pipelined(cursor, *_insert(row, {}))


def _insert(row: Model, computed: Mapping[str, str]) -> tuple[str, list[Any]]:
    """Return the statement that inserts a row, and its parameters."""
    statement, attributes = _insert_statement(type(row), tuple(computed.items()))
    values, row_values = [], row.__dict__
    for name, field in attributes:
        value = row_values[name]
        if field is None or value is None:
            values.append(value)
        elif isinstance(value, datetime):
            values.append(bind_datetime(value))
        else:
            values.append(field.get_db_prep_save(value, connection))
    return statement, values
