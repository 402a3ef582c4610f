"""Rows of models read by hand-written SQL, for hot queries that take longer to build with the ORM than to run.

A `RowReader` names the columns of a model for a statement and turns their values into an instance, as Django's own
queries do: with each field's converters, through `Model.from_db`.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Model

ModelT = TypeVar("ModelT", bound=Model)
Converter = Callable[[Any], Any]


class RowReader(Generic[ModelT]):
    """The columns of one model, under an alias of its table, and the instances made of them."""

    def __init__(self, model: type[ModelT], alias: str) -> None:
        fields = model._meta.concrete_fields
        quote = connection.ops.quote_name
        self.columns = ", ".join(f"{alias}.{quote(str(field.column))}" for field in fields)
        self.width = len(fields)
        self._model = model
        self._names = [str(field.attname) for field in fields]
        self._converters = [
            (place, converters) for place, field in enumerate(fields) if (converters := _converters_of(field, alias))
        ]

    def read(self, values: Sequence[Any]) -> ModelT:
        """Return the instance with these values of its columns."""
        row = list(values)
        for place, converters in self._converters:
            for convert in converters:
                row[place] = convert(row[place])
        return self._model.from_db(connection.alias, self._names, row)


def _converters_of(field: Any, alias: str) -> list[Converter]:
    column = field.get_col(alias)
    found = [*connection.ops.get_db_converters(column), *column.get_db_converters(connection)]
    return [_bound(convert, column) for convert in found]


def _bound(convert: Callable[[Any, Any, Any], Any], column: Any) -> Converter:
    return lambda value: convert(value, column, connection)


@cache
def row_reader(model: type[ModelT], alias: str) -> RowReader[ModelT]:
    """Return the reader of a model's rows; a process never changes its database."""
    return RowReader(model, alias)
