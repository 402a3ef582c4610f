"""Models of envelopes: tasks approved once, whose calls then start without a review each."""

from decimal import Decimal
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals.policy_language.envelopes import Item, SumLimit
from approvals.states import ENVELOPE_MOVES, EnvelopeStatus
from catalog.models import ApiToken, Call, Tool, new_public_id


def new_envelope_id() -> str:
    return new_public_id("env")


class Envelope(models.Model):
    """A proposed or approved task: `call` is the call that proposes it, and its approval opens it.

    While the proposal waits, its items are in the arguments of the call; the rows of items are made when it opens.
    """

    MOVES = ENVELOPE_MOVES
    Status = EnvelopeStatus

    class Scope(models.TextChoices):
        TOKEN = "token"  # noqa: S105 - no password
        PLAN = "plan"
        SESSION = "session"

    public_id = models.CharField(max_length=40, unique=True, default=new_envelope_id)
    call = models.OneToOneField(Call, models.PROTECT, related_name="proposed_envelope")
    status = models.CharField(max_length=8, choices=EnvelopeStatus.choices, default=EnvelopeStatus.PROPOSED)
    purpose = models.TextField(help_text="In the words of the proposer; a model's text, as a rule.")
    scope = models.CharField(max_length=8, choices=Scope.choices)
    scope_ref = models.CharField(max_length=150, help_text="A token's number, a plan's id, or a session's name.")
    token = models.ForeignKey(ApiToken, models.PROTECT, null=True, related_name="+")
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, related_name="+", help_text="Only calls of this person are covered."
    )
    epoch = models.PositiveIntegerField()
    proposed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    opened_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    ended_because = models.TextField(blank=True)

    class Meta:
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(fields=["requester", "expires_at"], name="envelope_of_requester"),
            models.Index(fields=["expires_at"], name="envelope_due", condition=Q(status__in=["proposed", "open"])),
        ]

    def __str__(self) -> str:
        return f"{self.public_id} {self.status}"


class EnvelopeItem(models.Model):
    """Calls of one tool that an open envelope lets start, beside those that it has let start."""

    envelope = models.ForeignKey(Envelope, models.PROTECT, related_name="items")
    number = models.PositiveSmallIntegerField()
    tool = models.ForeignKey(Tool, models.PROTECT, related_name="+")
    fingerprint = models.CharField(max_length=64, help_text="Of the tool's version; a change ends the envelope.")
    implementation_digests = models.JSONField(default=list, help_text="Code in use; other code ends the envelope.")
    conditions = models.JSONField(default=list, help_text="Rows of path, operator and value, as in grants.")
    count = models.PositiveIntegerField()
    sum_path = models.CharField(max_length=200, blank=True)
    at_most = models.CharField(max_length=40, blank=True, help_text="Decimal as text, kept exactly.")
    used = models.PositiveIntegerField(default=0)
    sum_used = models.CharField(max_length=40, default="0", help_text="Decimal as text.")

    class Meta:
        ordering: ClassVar = ["number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["envelope", "number"], name="envelope_item_once"),
            models.CheckConstraint(condition=Q(used__lte=models.F("count")), name="envelope_item_within_count"),
        ]

    def __str__(self) -> str:
        return f"item {self.number} of {self.envelope_id}"

    @property
    def terms(self) -> Item:
        limit = SumLimit(self.sum_path, Decimal(self.at_most)) if self.sum_path else None
        return Item(self.tool.name, self.conditions, self.count, limit)


class EnvelopeUse(models.Model):
    """A call that an envelope let start, and what it added to the sum of its item."""

    item = models.ForeignKey(EnvelopeItem, models.PROTECT, related_name="uses")
    call = models.OneToOneField(Call, models.PROTECT, related_name="envelope_use")
    amount = models.CharField(max_length=40, default="0", help_text="Decimal as text.")
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.item_id} for {self.call_id}"


class EnvelopeMismatch(models.Model):
    """A call that waits although an envelope of its requester was there, and the promise that it broke."""

    envelope = models.ForeignKey(Envelope, models.PROTECT, related_name="mismatches")
    call = models.OneToOneField(Call, models.PROTECT, related_name="envelope_mismatch")
    mismatch = models.CharField(max_length=220, help_text="tool, argument:PATH, count, sum, expired, or rule.")

    def __str__(self) -> str:
        return f"{self.call_id} outside {self.envelope_id}: {self.mismatch}"
