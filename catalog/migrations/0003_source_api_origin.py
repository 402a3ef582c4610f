from django.db import migrations, models
from django.utils import timezone


def request_synchronisations(apps, schema_editor):
    """Let OpenAPI sources be read again, which stores the origin of their API."""
    sources = apps.get_model("catalog", "Source").objects.filter(kind="openapi", enabled=True)
    sources.update(sync_requested_at=timezone.now())


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0002_sources"),
    ]

    operations = [
        migrations.AddField(
            model_name="source",
            name="api_origin",
            field=models.TextField(
                blank=True,
                help_text="Scheme and host that the headers are for; of an OpenAPI source, empty until it is known.",
            ),
        ),
        migrations.RunPython(request_synchronisations, migrations.RunPython.noop),
    ]
