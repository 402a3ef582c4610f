"""Which trace asked for a plan: its steps belong to it, whatever process runs them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("plans", "0004_changing_and_retrying"),
    ]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="traceparent",
            field=models.CharField(blank=True, default="", help_text="The W3C trace that asked for it.", max_length=55),
            preserve_default=False,
        ),
    ]
