"""Rows of models read by hand-written SQL, for hot queries that take longer to build with the ORM than to run."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Model

ModelT = TypeVar("ModelT", bound=Model)


class RowReader(Generic[ModelT]):
    """Reads rows of one model: has its columns for a statement, and makes instances of their values.

    `alias` is the table's alias in the statement. With `names` (the key first), all other fields are deferred.
    """

    def __init__(self, model: type[ModelT], alias: str, *names: str) -> None:
        fields = [field for field in model._meta.concrete_fields if not names or field.name in names]
        quote = connection.ops.quote_name
        self.columns = ", ".join(f"{alias}.{quote(str(field.column))}" for field in fields)
        self.width = len(fields)
        self.model = model
        self._names = [str(field.attname) for field in fields]
        self._converters: list[tuple[int, Any, Any]] = []
        for place, field in enumerate(fields):
            column: Any = field.get_col(alias)
            found = [*connection.ops.get_db_converters(column), *column.get_db_converters(connection)]
            self._converters += [(place, convert, column) for convert in found]

    def read(self, values: Sequence[Any]) -> ModelT:
        row = list(values)
        for place, convert, column in self._converters:
            row[place] = convert(row[place], column, connection)
        return self.model.from_db(connection.alias, self._names, row)


@cache
def row_reader(model: type[ModelT], alias: str, *names: str) -> RowReader[ModelT]:
    """Return the reader of a model's rows; cached, because a process never changes its database."""
    return RowReader(model, alias, *names)


class JoinedReader(Generic[ModelT]):
    """Reads rows of a model joined with related rows, and sets these as attributes like `select_related`."""

    def __init__(self, reader: RowReader[ModelT], **related: RowReader[Any]) -> None:
        self.columns = ", ".join(each.columns for each in (reader, *related.values()))
        self._reader = reader
        self._related: list[tuple[Any, RowReader[Any]]] = [
            (reader.model._meta.get_field(name), each) for name, each in related.items()
        ]

    def read(self, values: Sequence[Any]) -> ModelT:
        end = self._reader.width
        row = self._reader.read(values[:end])
        for relation, reader in self._related:
            begin, end = end, end + reader.width
            other = reader.read(values[begin:end]) if values[begin] is not None else None
            relation.set_cached_value(row, other)
            if other is not None and relation.one_to_one:
                relation.remote_field.set_cached_value(other, row)
        return row
