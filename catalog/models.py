"""Models of the catalog: tools with immutable versions, implementations, calls, API tokens.

Statuses are written only by `catalog.core.transactions` and `plans.store.statements`. Columns of the hot path hold JSON
as text, so that the same SQL serves SQLite and PostgreSQL and canonical bytes stay unchanged.
"""

import json
import secrets
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from catalog.context import MAX_SESSION
from catalog.core import clock
from catalog.core.ordered_json import OrderedJSONField
from catalog.definitions.grant_limits import GrantLimits, grant_limits_for
from catalog.definitions.levels import SafetyLevel
from catalog.results import format_error_response
from catalog.schemas.defaults import dotted_paths, given_text
from catalog.secrets.placeholders import without_macs
from catalog.states import MOVES, PUBLIC_STATUS, WAITING_FOR, CallStatus


def new_public_id(prefix: str) -> str:
    """Return an unguessable identifier such as `call_…` with 144 random bits."""
    return f"{prefix}_{secrets.token_urlsafe(18)}"


def new_call_id() -> str:
    return new_public_id("call")


LEVEL_CHOICES = [(level.value, level.value.title()) for level in SafetyLevel]


class Category(models.Model):
    name = models.CharField(max_length=64, unique=True)

    class Meta:
        ordering: ClassVar = ["name"]
        verbose_name_plural = "categories"

    def __str__(self) -> str:
        return self.name


class Source(models.Model):
    """Origin of tools: a Python module, an MCP server, an OpenAPI document, HTTP tools defined by hand, or a client.

    A source of kind `client` is a coding agent or a program that runs its tools itself and asks before.

    The fields from `url` on describe imported sources; `catalog.inventory.sources` and `source_sync` write them.
    """

    class Kind(models.TextChoices):
        PYTHON = "python", _("Python module")
        MCP = "mcp", _("MCP server")
        OPENAPI = "openapi", _("OpenAPI document")
        HTTP = "http", _("HTTP tools")
        CLIENT = "client", _("Client's own tools")

    class Status(models.TextChoices):
        CONNECTING = "connecting", _("Connecting")
        CONNECTED = "connected", _("Connected")
        FAILING = "failing", _("Failing")
        DISABLED = "disabled", _("Disabled")

    name = models.CharField(max_length=128, unique=True)
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.PYTHON)
    trusted = models.BooleanField(default=False)
    error = models.TextField(
        blank=True, help_text="Reason for which the tools could not be loaded; empty if they were."
    )
    enabled = models.BooleanField(default=True)
    switched_at = models.DateTimeField(
        null=True, help_text="Time at which the source was last enabled or disabled; null while the default applies."
    )
    url = models.TextField(blank=True, help_text="URL of the MCP server or the OpenAPI document.")
    command = models.JSONField(default=list, help_text="Program and arguments of a stdio MCP server.")
    document = models.TextField(blank=True, help_text="The OpenAPI document, if it was uploaded.")
    base_url = models.TextField(blank=True, help_text="Base URL used instead of the document's first server.")
    only = models.JSONField(
        default=dict, help_text="Choice of the operations that are imported: lists of tags, paths and operations."
    )
    api_origin = models.TextField(
        blank=True, help_text="Scheme and host that the headers are for; of an OpenAPI source, empty until it is known."
    )
    secrets = models.TextField(blank=True, help_text="Headers, query and environment as JSON, encrypted with Fernet.")
    timeout = models.PositiveSmallIntegerField(default=30, help_text="Seconds for connecting, listing and each call.")
    tool_settings = models.JSONField(
        default=dict, help_text="enabled, safety_level and reason by the tool's upstream name."
    )
    sync_requested_at = models.DateTimeField(null=True, help_text="Time at which the next synchronisation is due.")
    last_sync_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name

    @property
    def is_imported(self) -> bool:
        """True for an MCP server or an OpenAPI document, from which Toolgate reads the tools."""
        return self.kind in (self.Kind.MCP, self.Kind.OPENAPI)

    @property
    def title(self) -> str:
        """The name of an imported source or a client; for a shipped set, the last part of its module's name."""
        is_named = self.is_imported or self.kind == self.Kind.CLIENT
        return self.name if is_named else self.name.rpartition(".")[2].capitalize()

    @property
    def status(self) -> "Source.Status":
        """The state of the connection, as of the last synchronisation."""
        if not self.enabled:
            return self.Status.DISABLED
        if self.error:
            return self.Status.FAILING
        return self.Status.CONNECTED if self.last_sync_at or not self.is_imported else self.Status.CONNECTING


