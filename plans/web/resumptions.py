"""Deferred calls as pages show them: who resumes the session of a call, since when, and how that ended."""

from dataclasses import dataclass

from django.utils.translation import gettext, gettext_lazy

from catalog.core import clock
from catalog.models import ClientRun
from catalog.states import CallStatus
from catalog.ui.labels import Badge

RESUMING = Badge(gettext_lazy("Being resumed"), "play", "run")
LEASE_RAN_OUT = Badge(gettext_lazy("The lease of the runner ran out"), "expired", "warn")
WITH_CLIENT = Badge(gettext_lazy("Asleep until the decision"), "clock", "human")
WAITS_FOR_RUNNER = Badge(gettext_lazy("Waits to be resumed"), "clock", "warn")
FAILED = Badge(gettext_lazy("Could not be resumed yet"), "retry", "warn")
ENDINGS = {
    "ran": Badge(gettext_lazy("Resumed; it ran"), "ok", "ok"),
    "unknown": Badge(gettext_lazy("Resumed; its end was not reported"), "hand", "human"),
    "told": Badge(gettext_lazy("Resumed; it got the refusal"), "ok", "idle"),
    "not_asked": Badge(gettext_lazy("Resumed; it did not ask again"), "fail", "danger"),
    "given_up": Badge(gettext_lazy("Given up: it could not be resumed"), "fail", "danger"),
    "session_gone": Badge(gettext_lazy("The client no longer knows the session"), "fail", "danger"),
    "superseded": Badge(gettext_lazy("Replaced by a later call of its session"), "skip", "idle"),
}
DELIVERED = Badge(gettext_lazy("Got the decision"), "ok", "ok")


@dataclass(frozen=True, slots=True)
class Resumption:
    """The state of a deferred call's session, and the exit code of its last process in words."""

    run: ClientRun
    word: Badge
    exit_text: str


def resumption_of(run: ClientRun) -> Resumption | None:
    """Return how far the session of a deferred call is; None for a call that was not deferred."""
    if run.deferred_at is None:
        return None
    return Resumption(run, _word_of(run), _exit_text(run))


def _word_of(run: ClientRun) -> Badge:
    if run.resume_lease_until is not None:
        return RESUMING if run.resume_lease_until > clock.now() else LEASE_RAN_OUT
    if run.resume_outcome:
        return ENDINGS[run.resume_outcome]
    if run.resumed_at is not None:
        return DELIVERED
    if run.call.status == CallStatus.HELD:
        return WITH_CLIENT
    return FAILED if run.resume_ended_at is not None else WAITS_FOR_RUNNER


def _exit_text(run: ClientRun) -> str:
    code = run.resume_exit_code
    if run.resume_ended_at is None or code is None:
        return ""
    if code < 0:
        return gettext("Signal %(number)s ended the process.") % {"number": -code}
    return gettext("The process ended with exit code %(code)s.") % {"code": code}
