from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0014_queue_by_index")]

    operations = [
        migrations.AddField(
            model_name="approvalrequest",
            name="input_authors",
            field=models.JSONField(
                default=list,
                help_text="Keys of the people who changed or answered what the call takes values from.",
            ),
        ),
    ]
