"""Ways in which an owner of the database can tamper with the audit log."""

from django.db import connection


def drop_triggers() -> None:
    """Drop the triggers that make entries of the audit log immutable."""
    with connection.cursor() as cursor:
        of_table = " ON approvals_auditentry" if connection.vendor == "postgresql" else ""
        for trigger in ("audit_is_append_only", "audit_entries_stay"):
            cursor.execute(f"DROP TRIGGER IF EXISTS {trigger}{of_table}")
