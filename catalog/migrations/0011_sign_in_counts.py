"""Count attempts to sign in, by account and by address."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0010_fewer_pages_per_call"),
    ]

    operations = [
        migrations.CreateModel(
            name="SignInCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "key",
                    models.CharField(help_text="HMAC-SHA256 of the name or the address.", max_length=64, unique=True),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("last_at", models.DateTimeField(db_index=True)),
                ("waits_until", models.DateTimeField(help_text="No password is checked before.", null=True)),
                (
                    "refusal_kept",
                    models.BooleanField(default=False, help_text="The audit log has a refusal of this wait."),
                ),
            ],
        ),
    ]
