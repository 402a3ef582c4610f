"""Every table of approvals, the triggers that keep the audit log append-only, the default policies."""

import secrets
import approvals.models.grants
import approvals.models.policies
import approvals.models.requests
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


# INSERT OR REPLACE deletes without firing the trigger on DELETE, hence the one on INSERT.
AUDIT_ON_SQLITE = {
    "audit_is_append_only": """
        CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON approvals_auditentry
        BEGIN SELECT RAISE(ABORT, 'The audit log is append-only.'); END
    """,
    "audit_entries_are_kept": """
        CREATE TRIGGER audit_entries_are_kept BEFORE DELETE ON approvals_auditentry
        BEGIN SELECT RAISE(ABORT, 'The audit log is append-only.'); END
    """,
    "audit_entries_stay": """
        CREATE TRIGGER audit_entries_stay BEFORE INSERT ON approvals_auditentry
        WHEN EXISTS (SELECT 1 FROM approvals_auditentry WHERE seq = NEW.seq OR id = NEW.id)
        BEGIN SELECT RAISE(ABORT, 'The audit log is append-only.'); END
    """,
}
AUDIT_ON_POSTGRESQL = {
    "audit_is_append_only": """
        CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'The audit log is append-only.'; END $$;
        CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON approvals_auditentry
        FOR EACH ROW EXECUTE FUNCTION audit_is_append_only()
    """,
    "audit_entries_are_kept": """
        CREATE TRIGGER audit_entries_are_kept BEFORE TRUNCATE ON approvals_auditentry
        FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()
    """,
}
POLICIES = [
    (10, "Dangerous calls wait for a reviewer", "dangerous", "hold", [{"group": "reviewer", "count": 1}]),
    (20, "Cautious calls run and are written to the audit log", "cautious", "allow", []),
    (30, "Safe calls run by themselves", "safe", "allow", []),
]


def protect_audit_log(apps, schema_editor):
    on_sqlite = schema_editor.connection.vendor == "sqlite"
    for statement in (AUDIT_ON_SQLITE if on_sqlite else AUDIT_ON_POSTGRESQL).values():
        schema_editor.execute(statement, params=None)


def unprotect_audit_log(apps, schema_editor):
    on_sqlite = schema_editor.connection.vendor == "sqlite"
    for name in AUDIT_ON_SQLITE if on_sqlite else AUDIT_ON_POSTGRESQL:
        schema_editor.execute(f"DROP TRIGGER {name}" + ("" if on_sqlite else " ON approvals_auditentry"), params=None)
    if not on_sqlite:
        schema_editor.execute("DROP FUNCTION audit_is_append_only()", params=None)


