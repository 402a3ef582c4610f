"""How statuses, safety levels, times, durations and sizes are said on pages. One vocabulary; no markup."""

from dataclasses import dataclass
from datetime import UTC, datetime

from catalog.core import clock


@dataclass(frozen=True)
class Badge:
    """A status or level as people see it: label, icon of the sprite, hue class."""

    label: str
    icon: str
    hue: str


JUST_NOW_SECONDS = 5
"""Below it nobody is told how long ago something was; clock.js agrees."""

SAFETY_BADGES = {
    "safe": Badge("Safe", "safe", "safe"),
    "cautious": Badge("Cautious", "cautious", "cautious"),
    "dangerous": Badge("Dangerous", "dangerous", "dangerous"),
}
REVERSIBILITY_BADGES = {
    "reversible": Badge("Reversible", "undoable", "lo"),
    "restorable": Badge("Restorable", "undoable", "mid"),
    "irreversible": Badge("Cannot be undone", "lock", "hi"),
}
# Waiting is not a status: it is said instead of the status of whatever is still open.
WAITING_BADGES = {
    "approval": Badge("Waiting for approval", "hand", "human"),
    "input": Badge("Waiting for an answer", "hand", "human"),
    "outcome": Badge("Outcome unknown", "hand", "human"),
    "calls": Badge("Waiting for its calls", "clock", "run"),
    "retry": Badge("Retrying", "retry", "warn"),
}
STATUS_BADGES = {
    "pending": Badge("Not started", "pending", "idle"),
    "in_progress": Badge("Running", "run", "run"),
    "running": Badge("Running", "run", "run"),
    "created": Badge("Running", "run", "run"),
    "ready": Badge("About to run", "clock", "run"),
    "waiting": WAITING_BADGES["approval"],
    "held": WAITING_BADGES["approval"],
    "outcome_unknown": WAITING_BADGES["outcome"],
    "completed": Badge("Done", "ok", "ok"),
    "skipped": Badge("Skipped", "skip", "idle"),
    "failed": Badge("Failed", "fail", "danger"),
    "cancelled": Badge("Cancelled", "stop", "idle"),
    "paused": Badge("Paused", "pause", "idle"),
    "approved": Badge("Approved", "check", "ok"),
    "consumed": Badge("Approved and run", "ok", "ok"),
    "rejected": Badge("Rejected", "fail", "danger"),
    "responded": Badge("Answered", "reply", "ok"),
    "changes_requested": Badge("Changes requested", "edit", "warn"),
    "expired": Badge("Expired", "expired", "idle"),
    "withdrawn": Badge("Withdrawn", "undo", "idle"),
    "revoked": Badge("Revoked", "undo", "danger"),
    "invalidated": Badge("No longer valid", "retry", "warn"),
    "superseded": Badge("Replaced", "retry", "idle"),
    "enabled": Badge("Enabled", "ok", "ok"),
    "disabled": Badge("Disabled", "off", "idle"),
}
OPEN_STATUSES = frozenset(
    {"pending", "in_progress", "running", "created", "ready", "waiting", "held", "outcome_unknown"}
)


def status_badge(status: str, waiting_for: str | None = None) -> Badge:
    """Say a status; what is open and waits is said by what it waits for."""
    if waiting_for in WAITING_BADGES and status in OPEN_STATUSES:
        return WAITING_BADGES[waiting_for]
    return STATUS_BADGES.get(status) or Badge(status.replace("_", " ").capitalize(), "info", "idle")


def safety_badge(level: str) -> Badge:
    """Say a safety level."""
    return SAFETY_BADGES.get(level) or Badge(level.capitalize(), "info", "dangerous")


def reversibility_badge(reversibility: str) -> Badge:
    """Say what it costs to take a call back; what nobody knows is said as the worst."""
    return REVERSIBILITY_BADGES.get(reversibility) or REVERSIBILITY_BADGES["irreversible"]


def format_time_ago(moment: datetime, now: datetime | None = None) -> str:
    """Say how long ago: just now, 48 s ago, 4 min ago, 2 h ago, yesterday, the date; clock.js agrees."""
    seconds = int(((now or clock.now()) - moment).total_seconds())
    if seconds < JUST_NOW_SECONDS:
        return "just now"
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit} ago"
    return "yesterday" if seconds < 2 * 86400 else format_date(moment)


def format_time_left(moment: datetime, now: datetime | None = None) -> str:
    """Say how much time is left, rounded down; clock.js says the same."""
    seconds = int((moment - (now or clock.now())).total_seconds())
    if seconds <= 0:
        return "no time left"
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (2 * 86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit} left"
    return f"{seconds // 86400} days left"


def time_left_hue(moment: datetime, now: datetime | None = None) -> str:
    """Name the class of a time that runs out: amber under five minutes, red under one; clock.js agrees."""
    seconds = (moment - (now or clock.now())).total_seconds()
    return "t-danger" if seconds < 60 else "t-warn" if seconds < 300 else ""


def format_date(moment: datetime) -> str:
    """Say the day: 20 Nov 2026."""
    utc = moment.astimezone(UTC)
    return f"{utc.day} {utc:%b %Y}"


def format_duration(milliseconds: float) -> str:
    """Say a duration: 41 ms, 2.4 s, 12 s, 4 min 09 s, 2 h 05 min."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if not minutes:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_timespan(seconds: int) -> str:
    """Say a configured duration in its largest whole unit: 24 h, 15 min, 90 s."""
    whole = ((size, unit) for size, unit in ((3600, "h"), (60, "min")) if seconds and seconds % size == 0)
    size, unit = next(whole, (1, "s"))
    return f"{seconds // size} {unit}"


def format_byte_size(count: int) -> str:
    """Say a number of bytes: 588 bytes, 41 KB, 1.2 MB (1,024 bytes to the KB)."""
    if count < 1024:
        return f"{count} byte" if count == 1 else f"{count} bytes"
    size = count / 1024
    return f"{size:.0f} KB" if size < 1024 else f"{size / 1024:.1f} MB"


def name_initials(name: str) -> str:
    """Cut a name to two letters: Rosa Méndez is RM, planner is PL."""
    words = name.replace("-", " ").replace("_", " ").split()
    if not words:
        return "?"
    return (words[0][0] + words[1][0] if len(words) > 1 else words[0][:2]).upper()
