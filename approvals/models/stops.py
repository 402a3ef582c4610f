"""Model of stops: while one stands, nothing in its scope starts."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from catalog.access.roles import user_display_name
from catalog.models import new_public_id


def new_stop_id() -> str:
    return new_public_id("stop")


class Stop(models.Model):
    """A stop of everything, or of the calls of one tool, category, source, agent, token or person; never deleted.

    It stands until `lifted_at`. The times between `since` and `lifted_at` lengthen the deadlines of what it held up.
    """

    class Kind(models.TextChoices):
        EVERYTHING = "everything", "everything"
        TOOL = "tool", "tool"
        CATEGORY = "category", "category"
        SOURCE = "source", "source"
        AGENT = "agent", "agent"
        TOKEN = "token", "token"
        REQUESTER = "requester", "person"

    public_id = models.CharField(max_length=40, unique=True, default=new_stop_id)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    key = models.CharField(
        max_length=150, blank=True, help_text="Name of the object in scope, or the key of a token or person as text."
    )
    name = models.CharField(max_length=200, blank=True, help_text="Name of the object for people, as of `since`.")
    reason = models.TextField(help_text="Reason for people and agents.")
    cancel_running = models.BooleanField(default=False, help_text="Running handlers in scope are asked to cancel.")
    since = models.DateTimeField()
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", db_index=False)
    set_through = models.CharField(
        max_length=200, blank=True, help_text="Command or policy that set it in place of a person."
    )
    lifted_at = models.DateTimeField(null=True)
    lifted_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", db_index=False)
    lifted_through = models.CharField(max_length=200, blank=True)
    lift_reason = models.TextField(blank=True)
    counted_at = models.DateTimeField(
        null=True, help_text="Time at which the deadlines of all that it held up had been moved, once it was lifted."
    )

    class Meta:
        ordering: ClassVar = ["pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "key"], condition=Q(lifted_at=None), name="one_standing_stop"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["lifted_at"], name="stop_uncounted", condition=Q(counted_at=None)),
        ]

    def __str__(self) -> str:
        return f"{self.public_id}: {self.kind} {self.key}".rstrip()

    @property
    def set_by_name(self) -> str:
        return user_display_name(self.set_by) if self.set_by else self.set_through

    @property
    def lifted_by_name(self) -> str:
        return user_display_name(self.lifted_by) if self.lifted_by else self.lifted_through
