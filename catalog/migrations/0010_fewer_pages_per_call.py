"""Write fewer pages for each call: no counter of keys beside the table, no index that nothing is looked up by.

On SQLite the table is made again three times over: some seconds for each million of calls.
"""

import django.db.models.deletion
from django.db import migrations, models

import catalog.columns


# Django keeps one more index of each unique text on PostgreSQL, for LIKE; no id of a call is looked up by a part of it.
LIKE_INDEX = """
SELECT indexname FROM pg_indexes
WHERE schemaname = current_schema() AND tablename = 'catalog_call' AND indexdef LIKE '%(public_id varchar_pattern_ops)'
"""


def drop_like_index(apps, schema_editor):
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(LIKE_INDEX)
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP INDEX {schema_editor.quote_name(name)}")


class Migration(migrations.Migration):
    dependencies = [("catalog", "0009_tool_grantable")]
    operations = [
        migrations.AlterField(
            model_name="call",
            name="id",
            field=catalog.columns.GrowingKey(primary_key=True, serialize=False),
        ),
        migrations.AlterField(model_name="call", name="plan_ref", field=models.CharField(blank=True, max_length=40)),
        migrations.AlterField(
            model_name="call",
            name="replaces",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="replacements",
                to="catalog.call",
            ),
        ),
        migrations.AddConstraint(
            model_name="call",
            constraint=models.UniqueConstraint(
                condition=models.Q(("replaces__isnull", False)), fields=("replaces",), name="call_replaced_once"
            ),
        ),
        migrations.RunPython(drop_like_index, migrations.RunPython.noop),
    ]
