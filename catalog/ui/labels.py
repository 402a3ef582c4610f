"""Texts of statuses, safety levels, times, durations and sizes, common to all pages. No markup."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from catalog.core import clock
from catalog.text.formats import format_date, format_number

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


@dataclass(frozen=True)
class Badge:
    """A status or level for display: its text (translated when used), icon in the sprite and CSS class of its hue."""

    text: "StrOrPromise" = field(hash=False)
    icon: str
    hue: str

    @cached_property
    def label(self) -> str:
        """The text, translated once: a page of a large plan asks for hundreds."""
        return str(self.text)


JUST_NOW_SECONDS = 5
"""Shorter times are "just now", as in relative_time.js."""

SAFETY_BADGES = {
    "safe": Badge(_("Safe"), "safe", "safe"),
    "cautious": Badge(_("Cautious"), "cautious", "cautious"),
    "dangerous": Badge(_("Dangerous"), "dangerous", "dangerous"),
}
SAFETY_EFFECTS = {
    "safe": _("It only reads. Calls run at once."),
    "cautious": _("It changes something. Calls run without asking anyone."),
    "dangerous": _("Each call waits for a person."),
}
"""The meaning of each level and its effect on a call unless a policy decides otherwise."""
SCOPE_SENTENCES: dict[str, "StrOrPromise"] = {
    "tools:read": _("Read the tools of the catalog and their schemas."),
    "calls:create": _("Call tools, over REST and MCP. Dangerous calls still wait for approval."),
    "plans:read": _("Read plans, calls, sessions and their results."),
    "plans:write": _("Submit, start, change and cancel plans."),
    "approvals:read": _("Read requests for approval."),
    "approvals:decide": _("Approve and reject requests as you."),
    "catalog:write": _("Change tools, sources and agents."),
    "policies:write": _("Change policies and make grants."),
    "audit:read": _("Read and verify the audit log."),
    "permissions:ask": _("Ask before a coding agent runs its own tools, and report what ran."),
}
REVERSIBILITY_BADGES = {
    "reversible": Badge(_("Reversible"), "undoable", ""),
    "restorable": Badge(_("Restorable"), "undoable", "medium"),
    "irreversible": Badge(_("Cannot be undone"), "lock", "high"),
}
# Waiting is not a status: it is displayed in place of an open status.
WAITING_BADGES = {
    "approval": Badge(_("Waiting for approval"), "hand", "human"),
    "input": Badge(_("Waiting for an answer"), "hand", "human"),
    "outcome": Badge(_("Outcome unknown"), "hand", "human"),
    "calls": Badge(_("Waiting for its calls"), "clock", "run"),
    "retry": Badge(_("Retrying"), "retry", "warn"),
    "client": Badge(_("With its client"), "clock", "run"),
    "stop": Badge(_("Stopped"), "stop", "danger"),
}
STATUS_BADGES = {
    "pending": Badge(_("Not started"), "pending", "idle"),
    "in_progress": Badge(_("Running"), "run", "run"),
    "running": Badge(_("Running"), "run", "run"),
    "created": Badge(_("Running"), "run", "run"),
    "ready": Badge(_("About to run"), "clock", "run"),
    "waiting": WAITING_BADGES["approval"],
    "held": WAITING_BADGES["approval"],
    "outcome_unknown": WAITING_BADGES["outcome"],
    "completed": Badge(_("Done"), "ok", "ok"),
    "skipped": Badge(_("Skipped"), "skip", "idle"),
    "failed": Badge(_("Failed"), "fail", "danger"),
    "cancelled": Badge(_("Cancelled"), "stop", "idle"),
    "paused": Badge(_("Paused"), "pause", "idle"),
    "approved": Badge(_("Approved"), "check", "ok"),
    "consumed": Badge(_("Approved and started"), "ok", "ok"),
    "rejected": Badge(_("Rejected"), "fail", "danger"),
    "responded": Badge(_("Answered"), "reply", "ok"),
    "changes_requested": Badge(_("Changes requested"), "edit", "warn"),
    "expired": Badge(_("Expired"), "expired", "idle"),
    "withdrawn": Badge(_("Withdrawn"), "undo", "idle"),
    "revoked": Badge(_("Revoked"), "undo", "danger"),
    "invalidated": Badge(_("No longer valid"), "retry", "warn"),
    "superseded": Badge(_("Replaced"), "retry", "idle"),
    "enabled": Badge(_("Enabled"), "ok", "ok"),
    "disabled": Badge(_("Disabled"), "off", "idle"),
    "trial": Badge(_("On trial"), "clock", "warn"),
}
OPEN_STATUSES = frozenset(
    {"pending", "in_progress", "running", "created", "ready", "waiting", "held", "outcome_unknown"}
)


def status_badge(status: str, waiting_for: str | None = None) -> Badge:
    """Return the badge of a status. An open status with a `waiting_for` has the badge of what it waits for."""
    if waiting_for in WAITING_BADGES and status in OPEN_STATUSES:
        return WAITING_BADGES[waiting_for]
    return STATUS_BADGES.get(status) or Badge(status.replace("_", " ").capitalize(), "info", "idle")


def safety_badge(level: str) -> Badge:
    return SAFETY_BADGES.get(level) or Badge(level.capitalize(), "info", "dangerous")


def reversibility_badge(reversibility: str) -> Badge:
    """Return the badge of a reversibility. An unknown reversibility counts as irreversible."""
    return REVERSIBILITY_BADGES.get(reversibility) or REVERSIBILITY_BADGES["irreversible"]


def format_time_ago(moment: datetime, now: datetime | None = None) -> str:
    """Return the time since a moment: just now, 4 min ago, 2 h ago, yesterday, a date. Matches relative_time.js."""
    seconds = int(((now or clock.now()) - moment).total_seconds())
    if seconds < JUST_NOW_SECONDS:
        return gettext("just now")
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return gettext("%(time)s ago") % {"time": f"{seconds // size} {unit}"}
    return gettext("yesterday") if seconds < 2 * 86400 else format_date(moment)


def format_time_left(moment: datetime, now: datetime | None = None) -> str:
    """Return the time left until a moment, to the nearest unit. Matches relative_time.js.

    Rounded down, what is made for 7 days would have 6 left a moment later.
    """
    seconds = round((moment - (now or clock.now())).total_seconds())
    if seconds <= 0:
        return gettext("no time left")
    for limit, size, unit in ((60, 1, "s"), (60, 60, "min"), (48, 3600, "h")):
        count = (seconds + size // 2) // size
        if count < limit:
            return gettext("%(time)s left") % {"time": f"{count} {unit}"}
    days = (seconds + 43200) // 86400
    return ngettext("%(count)d day left", "%(count)d days left", days) % {"count": days}


def time_left_hue(moment: datetime, now: datetime | None = None) -> str:
    """Return the CSS class for the time left: amber under five minutes, red under one. Matches relative_time.js."""
    seconds = (moment - (now or clock.now())).total_seconds()
    return "t-danger" if seconds < 60 else "t-warn" if seconds < 300 else ""


def format_duration(milliseconds: float) -> str:
    """Return a duration such as 41 ms, 2.4 s, 12 s, 4 min 09 s or 2 h 05 min."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{format_number(seconds, 1)} s"
    minutes, rest = divmod(int(seconds), 60)
    if not minutes:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


