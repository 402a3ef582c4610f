from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("plans", "0005_traceparent")]

    operations = [
        migrations.RemoveIndex(model_name="step", name="step_leased"),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("lease_until__isnull", False)),
                fields=["plan", "lease_until"],
                name="step_running",
            ),
        ),
    ]
