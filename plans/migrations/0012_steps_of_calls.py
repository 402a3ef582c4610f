"""Let steps that have no call yet stand in no index for it; on SQLite the table is made again."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0010_fewer_pages_per_call"), ("plans", "0011_growing_keys")]
    operations = [
        migrations.AlterField(
            model_name="step",
            name="call",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="steps",
                related_query_name="step",
                to="catalog.call",
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(
                condition=models.Q(("call__isnull", False)), fields=("call",), name="step_of_call"
            ),
        ),
    ]
