"""Models of what came before calls: the calls that rules count, and what was found for each call."""

from typing import ClassVar

from django.db import models

from approvals.models.policies import PolicyRevision
from catalog.models import Call


class RecentCall(models.Model):
    """A call that the `recent` term of a revision counts under one value; swept when it is older than the window.

    `at` is when the call was stored or, later, when it started. A call that did not start counts while it waits.
    """

    revision = models.ForeignKey(PolicyRevision, models.CASCADE, related_name="+", db_index=False)
    value = models.CharField(max_length=64, help_text="Keyed digest of the value by which the revision counts.")
    call = models.ForeignKey(Call, models.CASCADE, related_name="+")
    at = models.DateTimeField()
    is_started = models.BooleanField()

    class Meta:
        indexes: ClassVar = [
            # Covers all columns of the count, so that the rows of calls that have started are not read.
            models.Index(fields=["revision", "value", "at", "is_started", "call"], name="recent_call_counted")
        ]

    def __str__(self) -> str:
        return f"{self.call_id} counted by revision {self.revision_id}"


class CallHistory(models.Model):
    """The findings about a call of rules that look back, once and for all: later checks of the call use them."""

    call = models.OneToOneField(Call, models.CASCADE, primary_key=True, related_name="history")
    findings = models.JSONField(
        help_text='[{"revision": 1, "value": "…", "fits": true, "count": 11, "calls": [7, 8]}]: `value` is empty for '
        "rules that do not count; `calls` are the newest of those that came before, of the rule that holds the call."
    )

    def __str__(self) -> str:
        return f"history of {self.call_id}"
