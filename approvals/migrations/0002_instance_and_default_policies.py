"""Name this installation and give it the three safety levels as its default policies."""

import secrets

from django.db import migrations

DEFAULTS = [
    (10, "Dangerous calls wait for a reviewer", "dangerous", "hold", [{"group": "reviewer", "count": 1}]),
    (20, "Cautious calls run and are written to the audit log", "cautious", "allow", []),
    (30, "Safe calls run by themselves", "safe", "allow", []),
]


def make_defaults(apps, schema_editor):
    apps.get_model("approvals", "Instance").objects.create(pk=1, name=f"inst_{secrets.token_urlsafe(18)}")
    Policy = apps.get_model("approvals", "Policy")
    PolicyRevision = apps.get_model("approvals", "PolicyRevision")
    for order, name, level, effect, stages in DEFAULTS:
        policy = Policy.objects.create(name=name, order=order)
        policy.revision = PolicyRevision.objects.create(
            policy=policy, number=1, safety_level=level, effect=effect, stages=stages
        )
        policy.save()


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]
    operations = [migrations.RunPython(make_defaults, migrations.RunPython.noop)]
