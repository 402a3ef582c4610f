"""Models of approval requests: rounds, reviews, comments, snoozes and delegations."""

import json
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce

from approvals.models.policies import PolicyRevision
from approvals.states import MOVES, RequestStatus, ReviewVerdict
from catalog.models import Call, StoredArguments, ToolVersion, new_public_id

QUEUED_BY = (
    *("opened_at", "id", "expires_at", "is_early", "ready_at", "decided_at"),
    *("policy_revision", "escalated_to", "tool_version", "call", "claimed_by", "claimed_until"),
)
"""Columns of the queue's covering index: first the sort columns, then those that views read from all open requests."""
DECIDED_OR_OPENED_AT = Coalesce("decided_at", "opened_at")
"""Sort key of requests that wait no more: some end without a decision."""


def new_request_id() -> str:
    return new_public_id("apr")


class ApprovalRequest(models.Model):
    """A request for approval of a held call; the reviewed content is in its rounds."""

    MOVES = MOVES

    public_id = models.CharField(max_length=40, unique=True, default=new_request_id)
    call = models.OneToOneField(Call, models.PROTECT, related_name="approval")
    status = models.CharField(max_length=20, choices=RequestStatus.choices, default=RequestStatus.PENDING)
    round_number = models.PositiveIntegerField(default=1)
    digest = models.CharField(max_length=64, help_text="Digest of the current round; a review names the one it saw.")
    intent_digest = models.CharField(max_length=64, db_index=True)
    likeness = models.CharField(
        max_length=64, blank=True, help_text="Digest of tool and arguments; equal for identical calls."
    )
    policy_revision = models.ForeignKey(PolicyRevision, models.PROTECT, related_name="requests")
    tool_version = models.ForeignKey(ToolVersion, models.PROTECT, related_name="requests")
    plan_ref = models.CharField(max_length=40, blank=True)
    opened_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    effective_at = models.DateTimeField(
        null=True, help_text="Time at which the decision takes effect, after the undo window."
    )
    not_after = models.DateTimeField(null=True, help_text="End of the run window of an approval.")
    applied_at = models.DateTimeField(null=True, help_text="Time at which the decision was applied to the call.")
    consumed_at = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True, help_text="Time at which the step of a pre-approval became ready.")
    is_early = models.BooleanField(
        default=False, help_text="Pre-approval: opened before its step is ready, and in no queue until then."
    )
    claimed_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    claimed_until = models.DateTimeField(null=True)
    escalated_at = models.DateTimeField(null=True)
    escalated_to = models.CharField(
        max_length=150, blank=True, help_text="Group that can answer too since the escalation."
    )
    reminders = models.PositiveSmallIntegerField(default=0)
    remind_at = models.DateTimeField(null=True, help_text="Time of the next reminder; None for never.")
    reminded_at = models.DateTimeField(null=True, help_text="Time of the last reminder.")
    stopped_seconds = models.FloatField(default=0.0, help_text="Seconds by which stops have moved `expires_at`.")
    window_stopped_seconds = models.FloatField(default=0.0, help_text="Seconds by which stops have moved `not_after`.")
    extensions = models.PositiveSmallIntegerField(default=0, help_text="Number of extensions.")
    input_authors = models.JSONField(
        default=list, help_text="Keys of the people who changed or answered steps whose values the call uses."
    )
    superseded_by = models.OneToOneField("self", models.PROTECT, null=True, related_name="supersedes")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["plan_ref", "status"], name="request_of_plan"),
            models.Index(fields=["status", "expires_at"], name="request_due_to_expire"),
            models.Index(
                fields=["effective_at"],
                name="request_due_to_apply",
                condition=Q(applied_at=None, decided_at__isnull=False),
            ),
            models.Index(fields=["remind_at"], name="request_due_to_remind", condition=Q(status="pending")),
            # These include the status again; otherwise SQLite prefers the index request_due_to_expire.
            models.Index(fields=["status", *QUEUED_BY], name="request_queue", condition=Q(status="pending")),
            models.Index(fields=["likeness", "status"], name="request_twins", condition=Q(status="pending")),
            models.Index(fields=["tool_version", "id"], name="request_answered", condition=Q(decided_at__isnull=False)),
            models.Index(DECIDED_OR_OPENED_AT, "id", name="request_by_decision"),
        ]

    def __str__(self) -> str:
        return f"{self.public_id} {self.status}"

    @property
    def is_pre_approval(self) -> bool:
        """True if approval was requested before the step was ready, and the step is still not ready."""
        return self.is_early and self.ready_at is None


