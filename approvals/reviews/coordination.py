"""Coordination of reviewers around a request: claims, snoozes, delegations and comments.

Nothing here decides a request. A claim is a lease shown to others; it prevents nobody from deciding. On a restored
database each change raises RestoredDatabase, since the requests may have been answered since.
"""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from approvals.audit.restore_guard import ensure_not_restored
from approvals.models import ApprovalRequest, Comment, Delegation, Snooze
from approvals.policies.eligibility import deciders_sentence, delegator_of, may_decide
from approvals.policies.rulebook import rule_for
from approvals.requests.deadlines import expire_if_due
from approvals.requests.lifecycle import check_text, lock_request
from approvals.requests.queries import status_sentence
from approvals.states import RequestStatus
from catalog.access.roles import NotAllowed, agent_token_of, user_display_name
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import retry_on_deadlock
from catalog.errors import Conflict, field_error
from catalog.secrets.placeholders import redact_text
from catalog.signals import announce_call_change, record_fact
from catalog.ui.labels import format_time_left

CLAIM_SECONDS = 15 * 60
EXTENSION = timedelta(minutes=30)
EXTENDABLE_TIME = timedelta(hours=1)
"""A request is given more time only when so much is left, and only so often (WCAG 2.2.1 asks for ten times)."""
MAX_EXTENSIONS = 10
MAX_COMMENTS = 500
"""In one thread: an agent that writes on and on fills no database."""


