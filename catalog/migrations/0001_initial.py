"""Every table of the catalog, the full-text index of tools, the roles and the row that counts changes."""

import catalog.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


ROLES = ["viewer", "operator", "reviewer", "administrator"]

# Words are already split and case-folded (catalog.inventory.search), so the ascii tokenizer only splits at spaces.
SEARCH_ON_SQLITE = [
    """CREATE VIRTUAL TABLE catalog_toolsearch USING fts5(
        name_words, other_words, content='catalog_tooltext', content_rowid='tool_id',
        tokenize='ascii', prefix='1 2 3', detail='column'
    )""",
    """CREATE TRIGGER catalog_tooltext_added AFTER INSERT ON catalog_tooltext BEGIN
        INSERT INTO catalog_toolsearch (rowid, name_words, other_words)
        VALUES (new.tool_id, new.name_words, new.other_words);
    END""",
    """CREATE TRIGGER catalog_tooltext_removed AFTER DELETE ON catalog_tooltext BEGIN
        INSERT INTO catalog_toolsearch (catalog_toolsearch, rowid, name_words, other_words)
        VALUES ('delete', old.tool_id, old.name_words, old.other_words);
    END""",
    """CREATE TRIGGER catalog_tooltext_changed AFTER UPDATE ON catalog_tooltext BEGIN
        INSERT INTO catalog_toolsearch (catalog_toolsearch, rowid, name_words, other_words)
        VALUES ('delete', old.tool_id, old.name_words, old.other_words);
        INSERT INTO catalog_toolsearch (rowid, name_words, other_words)
        VALUES (new.tool_id, new.name_words, new.other_words);
    END""",
]
# The words become lexemes unchanged; PostgreSQL's own parser would split them again by other rules.
SEARCH_ON_POSTGRESQL = [
    """ALTER TABLE catalog_tooltext
        ADD COLUMN name_index tsvector GENERATED ALWAYS AS
            (array_to_tsvector(string_to_array(name_words, ' '))) STORED,
        ADD COLUMN whole_index tsvector GENERATED ALWAYS AS
            (array_to_tsvector(string_to_array(name_words, ' ') || string_to_array(other_words, ' '))) STORED""",
    "CREATE INDEX tool_search ON catalog_tooltext USING gin (whole_index)",
]


def create_search_index(apps, schema_editor):
    on_sqlite = schema_editor.connection.vendor == "sqlite"
    for statement in SEARCH_ON_SQLITE if on_sqlite else SEARCH_ON_POSTGRESQL:
        schema_editor.execute(statement, params=None)


def drop_search_index(apps, schema_editor):
    # PostgreSQL's columns and SQLite's triggers are dropped with their table.
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute("DROP TABLE catalog_toolsearch")


def without_pattern_index(apps, schema_editor):
    """Skip the second index that Django adds on PostgreSQL for LIKE: ids of calls are only looked up whole."""
    schema_editor.deferred_sql = [
        statement
        for statement in schema_editor.deferred_sql
        if not (statement.references_column("catalog_call", "public_id") and "varchar_pattern_ops" in str(statement))
    ]