class Round(StoredArguments, models.Model):
    """Immutable content under review: arguments, digest, preview, rule and editor."""

    request = models.ForeignKey(ApprovalRequest, models.PROTECT, related_name="rounds")
    number = models.PositiveIntegerField()
    arguments = models.TextField(help_text="RFC 8785 text, as on the call.")
    defaults = models.TextField(null=True, help_text="As on the call.")  # noqa: DJ001 - null: as on the call
    omitted = models.TextField(null=True, help_text="As on the call.")  # noqa: DJ001 - null: as on the call
    digest = models.CharField(max_length=64)
    preview = models.TextField(blank=True, help_text="JSON of the tool's preview; empty if it has none.")
    state_token = models.CharField(
        max_length=255, blank=True, help_text="State of the target at the time of the preview."
    )
    is_deceptive = models.BooleanField(default=False, help_text="The agent's text has warnings.")
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
        """The parsed preview; None if the tool has none."""
        return json.loads(self.preview) if self.preview else None


class Review(models.Model):
    """A person's decision in one round. An undone review is kept but no longer counts."""

    round = models.ForeignKey(Round, models.PROTECT, related_name="reviews")
    request = models.ForeignKey(ApprovalRequest, models.PROTECT, related_name="reviews")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="reviews")
    verdict = models.CharField(max_length=16, choices=ReviewVerdict.choices)
    comment = models.TextField(blank=True)
    response = models.TextField(blank=True, help_text="JSON of the answer instead of the tool.")
    effect = models.CharField(max_length=12, default="fail", help_text="Of a rejection: fail, skip or cancel_plan.")
    on_behalf_of = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    seen_digest = models.CharField(max_length=64)
    channel = models.CharField(max_length=16, help_text="page or rest.")
    passkey = models.TextField(blank=True, help_text="JSON of the signature by a passkey, if the policy requires one.")
    batch = models.CharField(max_length=32, blank=True, help_text="Shared by the reviews of one batch; may be empty.")
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

    @property
    def counts(self) -> bool:
        """True if the review is of the current round and was not undone."""
        return self.undone_at is None and self.round.number == self.request.round_number


class ApprovalNonce(models.Model):
    """A random value that one signature of an approval must contain. It can be used once, for two minutes."""

    nonce = models.CharField(max_length=43, unique=True)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    made_at = models.DateTimeField(db_index=True)
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"nonce for {self.person_id}"


class Comment(models.Model):
    """A comment on a request by a user who may see it. It decides nothing."""

    request = models.ForeignKey(ApprovalRequest, models.PROTECT, related_name="comments")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    is_agent = models.BooleanField(default=False, help_text="Written through an agent token.")
    text = models.TextField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"comment on {self.request_id}"


class Snooze(models.Model):
    """Time until which one person has hidden a request from their own lists."""

    request = models.ForeignKey(ApprovalRequest, models.PROTECT, related_name="snoozes")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    until = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["request", "person"], name="snooze_once")]

    def __str__(self) -> str:
        return f"{self.request_id} until {self.until}"


class Delegation(models.Model):
    """Delegation of one request: `to` may decide on behalf of `by`, as long as `by` may decide."""

    request = models.ForeignKey(ApprovalRequest, models.PROTECT, related_name="delegations")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    to = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["request", "by"], name="delegation_once")]

    def __str__(self) -> str:
        return f"{self.by_id} to {self.to_id} for {self.request_id}"