class Tool(models.Model):
    """A function that an agent may call. Its contract is in its versions.

    The `declared_…` fields hold the author's declaration; the current version combines it with an administrator's
    overrides.
    """

    name = models.CharField(max_length=64, unique=True)
    source = models.ForeignKey(Source, models.PROTECT, related_name="tools")
    categories = models.ManyToManyField(Category, related_name="tools", blank=True)
    current_version = models.ForeignKey("ToolVersion", models.PROTECT, null=True, related_name="+")
    enabled = models.BooleanField(default=True)
    registered = models.BooleanField(default=True, help_text="False if no loaded source offers it any more.")
    declared_description = models.TextField(blank=True)
    declared_level = models.CharField(max_length=16, blank=True, choices=LEVEL_CHOICES)
    description_override = models.TextField(
        blank=True, help_text="Description shown to models; empty for the author's."
    )
    level_override = models.CharField(
        max_length=16, blank=True, choices=LEVEL_CHOICES, help_text="Set by an administrator; empty for the author's."
    )
    categories_override = models.JSONField(null=True, help_text="Set by an administrator; null for the author's.")
    grantable = models.JSONField(
        null=True, help_text="max_hours and max_uses of a grant; null for the level's default."
    )
    accepts_overrides = models.BooleanField(default=True)
    returns_private_data = models.BooleanField(default=False)
    examples = models.JSONField(default=list, help_text="Objects with description, arguments and result.")
    definition = OrderedJSONField(null=True, help_text="Definition of an imported tool; null for Python tools.")
    held_definition = OrderedJSONField(null=True, help_text="Definition of the held version.")
    held_version = models.ForeignKey(
        "ToolVersion",
        models.PROTECT,
        null=True,
        related_name="+",
        help_text="Changed version that waits for an administrator's acceptance.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def grant_limits(self) -> GrantLimits | None:
        """The limits of one grant for the tool; None if no grant is possible. Needs the current version."""
        version = self.current_version
        return grant_limits_for(self.name, self.grantable, version.safety_level) if version else None

    @property
    def status(self) -> str:
        """`removed`, `disabled`, `drifted` (a changed definition waits to be accepted) or `ready`."""
        if not self.registered:
            return "removed"
        if not self.enabled or not self.source.enabled:
            return "disabled"
        return "drifted" if self.held_version_id is not None else "ready"

    @property
    def is_in_use(self) -> bool:
        """True if the tool is enabled and an enabled source offers it; `enabled` alone says nothing of the source."""
        return self.status in ("ready", "drifted")


class ToolVersion(models.Model):
    """One immutable state of a tool's contract; `fingerprint` is the SHA-256 of its canonical JSON."""

    tool = models.ForeignKey(Tool, models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    fingerprint = models.CharField(max_length=64)
    description = models.TextField()
    input_schema = OrderedJSONField()
    output_schema = OrderedJSONField(null=True)
    query_types = models.JSONField(default=list, help_text="Names of the query types; empty if there are none.")
    safety_level = models.CharField(max_length=16, choices=LEVEL_CHOICES)
    reversibility = models.CharField(max_length=16)
    retry_safe = models.BooleanField()
    timeout = models.FloatField(help_text="Seconds that a call may run.")
    output_key = models.CharField(max_length=128, blank=True)
    annotations = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tool", "number"], name="version_number_once"),
            models.UniqueConstraint(fields=["tool", "fingerprint"], name="version_fingerprint_once"),
        ]

    def __str__(self) -> str:
        return f"{self.tool.name} v{self.number}"


class ToolText(models.Model):
    """Words of a tool for full-text search, with the version they come from; used only by `catalog.inventory.search`.

    The database maintains a full-text index of both text columns (triggers on SQLite, generated columns on PostgreSQL),
    which must be created again if a migration recreates this table.
    """

    tool = models.OneToOneField(Tool, models.CASCADE, primary_key=True, related_name="text")
    version = models.ForeignKey(ToolVersion, models.CASCADE, related_name="+", db_index=False)
    name_words = models.TextField(help_text="Words of the name, separated by spaces.")
    other_words = models.TextField(help_text="Words of the description and the parameters.")

    def __str__(self) -> str:
        return f"words of {self.tool_id}"


class Implementation(models.Model):
    """Code that serves a tool; `digest` covers its source, so that changed code is detected."""

    class Kind(models.TextChoices):
        PYTHON = "python"
        MCP = "mcp"
        HTTP = "http"
        CLIENT = "client"

    tool = models.ForeignKey(Tool, models.PROTECT, related_name="implementations")
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.PYTHON)
    reference = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)
    weight = models.PositiveSmallIntegerField(
        default=100, help_text="Share of the plans, relative to the tool's other implementations."
    )
    enabled = models.BooleanField(default=True)
    registered = models.BooleanField(default=True, help_text="False if no loaded source offers it any more.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tool", "reference"], name="implementation_once")]

    def __str__(self) -> str:
        return f"{self.tool.name} by {self.reference}"