def create_roles(apps, schema_editor):
    group = apps.get_model("auth", "Group")
    for name in ROLES:
        group.objects.get_or_create(name=name)
    apps.get_model("catalog", "CatalogState").objects.get_or_create(pk=1)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="CatalogState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("revision", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Category",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
            ],
            options={
                "verbose_name_plural": "categories",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="SignInCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "key",
                    models.CharField(
                        help_text="HMAC-SHA256 of the username or the IP address.", max_length=64, unique=True
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("last_at", models.DateTimeField(db_index=True)),
                ("waits_until", models.DateTimeField(help_text="Time before which no password is checked.", null=True)),
                (
                    "refusal_kept",
                    models.BooleanField(
                        default=False, help_text="True if the audit log records a refusal during this wait."
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Source",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=128, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[("python", "Python"), ("mcp", "Mcp"), ("openapi", "Openapi")],
                        default="python",
                        max_length=16,
                    ),
                ),
                ("trusted", models.BooleanField(default=False)),
                (
                    "error",
                    models.TextField(blank=True, help_text="Why its tools could not be loaded; empty when they were."),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Tool",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
                ("enabled", models.BooleanField(default=True)),
                (
                    "registered",
                    models.BooleanField(default=True, help_text="False if no loaded source offers it any more."),
                ),
                ("declared_description", models.TextField(blank=True)),
                (
                    "declared_level",
                    models.CharField(
                        blank=True,
                        choices=[("safe", "Safe"), ("cautious", "Cautious"), ("dangerous", "Dangerous")],
                        max_length=16,
                    ),
                ),
                (
                    "description_override",
                    models.TextField(blank=True, help_text="Description shown to models; empty for the author's."),
                ),
                (
                    "level_override",
                    models.CharField(
                        blank=True,
                        choices=[("safe", "Safe"), ("cautious", "Cautious"), ("dangerous", "Dangerous")],
                        help_text="Set by an administrator; empty for the author's.",
                        max_length=16,
                    ),
                ),
                (
                    "categories_override",
                    models.JSONField(help_text="Set by an administrator; null for the author's.", null=True),
                ),
                (
                    "grantable",
                    models.JSONField(
                        help_text="max_hours and max_uses of a grant; null for the level's default.", null=True
                    ),
                ),
                ("accepts_overrides", models.BooleanField(default=True)),
                ("returns_private_data", models.BooleanField(default=False)),
                (
                    "examples",
                    models.JSONField(default=list, help_text="Objects with description, arguments and result."),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("categories", models.ManyToManyField(blank=True, related_name="tools", to="catalog.category")),
                (
                    "source",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="tools", to="catalog.source"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=128)),
                ("kind", models.CharField(choices=[("agent", "Agent"), ("personal", "Personal")], max_length=16)),
                ("scopes", models.JSONField(default=list)),
                ("secret_digest", models.CharField(max_length=64, unique=True)),
                (
                    "prefix",
                    models.CharField(help_text="First characters, by which people recognise the token.", max_length=16),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
                (
                    "hold_seconds",
                    models.PositiveSmallIntegerField(
                        help_text="Seconds for which an MCP call waits for a decision; null for the default.", null=True
                    ),
                ),
                (
                    "first_refusal",
                    models.JSONField(
                        help_text="The first MCP call that was refused and so not stored: tool, reason, at.",
                        null=True,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="LearntWait",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "client",
                    models.CharField(help_text="Name that the client reports.", max_length=128),
                ),
                ("seconds", models.FloatField(help_text="Longest wait for this client.", null=True)),
                (
                    "cut_off_after",
                    models.FloatField(
                        help_text="Seconds after which the client ended its last wait; null if the wait was answered.",
                        null=True,
                    ),
                ),
                ("learnt_at", models.DateTimeField(null=True)),
                (
                    "token",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="learnt_waits",
                        to="catalog.apitoken",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("token", "client"), name="learnt_wait_once")],
            },
        ),
        migrations.CreateModel(
            name="CallSecret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("plan_ref", models.CharField(max_length=40)),
                (
                    "step_ref",
                    models.CharField(
                        help_text="Number of the step; empty for the plan's initial memory.", max_length=16
                    ),
                ),
                ("mac", models.CharField(help_text="HMAC of path and value.", max_length=64)),
                ("ciphertext", models.TextField(help_text="Path and value as JSON, encrypted with Fernet.")),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("plan_ref", "step_ref", "mac"), name="call_secret_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("owner", models.CharField(help_text="`user:ID` or `token:ID`.", max_length=64)),
                ("key", models.CharField(max_length=255)),
                ("body_digest", models.CharField(max_length=64)),
                ("answer_status", models.PositiveSmallIntegerField(null=True)),
                ("answer", models.TextField(blank=True)),
                (
                    "done_ref",
                    models.CharField(
                        blank=True, help_text="Reference of the object written under this key.", max_length=64
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("owner", "key"), name="idempotency_key_once")],
            },
        ),
        migrations.CreateModel(
            name="RateBucket",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("group", models.CharField(max_length=64)),
                ("owner", models.CharField(help_text="`user:ID` or `token:ID`.", max_length=64)),
                ("window_started_at", models.DateTimeField()),
                ("used", models.PositiveIntegerField(default=0)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("group", "owner"), name="rate_bucket_once")],
            },
        ),
        migrations.CreateModel(
            name="Implementation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("python", "Python"), ("mcp", "Mcp"), ("http", "Http")],
                        default="python",
                        max_length=16,
                    ),
                ),
                ("reference", models.CharField(max_length=255)),
                ("digest", models.CharField(max_length=64)),
                (
                    "weight",
                    models.PositiveSmallIntegerField(
                        default=100, help_text="Share of the plans, relative to the tool's other implementations."
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                (
                    "registered",
                    models.BooleanField(default=True, help_text="False if no loaded source offers it any more."),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "tool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="implementations", to="catalog.tool"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ToolVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("fingerprint", models.CharField(max_length=64)),
                ("description", models.TextField()),
                ("input_schema", models.JSONField()),
                ("output_schema", models.JSONField(null=True)),
                (
                    "query_types",
                    models.JSONField(default=list, help_text="Names of the query types; empty if there are none."),
                ),
                (
                    "safety_level",
                    models.CharField(
                        choices=[("safe", "Safe"), ("cautious", "Cautious"), ("dangerous", "Dangerous")], max_length=16
                    ),
                ),
                ("reversibility", models.CharField(max_length=16)),
                ("retry_safe", models.BooleanField()),
                ("timeout", models.FloatField(help_text="Seconds that a call may run.")),
                ("output_key", models.CharField(blank=True, max_length=128)),
                ("annotations", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "tool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="versions", to="catalog.tool"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="tool",
            name="current_version",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="catalog.toolversion"
            ),
        ),
        migrations.CreateModel(
            name="Call",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("public_id", models.CharField(default=catalog.models.new_call_id, max_length=40, unique=True)),
                ("tool_name", models.CharField(max_length=64)),
                ("query_type", models.CharField(blank=True, max_length=128)),
                ("arguments", models.TextField(help_text="Approved and executed arguments, as RFC 8785 text.")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("created", "Created"),
                            ("held", "Held"),
                            ("ready", "Ready"),
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                            ("outcome_unknown", "Outcome Unknown"),
                        ],
                        default="created",
                        max_length=16,
                    ),
                ),
                (
                    "response",
                    models.TextField(
                        blank=True, help_text="The standard response as JSON; empty until the call has ended."
                    ),
                ),
                ("message", models.TextField(blank=True, help_text="Message for the model.")),
                ("error_kind", models.CharField(blank=True, max_length=32)),
                (
                    "late_evidence",
                    models.TextField(blank=True, help_text="Result that arrived after the call had ended."),
                ),
                ("via", models.CharField(default="plan", help_text="page, rest, mcp or plan.", max_length=16)),
                ("session", models.CharField(blank=True, max_length=128)),
                ("reason", models.TextField(blank=True, help_text="Reason given by the agent; not trusted.")),
                ("plan_ref", models.CharField(blank=True, max_length=40)),
                ("step_ref", models.CharField(blank=True, max_length=16)),
                ("attempt", models.PositiveIntegerField(default=0)),
                (
                    "fence",
                    models.PositiveIntegerField(
                        default=0, help_text="Attempt of the step under which the call started."
                    ),
                ),
                (
                    "left_running_at",
                    models.DateTimeField(
                        help_text="Time at which the call ended although its handler was still running.", null=True
                    ),
                ),
                (
                    "came_back_at",
                    models.DateTimeField(
                        help_text="Time at which a handler that was left running returned.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "replaces",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="replacements",
                        to="catalog.call",
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="calls",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "token",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="calls",
                        to="catalog.apitoken",
                    ),
                ),
                (
                    "implementation",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="calls",
                        to="catalog.implementation",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="calls",
                        to="catalog.toolversion",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CallRequester",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "call",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="requesters", to="catalog.call"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("call", "user"), name="requester_once")],
            },
        ),
        migrations.CreateModel(
            name="ToolText",
            fields=[
                (
                    "tool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="text",
                        serialize=False,
                        to="catalog.tool",
                    ),
                ),
                ("name_words", models.TextField(help_text="Words of the name, separated by spaces.")),
                ("other_words", models.TextField(help_text="Words of the description and the parameters.")),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="catalog.toolversion",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="implementation",
            constraint=models.UniqueConstraint(fields=("tool", "reference"), name="implementation_once"),
        ),
        migrations.AddConstraint(
            model_name="toolversion",
            constraint=models.UniqueConstraint(fields=("tool", "number"), name="version_number_once"),
        ),
        migrations.AddConstraint(
            model_name="toolversion",
            constraint=models.UniqueConstraint(fields=("tool", "fingerprint"), name="version_fingerprint_once"),
        ),
        migrations.AddIndex(
            model_name="call",
            index=models.Index(fields=["tool_name", "created_at", "status"], name="call_by_tool"),
        ),
        migrations.AddIndex(
            model_name="call",
            index=models.Index(
                condition=models.Q(("status__in", ["held", "ready", "outcome_unknown"])),
                fields=["status"],
                name="call_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="call",
            constraint=models.UniqueConstraint(
                condition=models.Q(("replaces__isnull", False)), fields=("replaces",), name="call_replaced_once"
            ),
        ),
        migrations.RunPython(without_pattern_index, migrations.RunPython.noop),
        migrations.RunPython(create_search_index, drop_search_index),
        migrations.RunPython(create_roles, migrations.RunPython.noop),
    ]
