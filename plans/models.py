"""Models of plans: plans, steps, dependencies, memory, events, drafts, agents and executors.

Statuses are written by `catalog.core.transactions` and `plans.store.statements` only. A step may be claimed from its
`ready_at` on; a claimed step has an owner, a lease and a new attempt number, which is its fencing token.
"""

import json
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from catalog.calls.vault import keyring
from catalog.context import MAX_SESSION
from catalog.models import ApiToken, Call, new_public_id
from catalog.secrets.placeholders import without_macs
from plans.states import PLAN_MOVES, STEP_MOVES, PlanStatus, StepStatus, WaitingFor
from plans.strategies import PlanningStrategy

AGENT_TURN = "agent_turn"
"""The tool of steps that run one turn of an agent's model."""


def new_plan_id() -> str:
    return new_public_id("plan")


def new_draft_id() -> str:
    return new_public_id("draft")


class Plan(models.Model):
    """A goal and its steps. Kind `call` is the one-step plan of a direct call, `session` a session's to-do list."""

    MOVES = PLAN_MOVES

    class Kind(models.TextChoices):
        PLAN = "plan"
        CALL = "call"
        SESSION = "session"

    public_id = models.CharField(max_length=40, unique=True, default=new_plan_id)
    goal = models.TextField()
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.PLAN)
    status = models.CharField(max_length=16, choices=PlanStatus.choices, default=PlanStatus.PENDING)
    owner = models.CharField(
        max_length=150, default="agent", help_text="Owner as named in the plan's document; not a user."
    )
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="plans")
    token = models.ForeignKey(ApiToken, models.PROTECT, null=True, related_name="plans")
    via = models.CharField(max_length=16, default="page", help_text="page, rest, mcp or shell.")
    session = models.CharField(max_length=MAX_SESSION, blank=True)
    can_modify = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    deadline_seconds = models.PositiveIntegerField(null=True, help_text="Time limit of the plan, for a retry.")
    stopped_seconds = models.FloatField(default=0.0, help_text="Seconds by which stops have moved `deadline_at`.")
    cloned_from = models.ForeignKey("self", models.PROTECT, null=True, related_name="clones", db_index=False)
    paused_at = models.DateTimeField(null=True, help_text="Time of the pause; no step is claimed while this is set.")
    paused_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", db_index=False)
    budget_calls = models.PositiveIntegerField(null=True, help_text="Maximum number of calls.")
    budget_seconds = models.PositiveIntegerField(null=True, help_text="Maximum total running time of the tools.")
    calls_used = models.PositiveIntegerField(default=0)
    seconds_used = models.FloatField(default=0.0)
    last_seq = models.BigIntegerField(default=0)
    traceparent = models.CharField(
        max_length=55, blank=True, help_text="W3C trace context of the request that created the plan."
    )
    caller_ids = models.TextField(
        blank=True, help_text="JSON: ids that a program passed with a direct call; empty for other plans."
    )
    request = models.TextField(
        blank=True,
        help_text="The request in plain language from which the plan was drafted; empty if it was written by hand.",
    )
    reply = models.TextField(blank=True, help_text="Final reply to the requester, composed from the results.")
    has_agents = models.BooleanField(default=False, help_text="True if an agent has started a step.")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["kind", "-created_at", "-id"], name="plan_list"),
            models.Index(fields=["author", "-id"], name="plan_by_author"),
            models.Index(fields=["deadline_at"], name="plan_due", condition=Q(status="in_progress")),
            models.Index(fields=["cloned_from"], name="plan_clones", condition=Q(cloned_from__isnull=False)),
            # Sessions are found by owner and name; calls outside named sessions are in none of these indexes.
            models.Index(fields=["author", "session", "-id"], name="plan_list_of_person", condition=Q(kind="session")),
            models.Index(
                fields=["token", "session", "-id"],
                name="plan_list_of_token",
                condition=Q(kind="session", token__isnull=False),
            ),
            models.Index(fields=["author", "session", "-id"], name="plan_in_session", condition=~Q(session="")),
            models.Index(
                fields=["token", "session", "-id"],
                name="plan_in_session_of_token",
                condition=~Q(session="") & Q(token__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.public_id} {self.goal[:60]}"

    @property
    def has_budget(self) -> bool:
        return self.budget_calls is not None or self.budget_seconds is not None


class Step(models.Model):
    """One step of a plan: a tool to call, an agent to run, or a note. Holds its lease and fencing token."""

    MOVES = STEP_MOVES

    plan = models.ForeignKey(Plan, models.CASCADE, related_name="steps", db_index=False)
    step_id = models.PositiveIntegerField()
    parent = models.ForeignKey(
        "self",
        models.CASCADE,
        null=True,
        related_name="children",
        db_index=False,
        help_text="The step of the agent to which this step belongs.",
    )
    description = models.TextField()
    tool = models.CharField(max_length=64, blank=True)
    agent = models.CharField(max_length=64, blank=True)
    after_answer = models.BooleanField(
        default=False, help_text="The planner added the step after a person's answer, so its text is private."
    )
    parameters = models.TextField(
        default="{}", help_text="JSON as submitted; references are resolved when the step runs."
    )
    expected_key = models.CharField(max_length=128, blank=True)
    output_path = models.TextField(blank=True, help_text="JSON list of strings; empty if there is none.")
    done_check = models.TextField(blank=True)
    status = models.CharField(max_length=16, choices=StepStatus.choices, default=StepStatus.PENDING)
    skipped = models.BooleanField(default=False)
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, help_text="Reason for the failure, for people.")
    waiting_for = models.CharField(max_length=16, choices=WaitingFor.choices, blank=True)
    waiting_since = models.DateTimeField(null=True)
    call = models.ForeignKey(
        Call, models.PROTECT, null=True, related_name="steps", related_query_name="step", db_index=False
    )
    given_arguments = models.TextField(
        blank=True,
        help_text="Arguments entered by a person in place of the parameters, as RFC 8785 text; used unchanged.",
    )
    retry_of = models.ForeignKey(
        Call,
        models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="Call that the step's next call replaces.",
    )
    dependencies_left = models.PositiveIntegerField(default=0)
    ready_at = models.DateTimeField(null=True, help_text="Time from which the step can be claimed; None if it cannot.")
    claimed_by = models.CharField(max_length=64, blank=True)
    lease_until = models.DateTimeField(null=True)
    attempt = models.PositiveIntegerField(default=0, help_text="Number of claims; fences off earlier owners.")
    crashes = models.PositiveSmallIntegerField(default=0, help_text="Number of leases lost while the step's call ran.")

    class Meta:
        ordering: ClassVar = ["step_id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["plan", "step_id"], name="step_once"),
            # Partial: most steps have no call yet.
            models.UniqueConstraint(fields=["call"], condition=Q(call__isnull=False), name="step_of_call"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["plan", "id"], name="step_ready", condition=Q(ready_at__isnull=False)),
            models.Index(fields=["plan", "lease_until"], name="step_running", condition=Q(lease_until__isnull=False)),
            models.Index(fields=["parent", "status"], name="step_children", condition=Q(parent__isnull=False)),
            models.Index(
                fields=["waiting_for", "waiting_since", "id"], name="step_unknown", condition=Q(waiting_for="outcome")
            ),
            models.Index(fields=["id"], name="step_stopped", condition=Q(waiting_for="stop")),
        ]

    def __str__(self) -> str:
        return f"step {self.step_id} of {self.plan_id}"

    @property
    def title(self) -> str:
        """The description, or a neutral title if the description is private; visible to all who see the plan."""
        if not self.has_private_description:
            return self.description
        if self.agent:
            return f"Ask the agent {self.agent}"
        return f"Call {self.tool}" if self.tool else "A note of the planner"

    @property
    def has_private_description(self) -> bool:
        """True if a model wrote it and knew private values: the model of an agent, or the planner after an answer."""
        return self.after_answer or (self.parent_id is not None and self.tool != AGENT_TURN)

    @property
    def parameters_json(self) -> Any:
        return json.loads(without_macs(self.parameters))

    @property
    def output_path_json(self) -> list[str] | None:
        path: list[str] | None = json.loads(self.output_path) if self.output_path else None
        return path


