from django.db import migrations, models
from django.db.models import Exists, OuterRef


def disable_unused_sets(apps, schema_editor):
    """Disable the shipped sets none of whose tools was ever called: a new installation begins with none of them."""
    calls = apps.get_model("catalog", "Call").objects.filter(version__tool__source=OuterRef("pk"))
    sources = apps.get_model("catalog", "Source").objects.filter(kind="python", name__startswith="catalog.toolsets.")
    if sources.filter(~Exists(calls)).update(enabled=False):
        apps.get_model("catalog", "CatalogState").objects.update(revision=models.F("revision") + 1)


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0005_source_selection"),
    ]

    operations = [
        migrations.AddField(
            model_name="source",
            name="switched_at",
            field=models.DateTimeField(
                help_text="Time at which the source was last enabled or disabled; null while the default applies.",
                null=True,
            ),
        ),
        migrations.RunPython(disable_unused_sets, migrations.RunPython.noop),
    ]
