"""What a person gave a step in place of its parameters, after reviewers wanted it changed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("plans", "0007_budgets")]

    operations = [
        migrations.AddField(
            model_name="step",
            name="given_arguments",
            field=models.TextField(
                blank=True,
                help_text="RFC 8785 text that a person gave in place of the parameters, to be taken as it stands.",
            ),
        ),
    ]
