"""The tables of approval: policies in immutable revisions, requests with write-once rounds, reviews, the audit log."""

import json
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals.states import MOVES, RequestStatus, Verdict
from catalog.models import Call, ToolVersion, new_public_id


def new_request_id() -> str:
    """Return a new approval request's public id."""
    return new_public_id("apr")


class Instance(models.Model):
    """One row: which installation this is, its epoch, and the head of its audit chain."""

    name = models.CharField(max_length=40)
    epoch = models.PositiveIntegerField(default=1)
    audit_seq = models.BigIntegerField(default=0)
    audit_head = models.CharField(max_length=64, blank=True)

    def __str__(self) -> str:
        return f"{self.name} epoch {self.epoch}"


class Policy(models.Model):
    """An ordered rule; its terms stand in revisions that never change once used."""

    name = models.CharField(max_length=128, unique=True)
    order = models.PositiveIntegerField(unique=True)
    enabled = models.BooleanField(default=True)
    revision = models.ForeignKey("PolicyRevision", models.PROTECT, null=True, related_name="+")

    class Meta:
        ordering: ClassVar = ["order"]
        verbose_name_plural = "policies"

    def __str__(self) -> str:
        return self.name


class PolicyRevision(models.Model):
    """The terms of a policy at one time, frozen onto every request they held."""

    class Effect(models.TextChoices):
        ALLOW = "allow"
        HOLD = "hold"
        DENY = "deny"

    policy = models.ForeignKey(Policy, models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    safety_level = models.CharField(max_length=16, blank=True, help_text="The level it applies to; empty for all.")
    effect = models.CharField(max_length=8, choices=Effect.choices)
    message = models.TextField(blank=True, help_text="What the agent is told when the call is refused.")
    stages = models.JSONField(default=list, help_text='[{"group": "reviewer", "count": 1}]')
    expires_seconds = models.PositiveIntegerField(null=True, help_text="None: TOOLGATE_APPROVAL_TTL_SECONDS.")
    allow_self_review = models.BooleanField(default=False)
    reason_required = models.BooleanField(null=True, help_text="For rejections. None: only irreversible tools.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["policy", "number"], name="policy_revision_once")]

    def __str__(self) -> str:
        return f"{self.policy.name} r{self.number}"

    @property
    def sentence(self) -> str:
        """The rule in plain words."""
        if self.effect == self.Effect.HOLD:
            return f"{self.policy.name}: {self.quorum} from {', '.join(self.groups)}"
        return self.policy.name

    @property
    def quorum(self) -> int:
        """How many distinct people must agree."""
        return sum(int(stage["count"]) for stage in self.stages)

    @property
    def groups(self) -> list[str]:
        """Whose members may decide."""
        return [str(stage["group"]) for stage in self.stages]


class ApprovalRequest(models.Model):
    """A held call, waiting for people. What they judge stands in its rounds."""

    MOVES = MOVES

    public_id = models.CharField(max_length=40, unique=True, default=new_request_id)
    call = models.OneToOneField(Call, models.PROTECT, related_name="approval")
    status = models.CharField(max_length=20, choices=RequestStatus.choices, default=RequestStatus.PENDING)
    round_number = models.PositiveIntegerField(default=1)
    digest = models.CharField(max_length=64, help_text="What the current round binds; a review names the one it saw.")
    intent_digest = models.CharField(max_length=64, db_index=True)
    policy_revision = models.ForeignKey(PolicyRevision, models.PROTECT, related_name="requests")
    tool_version = models.ForeignKey(ToolVersion, models.PROTECT, related_name="requests")
    plan_ref = models.CharField(max_length=40, blank=True, db_index=True)
    opened_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    effective_at = models.DateTimeField(null=True, help_text="When the decision takes effect: after the undo window.")
    not_after = models.DateTimeField(null=True, help_text="End of the run window of an approval.")
    applied_at = models.DateTimeField(null=True, help_text="When the decision reached the call.")
    consumed_at = models.DateTimeField(null=True)
    superseded_by = models.OneToOneField("self", models.PROTECT, null=True, related_name="supersedes")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["status", "expires_at"], name="request_due_to_expire"),
            models.Index(
                fields=["effective_at"],
                name="request_due_to_apply",
                condition=Q(applied_at=None, decided_at__isnull=False),
            ),
            models.Index(fields=["opened_at", "id"], name="request_queue", condition=Q(status="pending")),
        ]

    def __str__(self) -> str:
        return f"{self.public_id} {self.status}"


class Round(models.Model):
    """What people are asked to judge, written once: arguments, digest, preview, rule and who edited it."""

    request = models.ForeignKey(ApprovalRequest, models.PROTECT, related_name="rounds")
    number = models.PositiveIntegerField()
    arguments = models.TextField(help_text="RFC 8785 text, as on the call.")
    digest = models.CharField(max_length=64)
    preview = models.TextField(blank=True, help_text="JSON of the preview the tool computed; empty when it has none.")
    state_token = models.CharField(max_length=255, blank=True, help_text="State of the target when it was previewed.")
    policy_revision = models.ForeignKey(PolicyRevision, models.PROTECT, related_name="rounds")
    quorum = models.PositiveSmallIntegerField(default=1)
    editor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["request", "number"], name="round_once")]

    def __str__(self) -> str:
        return f"round {self.number} of {self.request_id}"

    @property
    def preview_json(self) -> dict[str, Any] | None:
        """The preview as JSON values; None when the tool has none."""
        return json.loads(self.preview) if self.preview else None


class Review(models.Model):
    """One person's answer in one round. An undone review is kept and no longer counts."""

    round = models.ForeignKey(Round, models.PROTECT, related_name="reviews")
    request = models.ForeignKey(ApprovalRequest, models.PROTECT, related_name="reviews")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="reviews")
    verdict = models.CharField(max_length=16, choices=Verdict.choices)
    comment = models.TextField(blank=True)
    seen_digest = models.CharField(max_length=64)
    channel = models.CharField(max_length=16, help_text="page or rest.")
    at = models.DateTimeField()
    undone_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["round", "person"],
                condition=Q(undone_at=None),
                name="one_review_per_person_and_round",
            )
        ]

    def __str__(self) -> str:
        return f"{self.person_id} {self.verdict} {self.request_id}"


class AuditEntry(models.Model):
    """One line of the tamper-evident log: `hash` covers the entry and `prev_hash`, under a key outside the database."""

    seq = models.BigIntegerField(unique=True)
    at = models.DateTimeField()
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    actor_name = models.CharField(max_length=150)
    action = models.CharField(max_length=64)
    object_ref = models.CharField(max_length=64, blank=True)
    tool_name = models.CharField(max_length=64, blank=True)
    plan_ref = models.CharField(max_length=40, blank=True)
    digest = models.CharField(max_length=64, blank=True)
    details = models.TextField(default="{}", help_text="RFC 8785 text: ids, digests and reasons only.")
    prev_hash = models.CharField(max_length=64, blank=True)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering: ClassVar = ["-seq"]
        verbose_name_plural = "audit entries"
        indexes: ClassVar = [
            models.Index(fields=["object_ref"], name="audit_by_object"),
            models.Index(fields=["action", "-seq"], name="audit_by_action"),
            models.Index(fields=["tool_name", "-seq"], name="audit_by_tool"),
        ]

    def __str__(self) -> str:
        return f"#{self.seq} {self.action}"

    @property
    def details_json(self) -> dict[str, Any]:
        """The details as JSON values."""
        details: dict[str, Any] = json.loads(self.details)
        return details