class Agent(models.Model):
    """A named model configuration that carries out steps by calling tools in a loop, through the approval gate."""

    name = models.CharField(max_length=64, unique=True)
    instructions = models.TextField()
    model = models.CharField(
        max_length=128, blank=True, help_text="Model name in the format of TOOLGATE_MODEL; empty for that setting."
    )
    tools = models.TextField(
        default="{}", help_text="JSON: names, categories and highest safety level of the tools that the agent may call."
    )
    strategy = models.CharField(max_length=32, choices=[(each.value, each.value) for each in PlanningStrategy])
    budget = models.TextField(default="{}", help_text="JSON: rounds, calls, tokens, cost (US dollars), seconds.")
    groups = models.TextField(default="[]", help_text="JSON: groups that may use the agent; empty for everyone.")
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class AgentRun(models.Model):
    """One run of an agent for a step: the configuration it started with, the conversation and the usage.

    While `ended_at` is empty, the step waits for the steps in `pending` or is about to be claimed.
    """

    class Stopped(models.TextChoices):
        DONE = "done"
        ROUNDS = "rounds"
        CALLS = "calls"
        TOKENS = "tokens"
        COST = "cost"
        SECONDS = "seconds"
        FAILED = "failed"

    step = models.OneToOneField(Step, models.CASCADE, related_name="agent_run")
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="runs")
    settings = models.TextField(help_text="JSON: configuration of the agent at the start of the run.")
    messages = models.TextField(default="[]", help_text="JSON: messages so far; see plans.agents.messages.")
    pending = models.TextField(
        default="[]", help_text="JSON: steps for which the run waits, each with the id of its call."
    )
    rounds = models.PositiveIntegerField(
        default=0, help_text="Number of requests to the model since the last (re)start."
    )
    calls = models.PositiveIntegerField(default=0, help_text="Number of tool calls since the last (re)start.")
    tokens = models.PositiveIntegerField(default=0, help_text="Tokens read and written since the last (re)start.")
    cost = models.DecimalField(
        max_digits=12, decimal_places=6, default=0, help_text="US dollars since the last (re)start, as far as known."
    )
    seconds = models.FloatField(
        default=0.0, help_text="Running time of models and tools since the last (re)start, without waits."
    )
    stopped_for = models.CharField(max_length=16, choices=Stopped.choices, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.agent_id} at {self.step_id}"