def claim(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Look after a request for a quarter of an hour, again and again if need be; return it as it is then.

    Raises NotAllowed for who may not decide it, Conflict when it is answered or someone else's.
    """
    ensure_not_restored()
    _check_not_expired(request)
    return _claim(request, by)


@retry_on_deadlock
def _claim(request: ApprovalRequest, by: User) -> ApprovalRequest:
    with transaction.atomic():
        current = _lock_pending(request)
        _check_may_decide(current, by)
        now = clock.now()
        until = min(now + timedelta(seconds=CLAIM_SECONDS), current.expires_at)
        free = Q(claimed_by=None) | Q(claimed_by=by) | Q(claimed_until__lte=now)
        if not _pending_row(current).filter(free).update(claimed_by=by, claimed_until=until):
            raise Conflict(claim_sentence(current, now))
        record_fact("approval.claimed", call=current.call, by=by, approval=current.public_id, until=format_utc(until))
        return _reload(current)


@retry_on_deadlock
def release(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Give one's claim back. Raises Conflict when it is not one's own (any more)."""
    ensure_not_restored()
    with transaction.atomic():
        current = lock_request(request)
        if not _pending_row(current).filter(claimed_by=by).update(claimed_by=None, claimed_until=None):
            now = clock.now()
            whose = claim_sentence(current, now) if claimant_of(current, now) else "Nobody has claimed this."
            raise Conflict(f"You have not claimed this. {whose}")
        record_fact("approval.released", call=current.call, by=by, approval=current.public_id)
        return _reload(current)


def extend(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Give a request that will soon expire half an hour more, at most ten times; return it as it is then.

    Raises NotAllowed for who may not decide it, Conflict when it is answered, has time left, or had enough of it.
    """
    ensure_not_restored()
    _check_not_expired(request)
    return _extend(request, by)


@retry_on_deadlock
def _extend(request: ApprovalRequest, by: User) -> ApprovalRequest:
    with transaction.atomic():
        current, now = _lock_pending(request), clock.now()
        _check_may_decide(current, by)
        if (why_not := extension_objection(current, now)) is not None:
            raise Conflict(why_not)
        until, number = current.expires_at + EXTENSION, current.extensions + 1
        ending = _pending_row(current).filter(expires_at=current.expires_at, expires_at__gt=now)
        if not ending.update(expires_at=until, extensions=number):
            raise Conflict("Nobody answered this in time: it has expired.")
        told = {"approval": current.public_id, "expires_at": format_utc(until), "number": number}
        record_fact("approval.extended", call=current.call, by=by, **told)
        return _reload(current)


def extension_objection(request: ApprovalRequest, now: datetime) -> str | None:
    """Return why a request that waits is not given more time now; None when it can be."""
    if request.extensions >= MAX_EXTENSIONS:
        return f"This was extended {MAX_EXTENSIONS} times already: decide it, or let it expire and be asked for again."
    if request.expires_at - now > EXTENDABLE_TIME:
        return f"There is time: this can be extended from {format_utc(request.expires_at - EXTENDABLE_TIME)} on."
    return None


def claimant_of(request: ApprovalRequest, now: datetime) -> "User | None":
    """Return who looks after the request; None when nobody does, or their time is over."""
    is_on = request.claimed_until is not None and request.claimed_until > now
    return request.claimed_by if is_on else None


def claim_sentence(request: ApprovalRequest, now: datetime) -> str:
    """Say who has claimed the request and for how long still, of one that somebody has."""
    holder, until = request.claimed_by, request.claimed_until
    if holder is None or until is None:
        return "Nobody has claimed this."
    return (
        f"{user_display_name(holder)} has claimed this, {format_time_left(until, now)}. You may decide it all the same."
    )


def snooze(request: ApprovalRequest, *, by: User, until: datetime) -> ApprovalRequest:
    """Keep a request out of one's own lists until a time before it expires; nobody else's list changes.

    Raises ParameterError for another time, Conflict when it waits no longer, NotAllowed for agents' tokens.
    """
    ensure_not_restored()
    if agent_token_of(by) is not None:
        raise NotAllowed("Agents' tokens have no list to keep a request out of.")
    _check_not_expired(request)
    now = clock.now()
    if not now < until <= request.expires_at:
        raise field_error(
            "until", "invalid", f"Name a time from now until the request expires, at {format_utc(request.expires_at)}."
        )
    return _snooze(request, by, until)


@retry_on_deadlock
def _snooze(request: ApprovalRequest, by: User, until: datetime) -> ApprovalRequest:
    with transaction.atomic():
        current = _lock_pending(request)
        Snooze.objects.update_or_create(request=current, person=by, defaults={"until": until})
        record_fact("approval.snoozed", call=current.call, by=by, approval=current.public_id, until=format_utc(until))
        return current


def unsnooze(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Take a request back into one's lists; it may have been there all along."""
    ensure_not_restored()
    Snooze.objects.filter(request=request, person=by).delete()
    return request


def delegate(request: ApprovalRequest, *, by: User, to: "User | None") -> ApprovalRequest:
    """Ask someone who may decide a request to answer it in one's place; None or oneself takes that back.

    Raises NotAllowed for who may not decide it by their own right, ParameterError for someone who may not decide it,
    Conflict when it is answered, or there is nothing to take back.
    """
    ensure_not_restored()
    _check_not_expired(request)
    return _end_delegation(request, by) if to is None or to.pk == by.pk else _delegate(request, by, to)


@retry_on_deadlock
def _delegate(request: ApprovalRequest, by: User, to: User) -> ApprovalRequest:
    with transaction.atomic():
        current = _lock_pending(request)
        _check_may_decide(current, by)
        giver = delegator_of(current, by)
        if giver is not None:
            raise NotAllowed(
                f"You may decide this in the place of {user_display_name(giver)}, who alone can hand it on."
            )
        _check_delegate(current, to)
        Delegation.objects.update_or_create(request=current, by=by, defaults={"to": to, "at": clock.now()})
        _pending_row(current).filter(claimed_by=by).update(claimed_by=None, claimed_until=None)
        record_fact("approval.delegated", call=current.call, by=by, approval=current.public_id, to=to.get_username())
        return _reload(current)


def _check_delegate(current: ApprovalRequest, to: User) -> None:
    """Raise ParameterError when this person may not decide it: a delegation hands on work, never a right."""
    if may_decide(current, to) is not None:
        may = deciders_sentence(rule_for(current))
        raise field_error(
            "to", "invalid", f"{user_display_name(to)} may not decide this request. {may} Name someone who may."
        )


@retry_on_deadlock
def _end_delegation(request: ApprovalRequest, by: User) -> ApprovalRequest:
    with transaction.atomic():
        current = _lock_pending(request)
        given = Delegation.objects.filter(request=current, by=by)
        if not given.delete()[0]:
            raise Conflict("You have not asked anyone to answer this in your place.")
        record_fact("approval.delegated", call=current.call, by=by, approval=current.public_id, to=None)
        return _reload(current)


def comment(request: ApprovalRequest, *, by: User, text: str) -> Comment:
    """Say something in the thread of a request that one may see; that is the caller's to check. It decides nothing.

    Known shapes of secrets are cut out of it.
    Raises ParameterError for a text that is blank, too long or cannot be stored, Conflict when the thread is full.
    """
    ensure_not_restored()
    _check_text(text)
    return _comment(request, by, redact_text(text))


@retry_on_deadlock
def _comment(request: ApprovalRequest, by: User, text: str) -> Comment:
    with transaction.atomic():
        announce_call_change(request.call)
        if Comment.objects.filter(request=request).count() >= MAX_COMMENTS:
            raise Conflict(f"This thread has {MAX_COMMENTS} comments, and takes no more.")
        is_agent = agent_token_of(by) is not None
        said = Comment.objects.create(request=request, person=by, is_agent=is_agent, text=text, at=clock.now())
        record_fact("approval.commented", call=request.call, by=by, approval=request.public_id, is_agent=is_agent)
        return said


def _check_text(text: str) -> None:
    if not text.strip():
        raise field_error("text", "required", "Say something, or send nothing.")
    check_text(text, "text")


def _check_not_expired(request: ApprovalRequest) -> None:
    if expire_if_due(request, clock.now()):
        raise Conflict("Nobody answered this in time: it has expired.")


def _lock_pending(request: ApprovalRequest) -> ApprovalRequest:
    """Return the request locked, as it is now. Raises Conflict when it waits for nobody any more."""
    current = lock_request(request)
    if current.status != RequestStatus.PENDING:
        raise Conflict(status_sentence(current))
    return current


def _check_may_decide(current: ApprovalRequest, by: User) -> None:
    why_not = may_decide(current, by)
    if why_not is not None:
        raise NotAllowed(why_not)


def _pending_row(current: ApprovalRequest) -> "QuerySet[ApprovalRequest]":
    return ApprovalRequest.objects.filter(pk=current.pk, status=RequestStatus.PENDING)


def _reload(current: ApprovalRequest) -> ApprovalRequest:
    current.refresh_from_db()
    return current
