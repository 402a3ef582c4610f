"""What an administrator switched off is told from code that vanished; categories that an administrator chose."""

from django.db import migrations, models


def tell_vanished_from_disabled(apps, schema_editor):
    """Until now only code that had vanished was disabled."""
    rows = apps.get_model("catalog", "Implementation").objects
    rows.filter(enabled=False).update(registered=False, enabled=True)


def note_what_authors_declared(apps, schema_editor):
    """Until now nobody could set anything over it, so the current version is what the author wrote."""
    for tool in apps.get_model("catalog", "Tool").objects.filter(declared_level="", current_version__isnull=False):
        tool.declared_level = tool.current_version.safety_level
        tool.declared_description = tool.current_version.description
        tool.save(update_fields=["declared_level", "declared_description"])


class Migration(migrations.Migration):
    dependencies = [("catalog", "0004_tool_search")]
    operations = [
        migrations.AddField(
            "tool",
            "categories_override",
            models.JSONField(null=True, help_text="Set by an administrator; null: the author's."),
        ),
        migrations.AddField(
            "implementation",
            "registered",
            models.BooleanField(default=True, help_text="False when no loaded source offers it any more."),
        ),
        migrations.AlterField(
            "implementation",
            "weight",
            models.PositiveSmallIntegerField(default=100, help_text="Its share of the plans, beside the others'."),
        ),
        migrations.RunPython(tell_vanished_from_disabled, migrations.RunPython.noop),
        migrations.RunPython(note_what_authors_declared, migrations.RunPython.noop),
    ]