class StepDependency(models.Model):
    """`step` may start only after `needs` is completed."""

    step = models.ForeignKey(Step, models.CASCADE, related_name="dependencies", db_index=False)
    needs = models.ForeignKey(Step, models.CASCADE, related_name="dependents")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["step", "needs"], name="dependency_once")]

    def __str__(self) -> str:
        return f"{self.step_id} needs {self.needs_id}"


class StepAsker(models.Model):
    """A person other than the plan's author who changed or retried a step, and so may not approve its call."""

    step = models.ForeignKey(Step, models.CASCADE, related_name="askers", db_index=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["step", "person"], name="asker_once")]

    def __str__(self) -> str:
        return f"{self.person_id} asked for {self.step_id}"


class Question(models.Model):
    """A question of a step to the plan's author; the answer becomes the step's result.

    Both are visible only to people who may see the plan's private values.
    """

    step = models.ForeignKey(Step, models.CASCADE, related_name="questions")
    text = models.TextField()
    asked_at = models.DateTimeField()
    answer = models.TextField(blank=True)
    answered_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", db_index=False
    )
    answered_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["step"], condition=Q(answered_at=None), name="one_open_question")
        ]

    def __str__(self) -> str:
        return f"question of {self.step_id}"


class MemoryItem(models.Model):
    """An item of a plan's memory: a `value` under its key, or a note that a step was skipped or failed.

    A `given` row keeps the submitted value of a key that a step may overwrite.
    """

    class Type(models.TextChoices):
        VALUE = "value"
        GIVEN = "given"
        STEP_SKIPPED = "step_skipped"
        STEP_FAILED = "step_failed"

    plan = models.ForeignKey(Plan, models.CASCADE, related_name="memory")
    type = models.CharField(max_length=16, choices=Type.choices, default=Type.VALUE)
    key = models.CharField(max_length=128, blank=True)
    value = models.TextField(help_text="JSON: the value, or further fields of the note.")
    step_id = models.PositiveIntegerField(null=True)
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["plan", "key"], condition=Q(type="value"), name="one_value_per_key")
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.key}"

    @property
    def value_json(self) -> Any:
        """The value as JSON, with HMACs of secrets removed."""
        return json.loads(without_macs(self.value))