class RateBucket(models.Model):
    """The number of uses of a rate limit group by one caller in the current window."""

    group = models.CharField(max_length=64)
    owner = models.CharField(max_length=64, help_text="`user:ID` or `token:ID`.")
    window_started_at = models.DateTimeField()
    used = models.PositiveIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["group", "owner"], name="rate_bucket_once")]

    def __str__(self) -> str:
        return f"{self.owner} used {self.group} {self.used} times"


class SignInCount(models.Model):
    """Sign-in attempts for one account, or from one address, since the last correct password."""

    key = models.CharField(max_length=64, unique=True, help_text="HMAC-SHA256 of the username or the IP address.")
    attempts = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField(db_index=True)
    waits_until = models.DateTimeField(null=True, help_text="Time before which no password is checked.")
    refusal_kept = models.BooleanField(
        default=False, help_text="True if the audit log records a refusal during this wait."
    )

    def __str__(self) -> str:
        return f"{self.attempts} attempts to sign in"


def new_link_id() -> str:
    return new_public_id("link")


class AccountLink(models.Model):
    """A link with which a person sets a password: an invitation or a reset. Only the SHA-256 of its key is stored."""

    class Kind(models.TextChoices):
        INVITATION = "invitation"
        RESET = "reset"

    public_id = models.CharField(max_length=40, unique=True, default=new_link_id)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="account_links")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    secret_digest = models.CharField(max_length=64, unique=True)
    sent_to = models.EmailField(blank=True, help_text="Address that it was mailed to; empty if it was handed over.")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="Time at which a newer link or an administrator ended it.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["person"], condition=Q(used_at=None, ended_at=None), name="account_link_open_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.person.get_username()}"


class TotpUse(models.Model):
    """The time step of the last code used from an authenticator app. No code of that step or before is accepted."""

    authenticator = models.OneToOneField("mfa.Authenticator", models.CASCADE, primary_key=True, related_name="+")
    step = models.BigIntegerField(help_text="Seconds since 1970, divided by 30.")

    def __str__(self) -> str:
        return f"step {self.step}"


class CatalogState(models.Model):
    """A single row whose revision tells every process that tools changed."""

    revision = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"revision {self.revision}"


