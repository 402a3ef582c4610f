"""Steps that the planner added after an answer are marked: what it says in them is private."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("plans", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="step",
            name="after_answer",
            field=models.BooleanField(
                default=False, help_text="The planner added it after a person's answer: what it says is private."
            ),
        ),
    ]
