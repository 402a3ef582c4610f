"""Models of grants: remembered approvals with conditions on arguments, expiry and limited uses."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from approvals.models.requests import ApprovalRequest
from catalog.models import Call, Tool, new_public_id


def new_grant_id() -> str:
    return new_public_id("grt")


class Grant(models.Model):
    """A remembered approval: until the grant ends, calls of one tool that meet its conditions need no new review."""

    class Scope(models.TextChoices):
        PLAN = "plan"
        SESSION = "session"
        REQUESTER = "requester"

    public_id = models.CharField(max_length=40, unique=True, default=new_grant_id)
    tool = models.ForeignKey(Tool, models.PROTECT, related_name="grants")
    fingerprint = models.CharField(
        max_length=64, help_text="Fingerprint of the tool's version; a change ends the grant."
    )
    conditions = models.JSONField(default=list, help_text="Rows of path, operator and value, as in policies.")
    scope = models.CharField(max_length=12, choices=Scope.choices)
    scope_ref = models.CharField(max_length=150, help_text="A plan's id, a session's name, or a username.")
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        related_name="+",
        help_text="User whose calls are covered.",
    )
    implementation_digests = models.JSONField(
        default=list, help_text="Digests of the code in use; other code ends the grant."
    )
    epoch = models.PositiveIntegerField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_from = models.ForeignKey(ApprovalRequest, models.PROTECT, null=True, related_name="grants_made")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    max_uses = models.PositiveIntegerField()
    uses = models.PositiveIntegerField(default=0)
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    ended_because = models.TextField(blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["tool", "expires_at"], name="grant_in_force", condition=Q(revoked_at=None))
        ]

    def __str__(self) -> str:
        return self.public_id


class GrantUse(models.Model):
    """A call that ran under a grant without a new review."""

    grant = models.ForeignKey(Grant, models.PROTECT, related_name="used")
    call = models.OneToOneField(Call, models.PROTECT, related_name="grant_use")
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.grant_id} for {self.call_id}"
