"""How often a request that would soon have expired was given more time."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """One counter on a request."""

    dependencies: ClassVar = [("approvals", "0011_requesters_of_grants")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="approvalrequest",
            name="extensions",
            field=models.PositiveSmallIntegerField(default=0, help_text="How often somebody gave it more time."),
        ),
    ]