class ApiToken(models.Model):
    """A bearer token. Only its SHA-256 is stored; the text is displayed once."""

    class Kind(models.TextChoices):
        AGENT = "agent"
        PERSONAL = "personal"

    name = models.CharField(max_length=128)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="api_tokens")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    scopes = models.JSONField(default=list)
    secret_digest = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=16, help_text="First characters, by which people recognise the token.")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    hold_seconds = models.PositiveSmallIntegerField(
        null=True, help_text="Seconds for which an MCP call waits for a decision; null for the default."
    )
    first_refusal = models.JSONField(
        null=True, help_text="The first MCP call that was refused and so not stored: tool, reason, at."
    )
    limits = models.JSONField(
        null=True,
        help_text="max_level, categories and sources of the tools that the token may use; null for all tools.",
    )

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None and self.expires_at > clock.now()


class SavedFilter(models.Model):
    """State of a list (tab, search, filters, order) that a person has saved under a name; nobody else sees it."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_filters")
    list_name = models.CharField(max_length=32)
    name = models.CharField(max_length=80)
    query = models.TextField(help_text="Query string without default values.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["person", "list_name", "name"], name="saved_filter_once")
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.list_name}"


class LearntWait(models.Model):
    """The longest wait that an MCP client accepts; `seconds` is null until two waits in a row were cut off."""

    token = models.ForeignKey(ApiToken, models.CASCADE, related_name="learnt_waits")
    client = models.CharField(max_length=128, help_text="Name that the client reports.")
    seconds = models.FloatField(null=True, help_text="Longest wait for this client.")
    cut_off_after = models.FloatField(
        null=True, help_text="Seconds after which the client ended its last wait; null if the wait was answered."
    )
    learnt_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["token", "client"], name="learnt_wait_once")]

    def __str__(self) -> str:
        return f"{self.client} waits {self.seconds} s"


class IdempotencyKey(models.Model):
    """The first response to a keyed POST, kept for 24 hours for each person or token."""

    owner = models.CharField(max_length=64, help_text="`user:ID` or `token:ID`.")
    key = models.CharField(max_length=255)
    body_digest = models.CharField(max_length=64)
    answer_status = models.PositiveSmallIntegerField(null=True)
    answer = models.TextField(blank=True)
    done_ref = models.CharField(max_length=64, blank=True, help_text="Reference of the object written under this key.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["owner", "key"], name="idempotency_key_once")]

    def __str__(self) -> str:
        return f"{self.owner} {self.key}"


class StoredArguments:
    """Properties of a row that stores the arguments of a call: as RFC 8785 text, with secrets cut out."""

    arguments: Any
    defaults: Any
    omitted: Any

    @property
    def arguments_json(self) -> dict[str, Any]:
        """The arguments as JSON values for display: `{"$secret": name}` in place of secrets."""
        arguments: dict[str, Any] = json.loads(without_macs(self.arguments))
        return arguments

    @property
    def default_paths(self) -> list[str]:
        return dotted_paths(self.defaults)

    @property
    def omitted_paths(self) -> list[str]:
        omitted: list[str] = json.loads(self.omitted or "[]")
        return omitted


class Call(StoredArguments, models.Model):
    """One call of a tool version with its arguments and requester, from the gate to the recorded outcome.

    Written on the hot path, where each index costs time, so only columns that pages search by have one. The calls of a
    plan are found through its steps.
    """

    MOVES = MOVES

    public_id = models.CharField(max_length=40, unique=True, default=new_call_id)
    tool_name = models.CharField(max_length=64)
    version = models.ForeignKey(ToolVersion, models.PROTECT, related_name="calls", db_index=False)
    implementation = models.ForeignKey(Implementation, models.PROTECT, null=True, related_name="calls", db_index=False)
    query_type = models.CharField(max_length=128, blank=True)
    arguments = models.TextField(help_text="Approved and executed arguments, as RFC 8785 text.")
    defaults = models.TextField(  # noqa: DJ001 - null: stored before defaults were filled in
        null=True, help_text="JSON list of the paths in the arguments that hold defaults, each a list of steps."
    )
    omitted = models.TextField(  # noqa: DJ001 - null: as above
        null=True, help_text="JSON list of the dotted paths of nulls that were left out."
    )
    status = models.CharField(max_length=16, choices=CallStatus.choices, default=CallStatus.CREATED)
    response = models.TextField(blank=True, help_text="The standard response as JSON; empty until the call has ended.")
    message = models.TextField(blank=True, help_text="Message for the model.")
    error_kind = models.CharField(max_length=32, blank=True)
    content = models.TextField(
        blank=True, db_default="", default="", help_text="Content blocks of the result as JSON, without their bytes."
    )
    warnings = models.TextField(
        blank=True, db_default="", default="", help_text="Defects of an answer that was kept, as JSON."
    )
    late_evidence = models.TextField(blank=True, help_text="Result that arrived after the call had ended.")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="calls", db_index=False
    )
    token = models.ForeignKey(ApiToken, models.PROTECT, null=True, related_name="calls", db_index=False)
    via = models.CharField(max_length=16, default="plan", help_text="page, rest, mcp or plan.")
    session = models.CharField(max_length=MAX_SESSION, blank=True)
    reason = models.TextField(blank=True, help_text="Reason given by the agent; not trusted.")
    plan_ref = models.CharField(max_length=40, blank=True)
    step_ref = models.CharField(max_length=16, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    fence = models.PositiveIntegerField(default=0, help_text="Attempt of the step under which the call started.")
    replaces = models.ForeignKey("self", models.PROTECT, null=True, related_name="replacements", db_index=False)
    left_running_at = models.DateTimeField(
        null=True, help_text="Time at which the call ended although its handler was still running."
    )
    came_back_at = models.DateTimeField(null=True, help_text="Time at which a handler that was left running returned.")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            # Partial, because most calls replace none and then need no index entry.
            models.UniqueConstraint(fields=["replaces"], condition=Q(replaces__isnull=False), name="call_replaced_once")
        ]
        indexes: ClassVar = [
            # Covers all columns for counting a tool's calls in a period, so that no row is read.
            models.Index(fields=["tool_name", "created_at", "status"], name="call_by_tool"),
            models.Index(
                fields=["status"],
                name="call_open",
                condition=Q(status__in=["held", "ready", "outcome_unknown"]),
            ),
            # For rules about what came before; written once, when a call ends.
            models.Index(
                fields=["requested_by", "tool_name", "finished_at"],
                name="call_ended",
                condition=Q(finished_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.public_id} {self.tool_name}"

    @property
    def given_json(self) -> Any:
        """The arguments for display without the defaults that were filled in."""
        return json.loads(without_macs(given_text(self.arguments, self.defaults)))

    @property
    def response_json(self) -> Any:
        """The standard response as JSON values; None until the call ends, an error if it ended without a response."""
        if self.response:
            return json.loads(self.response)
        if self.status not in (CallStatus.FAILED, CallStatus.CANCELLED):
            return None
        return self.error_response(self.message or f"The call has ended as {self.status}.")

    @property
    def content_json(self) -> list[dict[str, Any]]:
        """The content blocks of the result, without their bytes; see `catalog.core.content_blocks`."""
        return json.loads(without_macs(self.content)) if self.content else []

    @property
    def warnings_json(self) -> list[dict[str, str]]:
        """The defects of the answer: `code` and `message` of each."""
        return json.loads(self.warnings) if self.warnings else []

    @property
    def replaced_by(self) -> "Call | None":
        return self.replacements.first()

    @property
    def left_running(self) -> "Call | None":
        """The call itself if its handler could not be stopped and was left running, else None."""
        return self if self.left_running_at is not None else None

    @property
    def left_earlier(self) -> bool:
        """True if an earlier attempt has left a handler running."""
        return bool(self.left_running_at and self.started_at and self.left_running_at < self.started_at)

    def error_response(self, message: str) -> dict[str, Any]:
        return format_error_response(*self.response_parameters, message, tool_name=self.tool_name)

    def error_text(self, message: str) -> str:
        return json.dumps(self.error_response(message), ensure_ascii=False)

    @property
    def response_parameters(self) -> tuple[str | None, Any]:
        """The query type and parameters for responses; a tool with query types has both inside its arguments."""
        parameters = self.given_json
        if self.query_type:
            return self.query_type, parameters.get("parameters", {})
        return None, parameters

    @property
    def public_status(self) -> str:
        return PUBLIC_STATUS[self.status]

    @property
    def waiting_for(self) -> str | None:
        """The reason for which a call is waiting: `approval` or `outcome`; None if it is not waiting."""
        return WAITING_FOR.get(self.status)

    @property
    def duration_ms(self) -> int | None:
        if self.started_at is None or self.finished_at is None:
            return None
        return round((self.finished_at - self.started_at).total_seconds() * 1000)


class CallBlob(models.Model):
    call = models.ForeignKey(Call, models.CASCADE, related_name="blobs", db_index=False)
    number = models.PositiveIntegerField(help_text="Index of the block in the call's content.")
    data = models.BinaryField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["call", "number"], name="call_blob_once")]

    def __str__(self) -> str:
        return f"block {self.number} of {self.call_id}"


class CallRequester(models.Model):
    """A person who made a held call or shaped its arguments, and therefore may not decide it."""

    call = models.ForeignKey(Call, models.CASCADE, related_name="requesters")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["call", "user"], name="requester_once")]

    def __str__(self) -> str:
        return f"{self.user_id} asked for {self.call_id}"


class CallSecret(models.Model):
    """An encrypted secret of a step whose call has not ended; the stored arguments have its `mac` in its place."""

    plan_ref = models.CharField(max_length=40)
    step_ref = models.CharField(max_length=16, help_text="Number of the step; empty for the plan's initial memory.")
    mac = models.CharField(max_length=64, help_text="HMAC of path and value.")
    ciphertext = models.TextField(help_text="Path and value as JSON, encrypted with Fernet.")
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["plan_ref", "step_ref", "mac"], name="call_secret_once")
        ]

    def __str__(self) -> str:
        return f"a secret of step {self.step_ref} of {self.plan_ref}"


class PersonalSettings(models.Model):
    """The way Toolgate looks and behaves for one person; an empty text means that the person has chosen nothing."""

    class Theme(models.TextChoices):
        SYSTEM = "system", _("As the device")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    person = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, related_name="personal_settings")
    time_zone = models.CharField(max_length=64, blank=True, help_text="A name such as Europe/Berlin.")
    locale = models.CharField(max_length=16, blank=True, help_text="Code whose formats dates and numbers follow.")
    theme = models.CharField(max_length=8, blank=True, choices=Theme.choices)
    shortcuts = models.BooleanField(default=True, help_text="False if single keys do nothing.")

    def __str__(self) -> str:
        return f"settings of {self.person_id}"


class ClientRun(models.Model):
    """A call that its client runs itself: the client asks for it, runs it when it is allowed, and reports the result.

    `owner` is the token or the person that asked, as `token:ID` or `user:ID`. A call that replaces another one, because
    its request was invalidated, has a row of its own; only the newest `is_current`.
    """

    call = models.OneToOneField(Call, models.CASCADE, primary_key=True, related_name="client_run")
    client = models.CharField(max_length=40, help_text="Name of the client, which is that of its source.")
    session = models.CharField(max_length=128, help_text="The client's id of its session.")
    owner = models.CharField(max_length=64, help_text="`token:ID` or `user:ID`.")
    client_call_id = models.CharField(
        max_length=200, blank=True, help_text="The client's id of the call, if it has one."
    )
    client_tool = models.CharField(max_length=128, help_text="The client's own name of the tool.")
    input_digest = models.CharField(
        max_length=64, help_text="SHA-256 of client, session, tool and the input asked about."
    )
    cwd = models.TextField(blank=True, help_text="Working directory that the client claims.")
    is_current = models.BooleanField(default=True)
    allowed_at = models.DateTimeField(null=True, help_text="Time at which the call was handed out to the client.")
    allowed_until = models.DateTimeField(
        null=True, help_text="Time after which its outcome is unknown; null unless it is handed out and not reported."
    )
    run_digest = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 like `input_digest`, of the input that was handed out."
    )
    reported_at = models.DateTimeField(null=True, help_text="Time at which the client reported the end of the call.")
    deferred_at = models.DateTimeField(
        null=True, help_text="Time at which the client's process ended to be resumed after the decision."
    )
    resumed_at = models.DateTimeField(null=True, help_text="Time at which an answer gave the decision to the client.")
    confirmed_at = models.DateTimeField(
        null=True, help_text="Time at which the client's own permission question was given the same decision."
    )
    resume_owner = models.CharField(
        max_length=64, blank=True, help_text="Claim and name of the runner that resumes the session, or did last."
    )
    resume_claimed_at = models.DateTimeField(null=True, help_text="Time of that claim; null if it was given back.")
    resume_lease_until = models.DateTimeField(null=True)
    resume_ended_at = models.DateTimeField(null=True, help_text="Time at which the runner reported the end.")
    resume_attempts = models.PositiveSmallIntegerField(default=0)
    resume_after = models.DateTimeField(null=True, help_text="Time before which a failed resumption is not repeated.")
    resume_outcome = models.CharField(
        max_length=16, blank=True, help_text="How the last resumption ended, if there will be no other."
    )
    resume_exit_code = models.SmallIntegerField(null=True, help_text="Exit code of the last resumed process.")
    resume_message = models.CharField(
        max_length=500, blank=True, help_text="Words of the runner about the end of the last resumed process."
    )
    ask_again_at = models.DateTimeField(
        null=True, help_text="Time at which the client was told to make the call again to get the decision."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["owner", "client", "session", "client_call_id"],
                condition=~Q(client_call_id="") & Q(is_current=True),
                name="client_run_once",
            )
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["owner", "input_digest"],
                name="client_run_by_input",
                condition=Q(is_current=True, reported_at=None),
            ),
            models.Index(
                fields=["allowed_until"],
                name="client_run_out",
                condition=Q(allowed_until__isnull=False),
            ),
            models.Index(
                fields=["owner", "deferred_at"],
                name="client_run_deferred",
                condition=Q(deferred_at__isnull=False, resumed_at=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.client_tool} of {self.client}"

    @property
    def runner(self) -> str:
        """Name of the runner that resumes the session, or did last; empty if none has."""
        return self.resume_owner.partition(" ")[2]


class UngatedRun(models.Model):
    """A run that a client reported without having asked: an alarm, until an administrator has seen it."""

    owner = models.CharField(max_length=64, help_text="`token:ID` or `user:ID`.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", db_index=False)
    token = models.ForeignKey(ApiToken, models.PROTECT, null=True, related_name="+", db_index=False)
    client = models.CharField(max_length=40)
    session = models.CharField(max_length=128)
    client_tool = models.CharField(max_length=128, blank=True, help_text="The client's own name of the tool.")
    client_call_id = models.CharField(max_length=200, blank=True)
    input_digest = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 like that of `ClientRun`; empty if the input is not known."
    )
    cwd = models.TextField(blank=True, help_text="Working directory that the client claims.")
    reports = models.PositiveIntegerField(default=1, help_text="Number of reports that this row stands for.")
    reported_at = models.DateTimeField()
    seen_at = models.DateTimeField(null=True)
    seen_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", db_index=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["owner", "client", "session", "client_call_id", "client_tool", "input_digest"],
                condition=~Q(client_call_id=""),
                name="ungated_run_once",
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["reported_at"], name="ungated_run_open", condition=Q(seen_at=None)),
            models.Index(fields=["owner", "session"], name="ungated_run_in_session"),
        ]

    def __str__(self) -> str:
        return f"{self.client_tool} of {self.client} without a question"
