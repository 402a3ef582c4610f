"""Models of notifications: preferences of users, and the outbox, which is also the log of deliveries."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q


class NotificationChoice(models.Model):
    person = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, related_name="notification_choice")
    by_mail = models.BooleanField(default=True)
    addresses = models.JSONField(default=list, help_text="Webhooks and chat addresses of this person.")
    quiet_from = models.TimeField(null=True)
    quiet_until = models.TimeField(null=True)

    def __str__(self) -> str:
        return f"notifications of {self.person_id}"


class PushDevice(models.Model):
    """A browser that a person lets Toolgate notify by web push."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="push_devices")
    name = models.CharField(max_length=64, help_text="Browser and system, as the browser named itself.")
    address_key = models.CharField(max_length=64, unique=True, help_text="A hash of the subscription's address.")
    subscription = models.TextField(help_text="Encrypted, since its address lets anyone notify the person.")
    browser_key = models.CharField(max_length=64, help_text="A hash of the cookie that tells the browser from others.")
    created_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["browser_key"], name="push_device_browser")]

    def __str__(self) -> str:
        return f"device {self.pk} of {self.person_id}"


class Delivery(models.Model):
    """A notification of one event to one address, sent at most once and kept as a log."""

    class Status(models.TextChoices):
        DUE = "due"
        SENDING = "sending"
        SENT = "sent"
        FAILED = "failed"
        DROPPED = "dropped"

    MOVES: ClassVar[dict[str, frozenset[str]]] = {
        Status.DUE: frozenset({Status.SENDING, Status.DROPPED}),
        Status.SENDING: frozenset({Status.SENT, Status.FAILED, Status.DROPPED, Status.DUE}),
        Status.SENT: frozenset(),
        Status.FAILED: frozenset({Status.DUE}),
        Status.DROPPED: frozenset(),
    }

    event_key = models.CharField(max_length=128, help_text="Identifies the event; unique for each address.")
    kind = models.CharField(max_length=32)
    request = models.ForeignKey("approvals.ApprovalRequest", models.PROTECT, null=True, related_name="deliveries")
    call = models.ForeignKey("catalog.Call", models.PROTECT, null=True, related_name="deliveries")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    channel = models.CharField(max_length=16, help_text="mail, webhook, chat or push.")
    address_key = models.CharField(max_length=64, help_text="A hash of the address.")
    address = models.TextField(help_text="Encrypted address, since chat addresses contain tokens.")
    shown_address = models.CharField(max_length=255, help_text="The address without secrets.")
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.DUE)
    due_at = models.DateTimeField()
    attempts = models.PositiveSmallIntegerField(default=0)
    last_error = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "deliveries"
        constraints: ClassVar = [models.UniqueConstraint(fields=["event_key", "address_key"], name="delivery_once")]
        indexes: ClassVar = [
            models.Index(fields=["due_at"], name="delivery_due", condition=Q(status__in=["due", "sending"]))
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.shown_address}"
