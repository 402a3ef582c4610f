"""When those who may answer are reminded: at half of the time to answer, and at nine tenths. Pure."""

from datetime import datetime, timedelta

from approvals.policies.rulebook import Rule

PARTS = (0.5, 0.9)
"""Which parts of the time to answer have passed."""


def first_reminder(opened: datetime, rule: Rule) -> datetime | None:
    """Return when a request opened now is first to be spoken of again; None for never."""
    return next_reminder(opened, opened + timedelta(seconds=rule.expires_seconds), opened) if rule.remind else None


def next_reminder(opened: datetime, expires: datetime, after: datetime) -> datetime | None:
    """Return the first moment to remind that is later than `after`; None when there is none left.

    `opened`: when the time to answer began, which is anew where a request was escalated.
    """
    moments = (opened + (expires - opened) * part for part in PARTS)
    return next((moment for moment in moments if moment > after), None)
