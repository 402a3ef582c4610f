"""Which requests ask for the same, wherever they were asked: what the lists say of a flood."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0005_public_ids_of_policies")]

    operations = [
        migrations.AddField(
            model_name="approvalrequest",
            name="likeness",
            field=models.CharField(
                blank=True, default="", help_text="The same for calls of one tool with one text.", max_length=64
            ),
            preserve_default=False,
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(condition=models.Q(("status", "pending")), fields=["likeness"], name="request_twins"),
        ),
    ]
