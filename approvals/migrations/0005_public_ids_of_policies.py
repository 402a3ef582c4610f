"""Give every policy a public id of its own."""

from django.db import migrations, models

from approvals.models.policies import new_policy_id


def give_ids(apps, schema_editor):
    for policy in apps.get_model("approvals", "Policy").objects.filter(public_id=""):
        policy.public_id = new_policy_id()
        policy.save(update_fields=["public_id"])


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0004_the_whole_review"),
    ]

    operations = [
        migrations.RunPython(give_ids, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="policy",
            name="public_id",
            field=models.CharField(default=new_policy_id, max_length=40, unique=True),
        ),
    ]
