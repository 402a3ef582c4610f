"""Models of policies: ordered rules whose terms are stored in immutable revisions, and what these rules did."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals.policy_language.sentences import policy_sentence
from catalog.models import ApiToken, Call, new_public_id


def new_policy_id() -> str:
    return new_public_id("pol")


class Policy(models.Model):
    public_id = models.CharField(max_length=40, unique=True, default=new_policy_id)
    name = models.CharField(max_length=128)
    order = models.PositiveIntegerField()
    enabled = models.BooleanField(default=True)
    revision = models.ForeignKey("PolicyRevision", models.PROTECT, null=True, related_name="+")
    ended_at = models.DateTimeField(
        null=True, help_text="Time of the deletion; the row is kept for the requests it held."
    )

    class Meta:
        ordering: ClassVar = ["order", "pk"]
        verbose_name_plural = "policies"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["name"], condition=Q(ended_at=None), name="policy_name_once")
        ]

    def __str__(self) -> str:
        return self.name


class PolicyRevision(models.Model):
    """Immutable terms of a policy; requests refer to the revision that held them."""

    class Effect(models.TextChoices):
        ALLOW = "allow"
        HOLD = "hold"
        DENY = "deny"

    class OnExpiry(models.TextChoices):
        FAIL = "fail"
        SKIP = "skip"
        CANCEL_PLAN = "cancel_plan"
        ESCALATE = "escalate"

    class Envelope(models.TextChoices):
        DEFAULT = "default"
        ALLOW = "allow"
        NEVER = "never"

    class Mode(models.TextChoices):
        ENFORCE = "enforce"
        TRIAL = "trial"

    policy = models.ForeignKey(Policy, models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    tool = models.CharField(max_length=128, blank=True, help_text="A glob over tool names; empty for all.")
    category = models.CharField(max_length=64, blank=True)
    safety_level = models.CharField(max_length=16, blank=True, help_text="The level it applies to; empty for all.")
    source = models.CharField(max_length=128, blank=True, help_text="Source of the tool; empty for any.")
    requester = models.CharField(max_length=150, blank=True, help_text="A username, or group:NAME; empty for anyone.")
    plan = models.CharField(max_length=40, blank=True, help_text="A plan's id; empty for any.")
    conditions = models.JSONField(default=list, help_text='[{"path": "amount", "operator": "less_than", "value": 5}]')
    hours = models.CharField(max_length=64, blank=True, help_text="Mon-Fri 09:00-17:00; empty for always.")
    recent = models.JSONField(null=True, help_text='{"count": 11, "seconds": 3600, "by": "token"}; null for any call.')
    seen = models.JSONField(null=True, help_text='{"category": "web", "within": 3600}; null for any call.')
    effect = models.CharField(max_length=8, choices=Effect.choices)
    mode = models.CharField(
        max_length=8, choices=Mode.choices, default=Mode.ENFORCE, help_text="A rule on trial decides no call."
    )
    message = models.TextField(blank=True, help_text="Message to the agent when the call is denied.")
    stop_after = models.JSONField(null=True, help_text='{"count": 5, "seconds": 600}: more refused calls set a stop.')
    stages = models.JSONField(default=list, help_text='[{"group": "reviewer", "count": 1}]')
    expires_seconds = models.PositiveIntegerField(null=True, help_text="None: TOOLGATE_APPROVAL_TTL_SECONDS.")
    on_expiry = models.CharField(max_length=12, choices=OnExpiry.choices, default=OnExpiry.FAIL)
    escalate_to = models.CharField(max_length=150, blank=True, help_text="Group to escalate to if nobody answers.")
    remind = models.BooleanField(default=True, help_text="Send reminders at 50 % and 90 % of the time to answer.")
    batchable = models.BooleanField(default=False)
    allow_self_review = models.BooleanField(default=False)
    editor_may_approve = models.BooleanField(default=True)
    reason_required = models.BooleanField(
        null=True, help_text="Rejections need a reason; None: only for irreversible tools."
    )
    min_review_seconds = models.PositiveIntegerField(
        default=0, help_text="Minimum time on a page before approval; 0 for none."
    )
    typed_target = models.BooleanField(default=False, help_text="Reviewers must type the target's name to approve.")
    fresh_passkey = models.BooleanField(default=False, help_text="Each approval must be signed with a passkey.")
    envelope = models.CharField(
        max_length=8,
        choices=Envelope.choices,
        default=Envelope.DEFAULT,
        help_text="Calls that an approved envelope covers; default: none that are irreversible or need a confirmation.",
    )
    fresh_sign_in_seconds = models.PositiveIntegerField(default=0, help_text="Longest time since sign-in; 0 for any.")
    min_role_age_seconds = models.PositiveIntegerField(
        default=0, help_text="Minimum time of membership in the group; 0 for any."
    )
    notify = models.JSONField(default=list, help_text="Addresses notified of requests in addition to the reviewers.")
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["policy", "number"], name="policy_revision_once")]

    def __str__(self) -> str:
        return f"{self.policy.name} r{self.number}"

    @property
    def looks_back(self) -> bool:
        """True if what came before a call determines whether the revision applies."""
        return self.recent is not None or self.seen is not None

    @property
    def sentence(self) -> str:
        return policy_sentence(self)

    @property
    def quorum(self) -> int:
        """Number of distinct people who must approve."""
        return sum(int(stage["count"]) for stage in self.stages)

    @property
    def groups(self) -> list[str]:
        return [str(stage["group"]) for stage in self.stages]


class TrialResult(models.Model):
    """One call that a rule on trial would have decided; `call` is None if the call was refused and so not stored."""

    revision = models.ForeignKey(PolicyRevision, models.CASCADE, related_name="trial_results", db_index=False)
    call = models.ForeignKey(Call, models.CASCADE, null=True, related_name="trial_results", db_index=False)
    tool_name = models.CharField(max_length=128)
    would = models.CharField(max_length=8, choices=PolicyRevision.Effect.choices)
    was = models.CharField(max_length=8, choices=PolicyRevision.Effect.choices)
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["call", "revision"], name="trial_result_once")]
        indexes: ClassVar = [models.Index(fields=["revision", "id"], name="trial_result_newest")]

    def __str__(self) -> str:
        return f"{self.revision} would {self.would}"


class RefusedCall(models.Model):
    """One call that a rule with `stop_after` refused, made through `token`, or by `person` without a token.

    `is_counted` is set in the transaction that has counted the row and set the stop, if one was due.
    """

    revision = models.ForeignKey(PolicyRevision, models.CASCADE, related_name="refused_calls", db_index=False)
    token = models.ForeignKey(ApiToken, models.CASCADE, null=True, related_name="+", db_index=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="+", db_index=False)
    at = models.DateTimeField(db_index=True)
    is_counted = models.BooleanField(default=False)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["revision", "token", "person", "at"], name="refused_call_counted"),
            models.Index(fields=["id"], name="refused_call_due", condition=Q(is_counted=False)),
        ]

    def __str__(self) -> str:
        return f"refused by {self.revision}"
