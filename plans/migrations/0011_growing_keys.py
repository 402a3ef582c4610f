"""Keep no counter of keys beside the tables whose rows are never deleted; nothing changes on PostgreSQL."""

from django.db import migrations

import catalog.columns


class Migration(migrations.Migration):
    dependencies = [("plans", "0010_questions")]
    operations = [
        migrations.AlterField(
            model_name="event", name="id", field=catalog.columns.GrowingKey(primary_key=True, serialize=False)
        ),
        migrations.AlterField(
            model_name="memoryitem", name="id", field=catalog.columns.GrowingKey(primary_key=True, serialize=False)
        ),
    ]
