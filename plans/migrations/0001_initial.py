"""Every table of plans."""

import django.db.models.deletion
import plans.models
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("catalog", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Agent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
                ("instructions", models.TextField()),
                (
                    "model",
                    models.CharField(blank=True, help_text="As TOOLGATE_MODEL; empty: what that says.", max_length=128),
                ),
                (
                    "tools",
                    models.TextField(
                        default="{}", help_text="JSON: names, categories and the highest level it may call."
                    ),
                ),
                (
                    "strategy",
                    models.CharField(
                        choices=[
                            ("react", "react"),
                            ("plan_act_reflect", "plan_act_reflect"),
                            ("goal_decompose_route_synthesise", "goal_decompose_route_synthesise"),
                        ],
                        max_length=32,
                    ),
                ),
                (
                    "budget",
                    models.TextField(
                        default="{}", help_text="JSON: rounds, calls, tokens, cost (US dollars), seconds."
                    ),
                ),
                (
                    "groups",
                    models.TextField(default="[]", help_text="JSON: the groups that may use it; none: everyone."),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Executor",
            fields=[
                (
                    "owner",
                    models.CharField(
                        help_text="The name under which it claims steps.",
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("host", models.CharField(max_length=255)),
                ("pid", models.PositiveBigIntegerField()),
                ("threads", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField(help_text="By the database's clock.")),
            ],
        ),
        migrations.CreateModel(
            name="ModelText",
            fields=[
                (
                    "call",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="model_text",
                        serialize=False,
                        to="catalog.call",
                    ),
                ),
                (
                    "is_left_out",
                    models.BooleanField(default=False, help_text="Its tool keeps the value out of what models read."),
                ),
                ("text", models.TextField(blank=True)),
            ],
        ),
        migrations.CreateModel(
            name="Plan",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("public_id", models.CharField(default=plans.models.new_plan_id, max_length=40, unique=True)),
                ("goal", models.TextField()),
                (
                    "kind",
                    models.CharField(
                        choices=[("plan", "Plan"), ("call", "Call"), ("session", "Session")],
                        default="plan",
                        max_length=8,
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("in_progress", "In Progress"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                (
                    "owner",
                    models.CharField(
                        default="agent", help_text="The contract's owner: a word, not a person.", max_length=150
                    ),
                ),
                ("via", models.CharField(default="page", help_text="page, rest, mcp or shell.", max_length=16)),
                ("session", models.CharField(blank=True, max_length=128)),
                ("can_modify", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
                ("deadline_at", models.DateTimeField(null=True)),
                (
                    "deadline_seconds",
                    models.PositiveIntegerField(help_text="The span it was given, for one more try.", null=True),
                ),
                ("paused_at", models.DateTimeField(help_text="No step is claimed while this is set.", null=True)),
                ("budget_calls", models.PositiveIntegerField(help_text="How many calls it may start.", null=True)),
                (
                    "budget_seconds",
                    models.PositiveIntegerField(help_text="How long its tools may run, together.", null=True),
                ),
                ("calls_used", models.PositiveIntegerField(default=0)),
                ("seconds_used", models.FloatField(default=0.0)),
                ("last_seq", models.BigIntegerField(default=0)),
                (
                    "traceparent",
                    models.CharField(blank=True, help_text="The W3C trace that asked for it.", max_length=55),
                ),
                (
                    "caller_ids",
                    models.TextField(
                        blank=True,
                        help_text="JSON: the ids that a program gave its tools with a direct call; empty for any other.",
                    ),
                ),
                (
                    "request",
                    models.TextField(blank=True, help_text="The words it was drafted from; empty when it was written."),
                ),
                (
                    "reply",
                    models.TextField(
                        blank=True, help_text="What whoever asked is told in the end, composed from the results."
                    ),
                ),
                (
                    "has_agents",
                    models.BooleanField(
                        default=False, help_text="An agent has begun a step: some wait for others' ends."
                    ),
                ),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="plans", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "cloned_from",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="clones",
                        to="plans.plan",
                    ),
                ),
                (
                    "paused_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "token",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="plans",
                        to="catalog.apitoken",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ModelUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "purpose",
                    models.CharField(
                        choices=[
                            ("draft", "Draft"),
                            ("repair", "Repair"),
                            ("continue", "Continue"),
                            ("reply", "Reply"),
                            ("agent", "Agent"),
                        ],
                        max_length=16,
                    ),
                ),
                ("model", models.CharField(help_text="As its provider names it.", max_length=128)),
                ("prompt", models.TextField(help_text="JSON: the messages it read.")),
                (
                    "answer",
                    models.TextField(blank=True, help_text="JSON: the messages it answered; empty when it did not."),
                ),
                ("input_tokens", models.PositiveIntegerField(default=0)),
                ("output_tokens", models.PositiveIntegerField(default=0)),
                (
                    "cost",
                    models.DecimalField(
                        decimal_places=6, help_text="US dollars; null: not known.", max_digits=12, null=True
                    ),
                ),
                ("latency_ms", models.PositiveIntegerField()),
                ("error", models.TextField(blank=True, help_text="Why there is no answer, for a person.")),
                ("at", models.DateTimeField()),
                (
                    "call",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="model_uses", to="catalog.call"
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="model_uses", to="plans.plan"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="MemoryItem",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "type",
                    models.CharField(
                        choices=[
                            ("value", "Value"),
                            ("given", "Given"),
                            ("step_skipped", "Step Skipped"),
                            ("step_failed", "Step Failed"),
                        ],
                        default="value",
                        max_length=16,
                    ),
                ),
                ("key", models.CharField(blank=True, max_length=128)),
                ("value", models.TextField(help_text="JSON: the value itself, or the note's further fields.")),
                ("step_id", models.PositiveIntegerField(null=True)),
                ("at", models.DateTimeField()),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="memory", to="plans.plan"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                ("type", models.CharField(max_length=32)),
                ("at", models.DateTimeField()),
                ("step_id", models.PositiveIntegerField(null=True)),
                (
                    "data",
                    models.TextField(default="{}", help_text="JSON: ids and numbers, never arguments or results."),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="plans.plan",
                    ),
                ),
            ],
            options={
                "ordering": ["seq"],
            },
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("step_id", models.PositiveIntegerField()),
                ("description", models.TextField()),
                ("tool", models.CharField(blank=True, max_length=64)),
                ("agent", models.CharField(blank=True, max_length=64)),
                (
                    "after_answer",
                    models.BooleanField(
                        default=False,
                        help_text="The planner added it after a person's answer: what it says is private.",
                    ),
                ),
                (
                    "parameters",
                    models.TextField(
                        default="{}", help_text="JSON as submitted; references are resolved when it runs."
                    ),
                ),
                ("expected_key", models.CharField(blank=True, max_length=128)),
                ("output_path", models.TextField(blank=True, help_text="JSON list of strings; empty when absent.")),
                ("done_check", models.TextField(blank=True)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("in_progress", "In Progress"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("skipped", models.BooleanField(default=False)),
                ("started_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
                ("error", models.TextField(blank=True, help_text="Why it failed, for a person.")),
                (
                    "waiting_for",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("approval", "Approval"),
                            ("input", "Input"),
                            ("calls", "Calls"),
                            ("retry", "Retry"),
                            ("outcome", "Outcome"),
                        ],
                        max_length=16,
                    ),
                ),
                ("waiting_since", models.DateTimeField(null=True)),
                (
                    "given_arguments",
                    models.TextField(
                        blank=True,
                        help_text="RFC 8785 text that a person gave in place of the parameters, to be taken as it stands.",
                    ),
                ),
                ("dependencies_left", models.PositiveIntegerField(default=0)),
                (
                    "ready_at",
                    models.DateTimeField(help_text="May be claimed from then on; None: not claimable.", null=True),
                ),
                ("claimed_by", models.CharField(blank=True, max_length=64)),
                ("lease_until", models.DateTimeField(null=True)),
                ("attempt", models.PositiveIntegerField(default=0, help_text="Counts claims: the fence.")),
                ("crashes", models.PositiveSmallIntegerField(default=0, help_text="Leases lost while its call ran.")),
                (
                    "call",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="steps",
                        related_query_name="step",
                        to="catalog.call",
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        db_index=False,
                        help_text="The agent's own step.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="children",
                        to="plans.step",
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="plans.plan",
                    ),
                ),
                (
                    "retry_of",
                    models.ForeignKey(
                        db_index=False,
                        help_text="The call its next call replaces.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="catalog.call",
                    ),
                ),
            ],
            options={
                "ordering": ["step_id"],
            },
        ),
        migrations.CreateModel(
            name="Question",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("text", models.TextField()),
                ("asked_at", models.DateTimeField()),
                ("answer", models.TextField(blank=True)),
                ("answered_at", models.DateTimeField(null=True)),
                (
                    "answered_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "step",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="questions", to="plans.step"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="AgentRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("settings", models.TextField(help_text="JSON: the agent's configuration when it began.")),
                (
                    "messages",
                    models.TextField(default="[]", help_text="JSON: what was said so far; see plans.agents.messages."),
                ),
                (
                    "pending",
                    models.TextField(default="[]", help_text="JSON: the steps it waits for, each with its call's id."),
                ),
                (
                    "rounds",
                    models.PositiveIntegerField(
                        default=0, help_text="How often the model was asked since it was (re)started."
                    ),
                ),
                ("calls", models.PositiveIntegerField(default=0, help_text="How many calls it made since.")),
                ("tokens", models.PositiveIntegerField(default=0, help_text="Read and written since.")),
                (
                    "cost",
                    models.DecimalField(
                        decimal_places=6, default=0, help_text="US dollars since, where known.", max_digits=12
                    ),
                ),
                (
                    "seconds",
                    models.FloatField(
                        default=0.0, help_text="How long models and tools worked since; waiting not counted."
                    ),
                ),
                (
                    "stopped_for",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("done", "Done"),
                            ("rounds", "Rounds"),
                            ("calls", "Calls"),
                            ("tokens", "Tokens"),
                            ("cost", "Cost"),
                            ("seconds", "Seconds"),
                            ("failed", "Failed"),
                        ],
                        max_length=16,
                    ),
                ),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "agent",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="runs", to="plans.agent"
                    ),
                ),
                (
                    "step",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="agent_run", to="plans.step"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="StepAsker",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "person",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "step",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="askers",
                        to="plans.step",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="StepDependency",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "needs",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="dependents", to="plans.step"
                    ),
                ),
                (
                    "step",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="dependencies",
                        to="plans.step",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(fields=["kind", "-created_at", "-id"], name="plan_list"),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(fields=["author", "-id"], name="plan_by_author"),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(condition=models.Q(("status", "in_progress")), fields=["deadline_at"], name="plan_due"),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("cloned_from__isnull", False)), fields=["cloned_from"], name="plan_clones"
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("kind", "session")), fields=["author", "session", "-id"], name="plan_list_of_person"
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("kind", "session"), ("token__isnull", False)),
                fields=["token", "session", "-id"],
                name="plan_list_of_token",
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("session", ""), _negated=True),
                fields=["author", "session", "-id"],
                name="plan_in_session",
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(models.Q(("session", ""), _negated=True), ("token__isnull", False)),
                fields=["token", "session", "-id"],
                name="plan_in_session_of_token",
            ),
        ),
        migrations.AddConstraint(
            model_name="memoryitem",
            constraint=models.UniqueConstraint(
                condition=models.Q(("type", "value")), fields=("plan", "key"), name="one_value_per_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="event",
            constraint=models.UniqueConstraint(fields=("plan", "seq"), name="event_seq_once"),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("ready_at__isnull", False)), fields=["plan", "id"], name="step_ready"
            ),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("lease_until__isnull", False)), fields=["plan", "lease_until"], name="step_running"
            ),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("parent__isnull", False)), fields=["parent", "status"], name="step_children"
            ),
        ),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                condition=models.Q(("waiting_for", "outcome")),
                fields=["waiting_for", "waiting_since", "id"],
                name="step_unknown",
            ),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(fields=("plan", "step_id"), name="step_once"),
        ),
        migrations.AddConstraint(
            model_name="step",
            constraint=models.UniqueConstraint(
                condition=models.Q(("call__isnull", False)), fields=("call",), name="step_of_call"
            ),
        ),
        migrations.AddConstraint(
            model_name="question",
            constraint=models.UniqueConstraint(
                condition=models.Q(("answered_at", None)), fields=("step",), name="one_open_question"
            ),
        ),
        migrations.AddConstraint(
            model_name="stepasker",
            constraint=models.UniqueConstraint(fields=("step", "person"), name="asker_once"),
        ),
        migrations.AddConstraint(
            model_name="stepdependency",
            constraint=models.UniqueConstraint(fields=("step", "needs"), name="dependency_once"),
        ),
    ]