class Event(models.Model):
    """One entry of a plan's history; `seq` counts 1, 2, 3… per plan without gaps."""

    plan = models.ForeignKey(Plan, models.CASCADE, related_name="events", db_index=False)
    seq = models.BigIntegerField()
    type = models.CharField(max_length=32)
    at = models.DateTimeField()
    step_id = models.PositiveIntegerField(null=True)
    data = models.TextField(default="{}", help_text="JSON: ids and numbers, never arguments or results.")

    class Meta:
        ordering: ClassVar = ["seq"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["plan", "seq"], name="event_seq_once")]

    def __str__(self) -> str:
        return f"#{self.seq} {self.type}"

    @property
    def data_json(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.data)
        return data


class ModelUse(models.Model):
    """One request to a language model, made for a call: prompt, answer and usage.

    Prompts may contain private values of the plan, but never secrets.
    """

    class Purpose(models.TextChoices):
        DRAFT = "draft"
        REPAIR = "repair"
        CONTINUE = "continue"
        REPLY = "reply"
        AGENT = "agent"

    call = models.ForeignKey(Call, models.PROTECT, related_name="model_uses")
    plan = models.ForeignKey(Plan, models.CASCADE, related_name="model_uses")
    purpose = models.CharField(max_length=16, choices=Purpose.choices)
    model = models.CharField(max_length=128, help_text="Name of the model at its provider.")
    prompt = models.TextField(help_text="JSON: messages sent to the model.")
    answer = models.TextField(blank=True, help_text="JSON: messages of the model's answer; empty if there is none.")
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=12, decimal_places=6, null=True, help_text="US dollars; null if unknown.")
    latency_ms = models.PositiveIntegerField()
    error = models.TextField(blank=True, help_text="Reason for the missing answer, for people.")
    at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return f"{self.purpose} by {self.model}"


class ModelText(models.Model):
    """The text sent to models in place of a call's JSON value: the value's `render()`, or nothing."""

    call = models.OneToOneField(Call, models.CASCADE, primary_key=True, related_name="model_text")
    is_left_out = models.BooleanField(default=False, help_text="The tool hides the value from models.")
    text = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"text of {self.call_id}"


