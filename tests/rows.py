"""Rows of the database, kept to be written again into the tests that come: what each of them begins with.

Django makes objects of them, and of each object statements; that costs a test ten times what the statements do. So the
statements are kept as they are sent the first time, and sent as they are from then on.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, models, transaction

Rows = dict[type[models.Model], dict[Any, dict[str, Any]]]
Statement = tuple[str, Any]


def read(tables: Iterable[type[models.Model]]) -> Rows:
    """Return every row of these models, by primary key."""
    return {model: {row["pk"]: row for row in model._base_manager.values("pk", *_names(model))} for model in tables}


def _names(model: type[models.Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


@dataclass(slots=True)
class Kept:
    """Rows that are written again: those that were missing, and those that differed."""

    new: Rows
    changed: Rows = field(default_factory=dict)
    _statements: list[Statement] = field(default_factory=list)

    @classmethod
    def between(cls, before: Rows, after: Rows) -> "Kept":
        """Return what it takes to come from these rows to those."""
        kept = cls({}, {})
        for model, rows in after.items():
            there = before[model]
            kept.new[model] = {pk: row for pk, row in rows.items() if pk not in there}
            kept.changed[model] = {pk: row for pk, row in rows.items() if pk in there and there[pk] != row}
        return kept

    def write(self) -> None:
        """Write rows as they were; whether what they refer to is there is looked at when the transaction ends."""
        with transaction.atomic():
            if not self._statements:
                with connection.execute_wrapper(self._remember):
                    self._write_objects()
                return
            with connection.cursor() as cursor:
                for sql, values in self._statements:
                    cursor.execute(sql, values)

    def _remember(self, execute: Callable[..., Any], sql: str, values: Any, many: bool, context: dict[str, Any]) -> Any:
        assert not many, sql
        self._statements.append((sql, values))
        return execute(sql, values, many, context)

    def _write_objects(self) -> None:
        for model, rows in self.changed.items():
            for pk, row in rows.items():
                model._base_manager.filter(pk=pk).update(**{name: row[name] for name in _names(model)})
        for model, rows in self.new.items():
            names = _names(model)
            model._base_manager.bulk_create(model(**{name: row[name] for name in names}) for row in rows.values())
