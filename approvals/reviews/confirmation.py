"""What a policy asks of a person before an approval on a page counts: to look long enough, to type, to sign in anew.

It is about reflexes, not about rights: who may decide is judged by `approvals.policies.eligibility` on every channel. A
fresh sign-in is asked of every session, over REST too; tokens have none.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from django.contrib.auth.models import User
from django.core import signing

from approvals.models import ApprovalRequest
from catalog.access.roles import is_session_user, signed_in_at
from catalog.core import clock
from catalog.errors import ParameterError, field_error
from catalog.ui.labels import format_timespan

SALT = "toolgate.friction"
MAX_TARGET_LENGTH = 60
INDIVIDUAL_REVIEW_REQUIRED = "Its policy asks for a closer look: open it by itself."


class ConfirmationTerms(Protocol):
    """What of a rule, or of a policy's revision, says what approving takes."""

    @property
    def typed_target(self) -> bool:
        """Whether what the call is about must be typed."""

    @property
    def min_review_seconds(self) -> int:
        """How long it must have been looked at."""

    @property
    def fresh_sign_in_seconds(self) -> int:
        """How old the sign-in may be; 0 for any age."""


def requires_individual_review(terms: ConfirmationTerms) -> bool:
    """Say whether what these terms hold is approved one by one only, on its own page."""
    return bool(terms.typed_target or terms.min_review_seconds or terms.fresh_sign_in_seconds)


@dataclass(frozen=True, slots=True)
class ConfirmationRequirements:
    """What approving takes here: what must be typed, seconds to look, whether to sign in again first; nothing is "".

    `since` says, signed, when this person was first shown what is asked now.
    """

    target: str = ""
    wait_seconds: int = 0
    needs_sign_in: bool = False
    since: str = ""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a form sent of it."""

    typed: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalSubject:
    """What is approved: whose terms hold it, and what it is about."""

    terms: ConfirmationTerms
    target: str


def confirmation_requirements(
    request: ApprovalRequest, viewer: User, subject: ApprovalSubject, confirmation: Confirmation | None = None
) -> ConfirmationRequirements:
    """Return what is asked of a viewer who approves: by the rule of the request, or of what they make of it."""
    terms, since = subject.terms, confirmation.since if confirmation else ""
    shown_at = _first_shown_at(request, viewer, since)
    if shown_at is None:
        shown_at, since = clock.now(), _sign_first_shown(request, viewer)
    waited = (clock.now() - shown_at).total_seconds()
    return ConfirmationRequirements(
        target=_last_segment(subject.target, request.call.tool_name) if terms.typed_target else "",
        wait_seconds=max(0, round(terms.min_review_seconds - waited)) if terms.min_review_seconds else 0,
        needs_sign_in=_is_sign_in_stale(terms, viewer),
        since=since if terms.min_review_seconds else "",
    )


def check_confirmation(
    request: ApprovalRequest, viewer: User, subject: ApprovalSubject, confirmation: Confirmation
) -> None:
    """Raise ParameterError when an approval lacks what the rule asks of the person."""
    asked = confirmation_requirements(request, viewer, subject, confirmation)
    if asked.needs_sign_in:
        raise _stale_sign_in_error(subject.terms)
    if asked.wait_seconds:
        raise field_error(
            "review", "too_soon", f"Look at it for {asked.wait_seconds} s more: the policy asks for that."
        )
    if confirmation.typed.strip() != asked.target:
        raise field_error("typed", "mismatch", f"Type {asked.target} to approve: that is what the call is about.")


def check_sign_in_age(terms: ConfirmationTerms, by: User) -> None:
    """Raise ParameterError when someone approves through a session that was signed in too long ago."""
    if is_session_user(by) and _is_sign_in_stale(terms, by):
        raise _stale_sign_in_error(terms)


def _stale_sign_in_error(terms: ConfirmationTerms) -> ParameterError:
    span = format_timespan(terms.fresh_sign_in_seconds)
    words = f"Approving this takes a sign-in of the last {span}. Sign in again, then approve."
    return field_error("sign_in", "stale", words)


def _is_sign_in_stale(terms: ConfirmationTerms, viewer: User) -> bool:
    if not terms.fresh_sign_in_seconds:
        return False
    at = signed_in_at(viewer)
    return at is None or at < clock.now() - timedelta(seconds=terms.fresh_sign_in_seconds)


def _last_segment(target: str, tool_name: str) -> str:
    """Return the end of a path or address, if it can be typed; the tool's name where it cannot."""
    last = target.rstrip("/").rpartition("/")[2].strip()
    return last if last.isascii() and last.isprintable() and 0 < len(last) <= MAX_TARGET_LENGTH else tool_name


def _sign_first_shown(request: ApprovalRequest, viewer: User) -> str:
    return signing.dumps([request.digest, viewer.pk, clock.now().timestamp()], salt=SALT)


def _first_shown_at(request: ApprovalRequest, viewer: User, since: str) -> datetime | None:
    """Return when what is asked now was first shown to this person; None when the form does not prove it."""
    try:
        digest, pk, at = signing.loads(since, salt=SALT)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    known = digest == request.digest and pk == viewer.pk
    return datetime.fromtimestamp(at, tz=clock.now().tzinfo) if known else None
