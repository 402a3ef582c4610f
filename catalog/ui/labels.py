"""How statuses, safety levels, times, durations and sizes are said on pages. One vocabulary; no markup."""

from dataclasses import dataclass
from datetime import UTC, datetime

from catalog.core import clock


@dataclass(frozen=True)
class Word:
    """A status or level as people see it: label, icon of the sprite, hue class."""

    label: str
    icon: str
    hue: str


JUST_NOW_SECONDS = 5
"""Below it nobody is told how long ago something was; clock.js agrees."""

SAFETY = {
    "safe": Word("Safe", "safe", "safe"),
    "cautious": Word("Cautious", "cautious", "cautious"),
    "dangerous": Word("Dangerous", "dangerous", "dangerous"),
}
REVERSIBILITY = {
    "reversible": Word("Reversible", "undoable", "lo"),
    "restorable": Word("Restorable", "undoable", "mid"),
    "irreversible": Word("Cannot be undone", "lock", "hi"),
}
# Waiting is not a status: it is said instead of the status of whatever is still open.
WAITING = {
    "approval": Word("Waiting for approval", "hand", "human"),
    "input": Word("Waiting for an answer", "hand", "human"),
    "outcome": Word("Outcome unknown", "hand", "human"),
    "calls": Word("Waiting for its calls", "clock", "run"),
    "retry": Word("Retrying", "retry", "warn"),
}
STATUSES = {
    "pending": Word("Not started", "pending", "idle"),
    "in_progress": Word("Running", "run", "run"),
    "running": Word("Running", "run", "run"),
    "created": Word("Running", "run", "run"),
    "ready": Word("About to run", "clock", "run"),
    "waiting": WAITING["approval"],
    "held": WAITING["approval"],
    "outcome_unknown": WAITING["outcome"],
    "completed": Word("Done", "ok", "ok"),
    "skipped": Word("Skipped", "skip", "idle"),
    "failed": Word("Failed", "fail", "danger"),
    "cancelled": Word("Cancelled", "stop", "idle"),
    "paused": Word("Paused", "pause", "idle"),
    "approved": Word("Approved", "check", "ok"),
    "consumed": Word("Approved and run", "ok", "ok"),
    "rejected": Word("Rejected", "fail", "danger"),
    "responded": Word("Answered", "reply", "ok"),
    "changes_requested": Word("Changes requested", "edit", "warn"),
    "expired": Word("Expired", "expired", "idle"),
    "withdrawn": Word("Withdrawn", "undo", "idle"),
    "revoked": Word("Revoked", "undo", "danger"),
    "invalidated": Word("No longer valid", "retry", "warn"),
    "superseded": Word("Replaced", "retry", "idle"),
    "enabled": Word("Enabled", "ok", "ok"),
    "disabled": Word("Disabled", "off", "idle"),
}
OPEN_STATUSES = frozenset(
    {"pending", "in_progress", "running", "created", "ready", "waiting", "held", "outcome_unknown"}
)


def status_word(status: str, waiting_for: str | None = None) -> Word:
    """Say a status; what is open and waits is said by what it waits for."""
    if waiting_for in WAITING and status in OPEN_STATUSES:
        return WAITING[waiting_for]
    return STATUSES.get(status) or Word(status.replace("_", " ").capitalize(), "info", "idle")


def safety_word(level: str) -> Word:
    """Say a safety level."""
    return SAFETY.get(level) or Word(level.capitalize(), "info", "dangerous")


def reversibility_word(reversibility: str) -> Word:
    """Say what it costs to take a call back; what nobody knows is said as the worst."""
    return REVERSIBILITY.get(reversibility) or REVERSIBILITY["irreversible"]


def say_ago(moment: datetime, now: datetime | None = None) -> str:
    """Say how long ago: just now, 48 s ago, 4 min ago, 2 h ago, yesterday, the date; clock.js agrees."""
    seconds = int(((now or clock.now()) - moment).total_seconds())
    if seconds < JUST_NOW_SECONDS:
        return "just now"
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit} ago"
    return "yesterday" if seconds < 2 * 86400 else say_date(moment)


def say_left(moment: datetime, now: datetime | None = None) -> str:
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


def say_date(moment: datetime) -> str:
    """Say the day: 20 Nov 2026."""
    utc = moment.astimezone(UTC)
    return f"{utc.day} {utc:%b %Y}"


def say_duration(milliseconds: float) -> str:
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


def say_span(seconds: int) -> str:
    """Say a configured duration in its largest whole unit: 24 h, 15 min, 90 s."""
    whole = ((size, unit) for size, unit in ((3600, "h"), (60, "min")) if seconds and seconds % size == 0)
    size, unit = next(whole, (1, "s"))
    return f"{seconds // size} {unit}"


def say_size(count: int) -> str:
    """Say a number of bytes: 588 bytes, 41 KB, 1.2 MB (1,024 bytes to the KB)."""
    if count < 1024:
        return f"{count} byte" if count == 1 else f"{count} bytes"
    size = count / 1024
    return f"{size:.0f} KB" if size < 1024 else f"{size / 1024:.1f} MB"


def say_initials(name: str) -> str:
    """Cut a name to two letters: Rosa Méndez is RM, planner is PL."""
    words = name.replace("-", " ").replace("_", " ").split()
    if not words:
        return "?"
    return (words[0][0] + words[1][0] if len(words) > 1 else words[0][:2]).upper()