class PlanDraft(models.Model):
    """A plan being written by one or more people, until it is started or deleted. See `plans.actions.drafts`.

    Documents are encrypted together with the secrets that people typed into them: as JSON of text and secrets, see
    `plans.store.draft_secrets`.
    """

    class Format(models.TextChoices):
        JSON = "json", "JSON"
        YAML = "yaml", "YAML"

    public_id = models.CharField(max_length=40, unique=True, default=new_draft_id)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="plan_drafts", db_index=False)
    goal = models.TextField(blank=True, help_text="Goal for lists, without secrets.")
    steps = models.PositiveIntegerField(default=0, help_text="Number of steps, for lists.")
    sealed = models.TextField(blank=True, help_text="Document as JSON text, encrypted; empty once it was started.")
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    updated_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False)
    call = models.ForeignKey(
        Call,
        models.PROTECT,
        null=True,
        related_name="plan_drafts",
        help_text="Call of the planner that proposed the document.",
    )
    cloned_from = models.ForeignKey(
        Plan, models.PROTECT, null=True, related_name="+", db_index=False, help_text="Plan that it began with."
    )
    starter = models.CharField(max_length=32, blank=True, help_text="Name of the starter that it began with.")
    sealed_proposal = models.TextField(
        blank=True, help_text="Document that a model proposed, as JSON text, encrypted; empty if there is none."
    )
    sealed_unread = models.TextField(
        blank=True, help_text="Text of the editor that could not be read as a plan, encrypted; empty if there is none."
    )
    unread_format = models.CharField(max_length=4, blank=True, choices=Format.choices)
    unread_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", db_index=False)
    plan = models.OneToOneField(
        Plan, models.CASCADE, null=True, related_name="draft", help_text="The plan that was started from it."
    )
    deleted_at = models.DateTimeField(null=True, help_text="Time of the deletion, which can be undone for a day.")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["owner", "-updated_at"], name="draft_list", condition=Q(plan=None, deleted_at=None)),
            models.Index(fields=["deleted_at"], name="draft_deleted", condition=Q(deleted_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.public_id} version {self.version}"

    @property
    def text(self) -> str:
        """The document as JSON text, without secrets. Raises InvalidToken if no current key can decrypt it."""
        text: str = json.loads(keyring().decrypt(self.sealed))[0]
        return text

    @property
    def proposal(self) -> str:
        """The text that a model proposed, without secrets; empty if there is none."""
        text: str = json.loads(keyring().decrypt(self.sealed_proposal))[0] if self.sealed_proposal else ""
        return text

    @property
    def unread_text(self) -> str:
        """The text that was typed and could not be read as a plan; empty if there is none."""
        return keyring().decrypt(self.sealed_unread) if self.sealed_unread else ""


class PlanDraftVersion(models.Model):
    """One version of a draft. Undo and redo each make a new version with the text of the version they name."""

    draft = models.ForeignKey(PlanDraft, models.CASCADE, related_name="versions", db_index=False)
    version = models.PositiveIntegerField()
    sealed = models.TextField(help_text="Document as JSON text, encrypted.")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False)
    at = models.DateTimeField()
    summary = models.CharField(max_length=200, help_text="The change in a few words.")
    undo_to = models.PositiveIntegerField(null=True, help_text="Version to which Undo returns.")
    redo_to = models.PositiveIntegerField(null=True, help_text="Version to which Redo returns; set by Undo.")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["draft", "version"], name="draft_version_once")]

    def __str__(self) -> str:
        return f"version {self.version} of {self.draft_id}"

    @property
    def text(self) -> str:
        """The document as JSON text, without secrets. Raises InvalidToken if no current key can decrypt it."""
        text: str = json.loads(keyring().decrypt(self.sealed))[0]
        return text


class Executor(models.Model):
    """A process that executes plans, as of its last heartbeat; see `plans.executor.heartbeats`."""

    owner = models.CharField(max_length=64, primary_key=True, help_text="Name under which the executor claims steps.")
    host = models.CharField(max_length=255)
    pid = models.PositiveBigIntegerField()
    threads = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="Last sign of life, by the database's clock.")

    def __str__(self) -> str:
        return self.owner


class ClientSession(models.Model):
    """A coding agent's session: whether its client asks before it runs its own tools, and since when.

    `owner` is the token or the person that its requests come from, as `token:ID` or `user:ID`.
    """

    owner = models.CharField(max_length=64, help_text="`token:ID` or `user:ID`.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False)
    token = models.ForeignKey(ApiToken, models.PROTECT, null=True, related_name="+", db_index=False)
    client = models.CharField(max_length=40)
    session = models.CharField(max_length=128, blank=True)
    armed_since = models.DateTimeField(
        null=True, help_text="Time of the first question; null if the client has never asked, or ran a tool without."
    )
    last_asked_at = models.DateTimeField(null=True)
    how = models.CharField(max_length=32, blank=True, help_text="Way of the last question, such as hook.")
    checked_at = models.DateTimeField(null=True, help_text="Time of the last check through the real client.")
    connected_at = models.DateTimeField(null=True, help_text="Time of the client's last MCP call in this session.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "session", "client"], name="client_session_once")
        ]

    def __str__(self) -> str:
        return f"{self.client} {self.session}"
