"""Confirmations that a policy can require before an approval: minimum review time, typed target, fresh sign-in.

A fresh sign-in is required of every session, also over REST. Tokens are exempt, since they have no sign-in.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.core import signing

from approvals.models import ApprovalRequest, PolicyRevision
from approvals.policies.rulebook import Rule
from catalog.access.passkeys import has_passkey
from catalog.access.roles import is_session_user, signed_in_at
from catalog.core import clock
from catalog.errors import ParameterError, field_error
from catalog.ui.labels import format_timespan

SALT = "toolgate.friction"
MAX_TARGET_LENGTH = 60
ConfirmationTerms = Rule | PolicyRevision
"""Types whose attributes state the confirmations that a policy requires."""
INDIVIDUAL_REVIEW_REQUIRED = "Its policy requires individual review: open the request to decide it."


def requires_individual_review(terms: ConfirmationTerms) -> bool:
    """Return True if calls under these terms can only be approved individually, on the request's page."""
    return bool(terms.typed_target or terms.min_review_seconds or terms.fresh_sign_in_seconds or terms.fresh_passkey)


@dataclass(frozen=True, slots=True)
class ConfirmationRequirements:
    """Confirmations that are missing: the target to type (or ""), seconds to wait, a fresh sign-in, a signature.

    `since` is a signed token of the time at which this reviewer was first shown the current round.
    """

    target: str = ""
    wait_seconds: int = 0
    needs_sign_in: bool = False
    needs_passkey: bool = False
    has_passkey: bool = False
    since: str = ""


@dataclass(frozen=True, slots=True)
class Confirmation:
    typed: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalSubject:
    terms: ConfirmationTerms
    target: str


def confirmation_requirements(
    request: ApprovalRequest, viewer: User, subject: ApprovalSubject, confirmation: Confirmation | None = None
) -> ConfirmationRequirements:
    """Return the confirmations that are still missing before the viewer can approve `subject`."""
    terms, since = subject.terms, confirmation.since if confirmation else ""
    first_seen = _first_seen_at(request, viewer, since)
    if first_seen is None:
        first_seen, since = clock.now(), signing.dumps([request.digest, viewer.pk, clock.now().timestamp()], salt=SALT)
    waited = (clock.now() - first_seen).total_seconds()
    target = ""
    if terms.typed_target:
        # The last segment of a path or URL if it can be typed, otherwise the tool's name.
        last = subject.target.rstrip("/").rpartition("/")[2].strip()
        can_be_typed = last.isascii() and last.isprintable() and 0 < len(last) <= MAX_TARGET_LENGTH
        target = last if can_be_typed else request.call.tool_name
    return ConfirmationRequirements(
        target=target,
        wait_seconds=max(0, round(terms.min_review_seconds - waited)) if terms.min_review_seconds else 0,
        needs_sign_in=_is_sign_in_stale(terms, viewer),
        needs_passkey=terms.fresh_passkey,
        has_passkey=terms.fresh_passkey and has_passkey(viewer),
        since=since if terms.min_review_seconds else "",
    )


def check_confirmation(
    request: ApprovalRequest, viewer: User, subject: ApprovalSubject, confirmation: Confirmation
) -> None:
    """Raise ParameterError if an approval lacks a required confirmation."""
    required = confirmation_requirements(request, viewer, subject, confirmation)
    if required.needs_sign_in:
        raise _stale_sign_in_error(subject.terms)
    if required.wait_seconds:
        raise field_error(
            "review", "too_soon", f"The policy requires a longer review: wait {required.wait_seconds} s more."
        )
    if confirmation.typed.strip() != required.target:
        raise field_error("typed", "mismatch", f"Type {required.target}, the target of the call, to approve.")


def check_sign_in_age(terms: ConfirmationTerms, by: User) -> None:
    """Raise ParameterError if `by` approves in a session whose sign-in is too old."""
    if is_session_user(by) and _is_sign_in_stale(terms, by):
        raise _stale_sign_in_error(terms)


def _stale_sign_in_error(terms: ConfirmationTerms) -> ParameterError:
    span = format_timespan(terms.fresh_sign_in_seconds)
    words = f"Approving this requires a sign-in within the last {span}. Sign in again, then approve."
    return field_error("sign_in", "stale", words)


def _is_sign_in_stale(terms: ConfirmationTerms, viewer: User) -> bool:
    if not terms.fresh_sign_in_seconds:
        return False
    at = signed_in_at(viewer)
    return at is None or at < clock.now() - timedelta(seconds=terms.fresh_sign_in_seconds)


def _first_seen_at(request: ApprovalRequest, viewer: User, since: str) -> datetime | None:
    """Return the time at which this reviewer was first shown the current round; None without a valid token."""
    try:
        digest, pk, at = signing.loads(since, salt=SALT)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    known = digest == request.digest and pk == viewer.pk
    return datetime.fromtimestamp(at, tz=clock.now().tzinfo) if known else None
