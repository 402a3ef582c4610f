"""Make the four roles, which are Django groups, and the row that tells processes the catalog changed."""

from django.db import migrations

ROLES = ["viewer", "operator", "reviewer", "administrator"]


def make_roles(apps, schema_editor):
    group = apps.get_model("auth", "Group")
    for name in ROLES:
        group.objects.get_or_create(name=name)
    apps.get_model("catalog", "CatalogState").objects.get_or_create(pk=1)


class Migration(migrations.Migration):
    dependencies = [("catalog", "0001_initial"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [migrations.RunPython(make_roles, migrations.RunPython.noop)]
