"""Let the database itself refuse to change an audit entry; on PostgreSQL to delete one, too.

SQLite cannot tell a deletion by hand from the emptying of its tables between tests, so deletions are left to the
chain, which shows them.
"""

from django.db import migrations

REFUSAL = "The audit log is append-only."
SQLITE = f"""
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON approvals_auditentry
BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END
"""
POSTGRESQL = f"""
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON approvals_auditentry
FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
"""
UNDO = {
    "sqlite": "DROP TRIGGER audit_is_append_only",
    "postgresql": "DROP TRIGGER audit_is_append_only ON approvals_auditentry; DROP FUNCTION audit_is_append_only()",
}


def protect(apps, schema_editor):
    schema_editor.execute({"sqlite": SQLITE, "postgresql": POSTGRESQL}[schema_editor.connection.vendor], params=None)


def unprotect(apps, schema_editor):
    schema_editor.execute(UNDO[schema_editor.connection.vendor], params=None)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0002_instance_and_default_policies")]
    operations = [migrations.RunPython(protect, unprotect)]
