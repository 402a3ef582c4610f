"""A notice may be about a call that nobody was asked about: one whose outcome is unknown."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0008_grant_implementation_digests"),
        ("catalog", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="delivery",
            name="call",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="deliveries", to="catalog.call"
            ),
        ),
    ]
