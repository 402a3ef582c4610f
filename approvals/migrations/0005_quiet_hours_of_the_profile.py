from django.db import migrations
from django.db.migrations.state import StateApps


def move_time_zones(apps: StateApps, schema_editor: object) -> None:
    """Keep the time zone of people's quiet hours as that of their profile. UTC was the default, so nobody chose it."""
    personal_settings = apps.get_model("catalog", "PersonalSettings")
    for choice in apps.get_model("approvals", "NotificationChoice").objects.exclude(time_zone="UTC"):
        personal_settings.objects.update_or_create(person_id=choice.person_id, defaults={"time_zone": choice.time_zone})


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0004_sort_by_decision"),
        ("catalog", "0010_personal_settings"),
    ]

    operations = [
        migrations.RunPython(move_time_zones, migrations.RunPython.noop),
        migrations.RemoveField(model_name="notificationchoice", name="time_zone"),
    ]
