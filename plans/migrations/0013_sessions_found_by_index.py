"""Find sessions, their lists and their calls by indexes of their own; calls outside of named sessions stand in none."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0010_fewer_pages_per_call"),
        ("plans", "0012_steps_of_calls"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("kind", "session")), fields=["author", "session", "-id"], name="plan_list_of_person"
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("kind", "session"), ("token__isnull", False)),
                fields=["token", "session", "-id"],
                name="plan_list_of_token",
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("session", ""), _negated=True),
                fields=["author", "session", "-id"],
                name="plan_in_session",
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(models.Q(("session", ""), _negated=True), ("token__isnull", False)),
                fields=["token", "session", "-id"],
                name="plan_in_session_of_token",
            ),
        ),
    ]
