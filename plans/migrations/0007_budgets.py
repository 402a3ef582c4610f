"""What a plan may spend, and what it has spent."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("plans", "0006_running_steps")]

    operations = [
        migrations.AddField(
            model_name="plan",
            name="budget_calls",
            field=models.PositiveIntegerField(help_text="How many calls it may start.", null=True),
        ),
        migrations.AddField(
            model_name="plan",
            name="budget_seconds",
            field=models.PositiveIntegerField(help_text="How long its tools may run, together.", null=True),
        ),
        migrations.AddField(model_name="plan", name="calls_used", field=models.PositiveIntegerField(default=0)),
        migrations.AddField(model_name="plan", name="seconds_used", field=models.FloatField(default=0.0)),
    ]
