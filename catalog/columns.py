"""Columns that Django's own fields do not make as the hot path needs them."""

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class GrowingKey(models.BigAutoField):  # type: ignore[type-arg] # it takes none while it runs
    """The key of rows that are never deleted, so that the highest one there is says which was given out last.

    SQLite's AUTOINCREMENT keeps that number in a table besides, which costs every transaction a page more. Whoever
    begins to delete such rows must go back to BigAutoField: the key of the newest one would be given out again.
    """

    def db_type_suffix(self, connection: "BaseDatabaseWrapper") -> str | None:
        """Return what stands behind the column's type: nothing on SQLite, which counts on by itself."""
        return None if connection.vendor == "sqlite" else super().db_type_suffix(connection)