NO_VALUE = "\N{EN DASH}"


def format_seconds(seconds: float | None) -> str:
    """Return a duration such as 12 s or 4 min 09 s, and an en dash for None."""
    return NO_VALUE if seconds is None else format_duration(seconds * 1000)


def format_share(share: float | None) -> str:
    """Return a share as 96 %, and an en dash for None. Only exactly 0 and 1 are 0 % and 100 %."""
    if share is None:
        return NO_VALUE
    return f"{share if share in (0, 1) else min(0.99, max(0.01, share)):.0%}".replace("%", " %")


def format_timespan(seconds: int) -> str:
    """Return a configured duration in the largest unit that gives a whole number: 3 days, 24 h, 15 min, 90 s."""
    if seconds > 86400 and seconds % 86400 == 0:
        return gettext("%(count)d days") % {"count": seconds // 86400}
    whole = ((size, unit) for size, unit in ((3600, "h"), (60, "min")) if seconds and seconds % size == 0)
    size, unit = next(whole, (1, "s"))
    return f"{seconds // size} {unit}"


def format_byte_size(count: int) -> str:
    """Return a number of bytes, with 1,024 bytes to the KB: 588 bytes, 41 KB, 1.2 MB."""
    if count < 1024:
        return ngettext("%(count)d byte", "%(count)d bytes", count) % {"count": count}
    size = count / 1024
    return f"{size:.0f} KB" if size < 1024 else f"{format_number(size / 1024, 1)} MB"


def name_initials(name: str) -> str:
    """Return the initials of a name: Rosa Méndez is RM, planner is PL."""
    words = name.replace("-", " ").replace("_", " ").split()
    if not words:
        return "?"
    return (words[0][0] + words[1][0] if len(words) > 1 else words[0][:2]).upper()
