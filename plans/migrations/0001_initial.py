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
                    models.CharField(
                        blank=True,
                        help_text="Model name in the format of TOOLGATE_MODEL; empty for that setting.",
                        max_length=128,
                    ),
                ),
                (
                    "tools",
                    models.TextField(
                        default="{}",
                        help_text="JSON: names, categories and highest safety level of the tools that the agent may call.",
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
                    models.TextField(
                        default="[]", help_text="JSON: groups that may use the agent; empty for everyone."
                    ),
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
                        help_text="Name under which the executor claims steps.",
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("host", models.CharField(max_length=255)),
                ("pid", models.PositiveBigIntegerField()),
                ("threads", models.PositiveIntegerField()),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField(help_text="Last sign of life, by the database's clock.")),
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
                    models.BooleanField(default=False, help_text="The tool hides the value from models."),
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
                        default="agent", help_text="Owner as named in the plan's document; not a user.", max_length=150
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
                    models.PositiveIntegerField(help_text="Time limit of the plan, for a retry.", null=True),
                ),
                (
                    "paused_at",
                    models.DateTimeField(
                        help_text="Time of the pause; no step is claimed while this is set.", null=True
                    ),
                ),
                ("budget_calls", models.PositiveIntegerField(help_text="Maximum number of calls.", null=True)),
                (
                    "budget_seconds",
                    models.PositiveIntegerField(help_text="Maximum total running time of the tools.", null=True),
                ),
                ("calls_used", models.PositiveIntegerField(default=0)),
                ("seconds_used", models.FloatField(default=0.0)),
                ("last_seq", models.BigIntegerField(default=0)),
                (
                    "traceparent",
                    models.CharField(
                        blank=True, help_text="W3C trace context of the request that created the plan.", max_length=55
                    ),
                ),
                (
                    "caller_ids",
                    models.TextField(
                        blank=True,
                        help_text="JSON: ids that a program passed with a direct call; empty for other plans.",
                    ),
                ),
                (
                    "request",
                    models.TextField(
                        blank=True,
                        help_text="The request in plain language from which the plan was drafted; empty if it was written by hand.",
                    ),
                ),
                (
                    "reply",
                    models.TextField(blank=True, help_text="Final reply to the requester, composed from the results."),
                ),
                (
                    "has_agents",
                    models.BooleanField(default=False, help_text="True if an agent has started a step."),
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
                ("model", models.CharField(help_text="Name of the model at its provider.", max_length=128)),
                ("prompt", models.TextField(help_text="JSON: messages sent to the model.")),
                (
                    "answer",
                    models.TextField(
                        blank=True, help_text="JSON: messages of the model's answer; empty if there is none."
                    ),
                ),
                ("input_tokens", models.PositiveIntegerField(default=0)),
                ("output_tokens", models.PositiveIntegerField(default=0)),
                (
                    "cost",
                    models.DecimalField(
                        decimal_places=6, help_text="US dollars; null if unknown.", max_digits=12, null=True
                    ),
                ),
                ("latency_ms", models.PositiveIntegerField()),
                ("error", models.TextField(blank=True, help_text="Reason for the missing answer, for people.")),
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
                ("value", models.TextField(help_text="JSON: the value, or further fields of the note.")),
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
                        help_text="The planner added the step after a person's answer, so its text is private.",
                    ),
                ),
                (
                    "parameters",
                    models.TextField(
                        default="{}", help_text="JSON as submitted; references are resolved when the step runs."
                    ),
                ),
                ("expected_key", models.CharField(blank=True, max_length=128)),
                (
                    "output_path",
                    models.TextField(blank=True, help_text="JSON list of strings; empty if there is none."),
                ),
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
                ("error", models.TextField(blank=True, help_text="Reason for the failure, for people.")),
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
                        help_text="Arguments entered by a person in place of the parameters, as RFC 8785 text; used unchanged.",
                    ),
                ),
                ("dependencies_left", models.PositiveIntegerField(default=0)),
                (
                    "ready_at",
                    models.DateTimeField(
                        help_text="Time from which the step can be claimed; None if it cannot.", null=True
                    ),
                ),
                ("claimed_by", models.CharField(blank=True, max_length=64)),
                ("lease_until", models.DateTimeField(null=True)),
                (
                    "attempt",
                    models.PositiveIntegerField(default=0, help_text="Number of claims; fences off earlier owners."),
                ),
                (
                    "crashes",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="Number of leases lost while the step's call ran."
                    ),
                ),
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
                        help_text="The step of the agent to which this step belongs.",
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
                        help_text="Call that the step's next call replaces.",
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
                ("settings", models.TextField(help_text="JSON: configuration of the agent at the start of the run.")),
                (
                    "messages",
                    models.TextField(default="[]", help_text="JSON: messages so far; see plans.agents.messages."),
                ),
                (
                    "pending",
                    models.TextField(
                        default="[]", help_text="JSON: steps for which the run waits, each with the id of its call."
                    ),
                ),
                (
                    "rounds",
                    models.PositiveIntegerField(
                        default=0, help_text="Number of requests to the model since the last (re)start."
                    ),
                ),
                (
                    "calls",
                    models.PositiveIntegerField(default=0, help_text="Number of tool calls since the last (re)start."),
                ),
                (
                    "tokens",
                    models.PositiveIntegerField(
                        default=0, help_text="Tokens read and written since the last (re)start."
                    ),
                ),
                (
                    "cost",
                    models.DecimalField(
                        decimal_places=6,
                        default=0,
                        help_text="US dollars since the last (re)start, as far as known.",
                        max_digits=12,
                    ),
                ),
                (
                    "seconds",
                    models.FloatField(
                        default=0.0,
                        help_text="Running time of models and tools since the last (re)start, without waits.",
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
