"""Which ids the calling program gave with a direct call: its tool finds them in its context, whatever process runs it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("plans", "0016_model_texts"),
    ]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="caller_ids",
            field=models.TextField(
                blank=True,
                help_text="JSON: the ids that a program gave its tools with a direct call; empty for any other.",
            ),
        ),
    ]
