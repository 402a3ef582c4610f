"""A model field for JSON whose members keep their order."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import Expression
from psycopg.types.json import Json, Jsonb


class OrderedJSONField(models.JSONField):
    """JSONField as PostgreSQL's `json`, which keeps the order of members. It has no equality: compare texts (`KT`)."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return "json" if connection.vendor == "postgresql" else super().db_type(connection)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:  # noqa: FBT001, FBT002 - as Django calls it
        adapted = super().get_db_prep_value(value, connection, prepared)
        return Json(adapted.obj, adapted.dumps) if isinstance(adapted, Jsonb) else adapted

    def from_db_value(self, value: Any, expression: Expression, connection: BaseDatabaseWrapper) -> Any:
        """Return the value unchanged on PostgreSQL, whose driver has already parsed it, unless it is text."""
        if connection.vendor == "postgresql" and not isinstance(value, str | bytes):
            return value
        return super().from_db_value(value, expression, connection)
