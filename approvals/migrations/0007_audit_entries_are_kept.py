"""Let the database itself refuse to delete an audit entry, to write one in another's place, or to empty the table.

What a database is emptied by between tests is refused too: they take these triggers away first.
"""

from django.db import migrations

TRIGGERS = {
    "sqlite": {
        "audit_entries_are_kept": """
            CREATE TRIGGER audit_entries_are_kept BEFORE DELETE ON approvals_auditentry
            BEGIN SELECT RAISE(ABORT, 'The audit log is append-only.'); END
        """,
        # INSERT OR REPLACE deletes without asking the trigger above.
        "audit_entries_stay": """
            CREATE TRIGGER audit_entries_stay BEFORE INSERT ON approvals_auditentry
            WHEN EXISTS (SELECT 1 FROM approvals_auditentry WHERE seq = NEW.seq OR id = NEW.id)
            BEGIN SELECT RAISE(ABORT, 'The audit log is append-only.'); END
        """,
    },
    # Changes and deletions of rows are refused there already (0003).
    "postgresql": {
        "audit_entries_are_kept": """
            CREATE TRIGGER audit_entries_are_kept BEFORE TRUNCATE ON approvals_auditentry
            FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()
        """,
    },
}


def protect(apps, schema_editor):
    for trigger in TRIGGERS[schema_editor.connection.vendor].values():
        schema_editor.execute(trigger, params=None)


def unprotect(apps, schema_editor):
    of_table = " ON approvals_auditentry" if schema_editor.connection.vendor == "postgresql" else ""
    for name in TRIGGERS[schema_editor.connection.vendor]:
        schema_editor.execute(f"DROP TRIGGER {name}{of_table}", params=None)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0006_likeness")]
    operations = [migrations.RunPython(protect, unprotect)]
