"""Models of the installation and its audit log."""

import json
from typing import Any, ClassVar

from django.conf import settings
from django.db import models


class Instance(models.Model):
    """The single row of this installation: name, epoch, and head of the audit chain."""

    name = models.CharField(max_length=40)
    epoch = models.PositiveIntegerField(default=1)
    audit_seq = models.BigIntegerField(default=0)
    audit_head = models.CharField(max_length=64, blank=True)

    def __str__(self) -> str:
        return f"{self.name} epoch {self.epoch}"


class AuditEntry(models.Model):
    """Entry of the tamper-evident log: `hash` covers the entry and `prev_hash`, under a key outside the database."""

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
        details: dict[str, Any] = json.loads(self.details)
        return details
