import approvals.models.grants
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0003_audit_is_append_only"),
        ("catalog", "0007_keys_that_know_what_was_done"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Comment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "is_agent",
                    models.BooleanField(default=False, help_text="Written through an agent's token: not checked."),
                ),
                ("text", models.TextField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Delegation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("event_key", models.CharField(help_text="What it tells, once for each address.", max_length=128)),
                ("kind", models.CharField(max_length=32)),
                ("channel", models.CharField(help_text="mail, webhook or chat.", max_length=16)),
                ("address_key", models.CharField(help_text="A hash of the address.", max_length=64)),
                ("address", models.TextField(help_text="Where it goes, encrypted: chat addresses hold tokens.")),
                (
                    "shown_address",
                    models.CharField(help_text="The address without what is secret in it.", max_length=255),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("due", "Due"),
                            ("sending", "Sending"),
                            ("sent", "Sent"),
                            ("failed", "Failed"),
                            ("dropped", "Dropped"),
                        ],
                        default="due",
                        max_length=8,
                    ),
                ),
                ("due_at", models.DateTimeField()),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("last_error", models.CharField(blank=True, max_length=255)),
                ("created_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name_plural": "deliveries",
            },
        ),
        migrations.CreateModel(
            name="Grant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "public_id",
                    models.CharField(default=approvals.models.grants.new_grant_id, max_length=40, unique=True),
                ),
                (
                    "fingerprint",
                    models.CharField(help_text="Of the version it was given for: drift ends it.", max_length=64),
                ),
                (
                    "conditions",
                    models.JSONField(default=list, help_text="Rows of path, operator and value, as in policies."),
                ),
                (
                    "scope",
                    models.CharField(
                        choices=[("plan", "Plan"), ("session", "Session"), ("requester", "Requester")], max_length=12
                    ),
                ),
                (
                    "scope_ref",
                    models.CharField(help_text="A plan's id, a session's name, or a username.", max_length=150),
                ),
                ("epoch", models.PositiveIntegerField()),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("max_uses", models.PositiveIntegerField()),
                ("uses", models.PositiveIntegerField(default=0)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("ended_because", models.TextField(blank=True)),
            ],
        ),
        migrations.CreateModel(
            name="GrantUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="NotificationChoice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("by_mail", models.BooleanField(default=True)),
                ("addresses", models.JSONField(default=list, help_text="Webhooks and chat addresses of this person.")),
                ("quiet_from", models.TimeField(null=True)),
                ("quiet_until", models.TimeField(null=True)),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="Snooze",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("until", models.DateTimeField()),
            ],
        ),
        migrations.AlterModelOptions(
            name="policy",
            options={"ordering": ["order", "pk"], "verbose_name_plural": "policies"},
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="claimed_by",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="claimed_until",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="escalated_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="escalated_to",
            field=models.CharField(blank=True, help_text="The group that may answer now, too.", max_length=150),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="is_early",
            field=models.BooleanField(
                default=False, help_text="Asked before its step is ready: in no queue until then."
            ),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="ready_at",
            field=models.DateTimeField(help_text="When the step of a request asked early became ready.", null=True),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="remind_at",
            field=models.DateTimeField(help_text="When those who may answer are reminded; None for never.", null=True),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="reminders",
            field=models.PositiveSmallIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="policy",
            name="ended_at",
            field=models.DateTimeField(
                help_text="When it was deleted: it is kept for the requests it held.", null=True
            ),
        ),
        migrations.AddField(
            model_name="policy",
            name="public_id",
            field=models.CharField(default="", max_length=40),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="batchable",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="category",
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="conditions",
            field=models.JSONField(default=list, help_text='[{"path": "amount", "operator": "less_than", "value": 5}]'),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="created_by",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="editor_may_approve",
            field=models.BooleanField(default=True),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="escalate_to",
            field=models.CharField(blank=True, help_text="The group asked when nobody answered.", max_length=150),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="fresh_sign_in_seconds",
            field=models.PositiveIntegerField(default=0, help_text="Longest time since sign-in; 0 for any."),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="hours",
            field=models.CharField(blank=True, help_text="Mon-Fri 09:00-17:00; empty for always.", max_length=64),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="min_review_seconds",
            field=models.PositiveIntegerField(default=0, help_text="On pages; 0 for none."),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="min_role_age_seconds",
            field=models.PositiveIntegerField(default=0, help_text="How long the role was held; 0 for any."),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="notify",
            field=models.JSONField(
                default=list, help_text="Addresses told of requests beside the people who may answer."
            ),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="on_expiry",
            field=models.CharField(
                choices=[("fail", "Fail"), ("skip", "Skip"), ("cancel_plan", "Cancel Plan"), ("escalate", "Escalate")],
                default="fail",
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="plan",
            field=models.CharField(blank=True, help_text="A plan's id; empty for any.", max_length=40),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="remind",
            field=models.BooleanField(
                default=True, help_text="Remind at half and at nine tenths of the time to answer."
            ),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="requester",
            field=models.CharField(
                blank=True, help_text="A username, or group:NAME; empty for anyone.", max_length=150
            ),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="source",
            field=models.CharField(
                blank=True, help_text="Where the tool comes from; empty for anywhere.", max_length=128
            ),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="tool",
            field=models.CharField(blank=True, help_text="A glob over tool names; empty for all.", max_length=128),
        ),
        migrations.AddField(
            model_name="policyrevision",
            name="typed_target",
            field=models.BooleanField(default=False, help_text="Approving takes typing what the call is about."),
        ),
        migrations.AddField(
            model_name="review",
            name="effect",
            field=models.CharField(
                default="fail", help_text="Of a rejection: fail, skip or cancel_plan.", max_length=12
            ),
        ),
        migrations.AddField(
            model_name="review",
            name="on_behalf_of",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="review",
            name="response",
            field=models.TextField(blank=True, help_text="JSON of the answer given in the tool's place."),
        ),
        migrations.AlterField(
            model_name="approvalrequest",
            name="status",
            field=models.CharField(
                choices=[
                    ("pending", "Pending"),
                    ("approved", "Approved"),
                    ("consumed", "Consumed"),
                    ("rejected", "Rejected"),
                    ("responded", "Responded"),
                    ("changes_requested", "Changes Requested"),
                    ("expired", "Expired"),
                    ("withdrawn", "Withdrawn"),
                    ("revoked", "Revoked"),
                    ("invalidated", "Invalidated"),
                    ("superseded", "Superseded"),
                ],
                default="pending",
                max_length=20,
            ),
        ),
        migrations.AlterField(
            model_name="policy",
            name="name",
            field=models.CharField(max_length=128),
        ),
        migrations.AlterField(
            model_name="policy",
            name="order",
            field=models.PositiveIntegerField(),
        ),
        migrations.AlterField(
            model_name="review",
            name="verdict",
            field=models.CharField(
                choices=[
                    ("approve", "Approve"),
                    ("reject", "Reject"),
                    ("respond", "Respond"),
                    ("request_changes", "Request Changes"),
                ],
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="policy",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at", None)), fields=("name",), name="policy_name_once"
            ),
        ),
        migrations.AddField(
            model_name="comment",
            name="person",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="comment",
            name="request",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="comments", to="approvals.approvalrequest"
            ),
        ),
        migrations.AddField(
            model_name="delegation",
            name="by",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="delegation",
            name="request",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="delegations", to="approvals.approvalrequest"
            ),
        ),
        migrations.AddField(
            model_name="delegation",
            name="to",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="delivery",
            name="person",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="delivery",
            name="request",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="deliveries",
                to="approvals.approvalrequest",
            ),
        ),
        migrations.AddField(
            model_name="grant",
            name="created_by",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="grant",
            name="created_from",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="grants_made",
                to="approvals.approvalrequest",
            ),
        ),
        migrations.AddField(
            model_name="grant",
            name="revoked_by",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="grant",
            name="tool",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="grants", to="catalog.tool"
            ),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="grant",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="requests", to="approvals.grant"
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("status", "pending")), fields=["remind_at"], name="request_due_to_remind"
            ),
        ),
        migrations.AddField(
            model_name="grantuse",
            name="call",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT, related_name="grant_use", to="catalog.call"
            ),
        ),
        migrations.AddField(
            model_name="grantuse",
            name="grant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="used", to="approvals.grant"
            ),
        ),
        migrations.AddField(
            model_name="notificationchoice",
            name="person",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notification_choice",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="snooze",
            name="person",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="snooze",
            name="request",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="snoozes", to="approvals.approvalrequest"
            ),
        ),
        migrations.AddConstraint(
            model_name="delegation",
            constraint=models.UniqueConstraint(fields=("request", "by"), name="delegation_once"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("status__in", ["due", "sending"])), fields=["due_at"], name="delivery_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(fields=("event_key", "address_key"), name="delivery_once"),
        ),
        migrations.AddIndex(
            model_name="grant",
            index=models.Index(
                condition=models.Q(("revoked_at", None)), fields=["tool", "expires_at"], name="grant_in_force"
            ),
        ),
        migrations.AddConstraint(
            model_name="snooze",
            constraint=models.UniqueConstraint(fields=("request", "person"), name="snooze_once"),
        ),
    ]
