"""Bind the grants there are to the accounts that their usernames and sessions are of."""

from django.db import migrations


def bind(apps, schema_editor):
    accounts = apps.get_model("auth", "User").objects
    for grant in (
        apps.get_model("approvals", "Grant").objects.exclude(scope="plan").select_related("created_from__call")
    ):
        if grant.scope == "requester":
            grant.requester_id = accounts.filter(username=grant.scope_ref).values_list("pk", flat=True).first()
        elif grant.created_from is not None:
            grant.requester_id = grant.created_from.call.requested_by_id
        grant.save(update_fields=["requester"])


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0010_whose_calls_a_grant_is_about"),
    ]

    operations = [migrations.RunPython(bind, migrations.RunPython.noop)]