def create_instance_and_policies(apps, schema_editor):
    apps.get_model("approvals", "Instance").objects.create(pk=1, name=f"inst_{secrets.token_urlsafe(18)}")
    Policy = apps.get_model("approvals", "Policy")
    PolicyRevision = apps.get_model("approvals", "PolicyRevision")
    for order, name, level, effect, stages in POLICIES:
        policy = Policy.objects.create(name=name, order=order)
        policy.revision = PolicyRevision.objects.create(
            policy=policy, number=1, safety_level=level, effect=effect, stages=stages
        )
        policy.save()


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("catalog", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Instance",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=40)),
                ("epoch", models.PositiveIntegerField(default=1)),
                ("audit_seq", models.BigIntegerField(default=0)),
                ("audit_head", models.CharField(blank=True, max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="Policy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "public_id",
                    models.CharField(default=approvals.models.policies.new_policy_id, max_length=40, unique=True),
                ),
                ("name", models.CharField(max_length=128)),
                ("order", models.PositiveIntegerField()),
                ("enabled", models.BooleanField(default=True)),
                (
                    "ended_at",
                    models.DateTimeField(
                        help_text="Time of the deletion; the row is kept for the requests it held.", null=True
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "policies",
                "ordering": ["order", "pk"],
            },
        ),
        migrations.CreateModel(
            name="ApprovalRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "public_id",
                    models.CharField(default=approvals.models.requests.new_request_id, max_length=40, unique=True),
                ),
                (
                    "status",
                    models.CharField(
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
                ("round_number", models.PositiveIntegerField(default=1)),
                (
                    "digest",
                    models.CharField(
                        help_text="Digest of the current round; a review names the one it saw.", max_length=64
                    ),
                ),
                ("intent_digest", models.CharField(db_index=True, max_length=64)),
                (
                    "likeness",
                    models.CharField(
                        blank=True, help_text="Digest of tool and arguments; equal for identical calls.", max_length=64
                    ),
                ),
                ("plan_ref", models.CharField(blank=True, max_length=40)),
                ("opened_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "effective_at",
                    models.DateTimeField(
                        help_text="Time at which the decision takes effect, after the undo window.", null=True
                    ),
                ),
                ("not_after", models.DateTimeField(help_text="End of the run window of an approval.", null=True)),
                (
                    "applied_at",
                    models.DateTimeField(help_text="Time at which the decision was applied to the call.", null=True),
                ),
                ("consumed_at", models.DateTimeField(null=True)),
                (
                    "ready_at",
                    models.DateTimeField(help_text="Time at which the step of a pre-approval became ready.", null=True),
                ),
                (
                    "is_early",
                    models.BooleanField(
                        default=False,
                        help_text="Pre-approval: opened before its step is ready, and in no queue until then.",
                    ),
                ),
                ("claimed_until", models.DateTimeField(null=True)),
                ("escalated_at", models.DateTimeField(null=True)),
                (
                    "escalated_to",
                    models.CharField(
                        blank=True, help_text="Group that can answer too since the escalation.", max_length=150
                    ),
                ),
                ("reminders", models.PositiveSmallIntegerField(default=0)),
                (
                    "remind_at",
                    models.DateTimeField(help_text="Time of the next reminder; None for never.", null=True),
                ),
                (
                    "extensions",
                    models.PositiveSmallIntegerField(default=0, help_text="Number of extensions."),
                ),
                (
                    "input_authors",
                    models.JSONField(
                        default=list,
                        help_text="Keys of the people who changed or answered steps whose values the call uses.",
                    ),
                ),
                (
                    "call",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="approval", to="catalog.call"
                    ),
                ),
                (
                    "claimed_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "superseded_by",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="supersedes",
                        to="approvals.approvalrequest",
                    ),
                ),
                (
                    "tool_version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="requests", to="catalog.toolversion"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Comment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "is_agent",
                    models.BooleanField(default=False, help_text="Written through an agent token."),
                ),
                ("text", models.TextField()),
                ("at", models.DateTimeField()),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="comments",
                        to="approvals.approvalrequest",
                    ),
                ),
            ],
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
                    models.CharField(
                        help_text="Fingerprint of the tool's version; a change ends the grant.", max_length=64
                    ),
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
                (
                    "implementation_digests",
                    models.JSONField(default=list, help_text="Digests of the code in use; other code ends the grant."),
                ),
                ("epoch", models.PositiveIntegerField()),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("max_uses", models.PositiveIntegerField()),
                ("uses", models.PositiveIntegerField(default=0)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("ended_because", models.TextField(blank=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "created_from",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="grants_made",
                        to="approvals.approvalrequest",
                    ),
                ),
                (
                    "requester",
                    models.ForeignKey(
                        help_text="User whose calls are covered.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "revoked_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "tool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="grants", to="catalog.tool"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="GrantUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "call",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="grant_use", to="catalog.call"
                    ),
                ),
                (
                    "grant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="used", to="approvals.grant"
                    ),
                ),
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
                (
                    "person",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notification_choice",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PolicyRevision",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                (
                    "tool",
                    models.CharField(blank=True, help_text="A glob over tool names; empty for all.", max_length=128),
                ),
                ("category", models.CharField(blank=True, max_length=64)),
                (
                    "safety_level",
                    models.CharField(blank=True, help_text="The level it applies to; empty for all.", max_length=16),
                ),
                (
                    "source",
                    models.CharField(blank=True, help_text="Source of the tool; empty for any.", max_length=128),
                ),
                (
                    "requester",
                    models.CharField(
                        blank=True, help_text="A username, or group:NAME; empty for anyone.", max_length=150
                    ),
                ),
                ("plan", models.CharField(blank=True, help_text="A plan's id; empty for any.", max_length=40)),
                (
                    "conditions",
                    models.JSONField(
                        default=list, help_text='[{"path": "amount", "operator": "less_than", "value": 5}]'
                    ),
                ),
                (
                    "hours",
                    models.CharField(blank=True, help_text="Mon-Fri 09:00-17:00; empty for always.", max_length=64),
                ),
                (
                    "effect",
                    models.CharField(choices=[("allow", "Allow"), ("hold", "Hold"), ("deny", "Deny")], max_length=8),
                ),
                ("message", models.TextField(blank=True, help_text="Message to the agent when the call is denied.")),
                ("stages", models.JSONField(default=list, help_text='[{"group": "reviewer", "count": 1}]')),
                (
                    "expires_seconds",
                    models.PositiveIntegerField(help_text="None: TOOLGATE_APPROVAL_TTL_SECONDS.", null=True),
                ),
                (
                    "on_expiry",
                    models.CharField(
                        choices=[
                            ("fail", "Fail"),
                            ("skip", "Skip"),
                            ("cancel_plan", "Cancel Plan"),
                            ("escalate", "Escalate"),
                        ],
                        default="fail",
                        max_length=12,
                    ),
                ),
                (
                    "escalate_to",
                    models.CharField(blank=True, help_text="Group to escalate to if nobody answers.", max_length=150),
                ),
                (
                    "remind",
                    models.BooleanField(
                        default=True, help_text="Send reminders at 50 % and 90 % of the time to answer."
                    ),
                ),
                ("batchable", models.BooleanField(default=False)),
                ("allow_self_review", models.BooleanField(default=False)),
                ("editor_may_approve", models.BooleanField(default=True)),
                (
                    "reason_required",
                    models.BooleanField(
                        help_text="Rejections need a reason; None: only for irreversible tools.", null=True
                    ),
                ),
                (
                    "min_review_seconds",
                    models.PositiveIntegerField(
                        default=0, help_text="Minimum time on a page before approval; 0 for none."
                    ),
                ),
                (
                    "typed_target",
                    models.BooleanField(default=False, help_text="Reviewers must type the target's name to approve."),
                ),
                (
                    "fresh_sign_in_seconds",
                    models.PositiveIntegerField(default=0, help_text="Longest time since sign-in; 0 for any."),
                ),
                (
                    "min_role_age_seconds",
                    models.PositiveIntegerField(
                        default=0, help_text="Minimum time of membership in the group; 0 for any."
                    ),
                ),
                (
                    "notify",
                    models.JSONField(
                        default=list, help_text="Addresses notified of requests in addition to the reviewers."
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "policy",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="revisions", to="approvals.policy"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="policy",
            name="revision",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="approvals.policyrevision"
            ),
        ),
        migrations.AddField(
            model_name="approvalrequest",
            name="policy_revision",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="requests", to="approvals.policyrevision"
            ),
        ),
        migrations.CreateModel(
            name="Round",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("arguments", models.TextField(help_text="RFC 8785 text, as on the call.")),
                ("digest", models.CharField(max_length=64)),
                (
                    "preview",
                    models.TextField(blank=True, help_text="JSON of the tool's preview; empty if it has none."),
                ),
                (
                    "state_token",
                    models.CharField(
                        blank=True, help_text="State of the target at the time of the preview.", max_length=255
                    ),
                ),
                ("quorum", models.PositiveSmallIntegerField(default=1)),
                ("created_at", models.DateTimeField()),
                (
                    "editor",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "policy_revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rounds",
                        to="approvals.policyrevision",
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rounds",
                        to="approvals.approvalrequest",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Review",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "verdict",
                    models.CharField(
                        choices=[
                            ("approve", "Approved"),
                            ("reject", "Rejected"),
                            ("respond", "Answered instead of the tool"),
                            ("request_changes", "Requested changes"),
                        ],
                        max_length=16,
                    ),
                ),
                ("comment", models.TextField(blank=True)),
                ("response", models.TextField(blank=True, help_text="JSON of the answer instead of the tool.")),
                (
                    "effect",
                    models.CharField(
                        default="fail", help_text="Of a rejection: fail, skip or cancel_plan.", max_length=12
                    ),
                ),
                ("seen_digest", models.CharField(max_length=64)),
                ("channel", models.CharField(help_text="page or rest.", max_length=16)),
                ("at", models.DateTimeField()),
                ("undone_at", models.DateTimeField(null=True)),
                (
                    "on_behalf_of",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="reviews", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reviews",
                        to="approvals.approvalrequest",
                    ),
                ),
                (
                    "round",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="reviews", to="approvals.round"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Snooze",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("until", models.DateTimeField()),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="snoozes",
                        to="approvals.approvalrequest",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField(unique=True)),
                ("at", models.DateTimeField()),
                ("actor_name", models.CharField(max_length=150)),
                ("action", models.CharField(max_length=64)),
                ("object_ref", models.CharField(blank=True, max_length=64)),
                ("tool_name", models.CharField(blank=True, max_length=64)),
                ("plan_ref", models.CharField(blank=True, max_length=40)),
                ("digest", models.CharField(blank=True, max_length=64)),
                ("details", models.TextField(default="{}", help_text="RFC 8785 text: ids, digests and reasons only.")),
                ("prev_hash", models.CharField(blank=True, max_length=64)),
                ("hash", models.CharField(max_length=64)),
                (
                    "actor",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "audit entries",
                "ordering": ["-seq"],
                "indexes": [
                    models.Index(fields=["object_ref"], name="audit_by_object"),
                    models.Index(fields=["action", "-seq"], name="audit_by_action"),
                    models.Index(fields=["tool_name", "-seq"], name="audit_by_tool"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Delegation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                (
                    "by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="delegations",
                        to="approvals.approvalrequest",
                    ),
                ),
                (
                    "to",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("request", "by"), name="delegation_once")],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "event_key",
                    models.CharField(help_text="Identifies the event; unique for each address.", max_length=128),
                ),
                ("kind", models.CharField(max_length=32)),
                ("channel", models.CharField(help_text="mail, webhook or chat.", max_length=16)),
                ("address_key", models.CharField(help_text="A hash of the address.", max_length=64)),
                ("address", models.TextField(help_text="Encrypted address, since chat addresses contain tokens.")),
                (
                    "shown_address",
                    models.CharField(help_text="The address without secrets.", max_length=255),
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
                (
                    "call",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="deliveries",
                        to="catalog.call",
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="deliveries",
                        to="approvals.approvalrequest",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "indexes": [
                    models.Index(
                        condition=models.Q(("status__in", ["due", "sending"])), fields=["due_at"], name="delivery_due"
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("event_key", "address_key"), name="delivery_once")],
            },
        ),
        migrations.AddIndex(
            model_name="grant",
            index=models.Index(
                condition=models.Q(("revoked_at", None)), fields=["tool", "expires_at"], name="grant_in_force"
            ),
        ),
        migrations.AddConstraint(
            model_name="policyrevision",
            constraint=models.UniqueConstraint(fields=("policy", "number"), name="policy_revision_once"),
        ),
        migrations.AddConstraint(
            model_name="policy",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at", None)), fields=("name",), name="policy_name_once"
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(fields=["plan_ref", "status"], name="request_of_plan"),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(fields=["status", "expires_at"], name="request_due_to_expire"),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("applied_at", None), ("decided_at__isnull", False)),
                fields=["effective_at"],
                name="request_due_to_apply",
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("status", "pending")), fields=["remind_at"], name="request_due_to_remind"
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("status", "pending")),
                fields=[
                    "status",
                    "opened_at",
                    "id",
                    "expires_at",
                    "is_early",
                    "ready_at",
                    "decided_at",
                    "policy_revision",
                    "escalated_to",
                    "tool_version",
                    "call",
                    "claimed_by",
                    "claimed_until",
                ],
                name="request_queue",
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("status", "pending")), fields=["likeness", "status"], name="request_twins"
            ),
        ),
        migrations.AddIndex(
            model_name="approvalrequest",
            index=models.Index(
                condition=models.Q(("decided_at__isnull", False)),
                fields=["tool_version", "id"],
                name="request_answered",
            ),
        ),
        migrations.AddConstraint(
            model_name="round",
            constraint=models.UniqueConstraint(fields=("request", "number"), name="round_once"),
        ),
        migrations.AddConstraint(
            model_name="review",
            constraint=models.UniqueConstraint(
                condition=models.Q(("undone_at", None)),
                fields=("round", "person"),
                name="one_review_per_person_and_round",
            ),
        ),
        migrations.AddConstraint(
            model_name="snooze",
            constraint=models.UniqueConstraint(fields=("request", "person"), name="snooze_once"),
        ),
        migrations.RunPython(protect_audit_log, unprotect_audit_log),
        migrations.RunPython(create_instance_and_policies, migrations.RunPython.noop),
    ]
