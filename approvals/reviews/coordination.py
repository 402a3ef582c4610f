"""Coordination of reviewers around a request: claims, snoozes, delegations and comments.

Nothing here decides a request. A claim is a lease shown to others; it prevents nobody from deciding. On a restored
database each change raises RestoredDatabase, since the requests may have been answered since.
"""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from approvals.audit.restore_guard import refuse_to_begin
from approvals.models import ApprovalRequest, Comment, Delegation, Snooze
from approvals.policies.eligibility import decided_for, may_decide, who_may
from approvals.policies.rulebook import rule_for
from approvals.requests.deadlines import expire_if_due
from approvals.requests.lifecycle import check_text, locked
from approvals.requests.queries import status_sentence
from approvals.states import RequestStatus
from catalog.access.roles import NotAllowed, agent_token_of, name_of
from catalog.core import clock
from catalog.core.canonical_json import time_text
from catalog.core.transactions import retried
from catalog.errors import Conflict, field_error
from catalog.secrets.placeholders import scrub_words
from catalog.signals import announce, record
from catalog.ui.labels import say_left

CLAIM_SECONDS = 15 * 60
EXTENSION = timedelta(minutes=30)
LAST_STRETCH = timedelta(hours=1)
"""A request is given more time only when so much is left, and only so often (WCAG 2.2.1 asks for ten times)."""
MOST_EXTENSIONS = 10
MOST_COMMENTS = 500
"""In one thread: an agent that writes on and on fills no database."""


def claim(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Look after a request for a quarter of an hour, again and again if need be; return it as it is then.

    Raises NotAllowed for who may not decide it, Conflict when it is answered or someone else's.
    """
    refuse_to_begin()
    _see_that_time_is_left(request)
    return _claim(request, by)


@retried
def _claim(request: ApprovalRequest, by: User) -> ApprovalRequest:
    with transaction.atomic():
        current = _waiting(request)
        _see_that_they_may(current, by)
        now = clock.now()
        until = min(now + timedelta(seconds=CLAIM_SECONDS), current.expires_at)
        free = Q(claimed_by=None) | Q(claimed_by=by) | Q(claimed_until__lte=now)
        if not _rows(current).filter(free).update(claimed_by=by, claimed_until=until):
            raise Conflict(taken_sentence(current, now))
        record("approval.claimed", call=current.call, by=by, approval=current.public_id, until=time_text(until))
        return _as_it_is(current)


@retried
def release(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Give one's claim back. Raises Conflict when it is not one's own (any more)."""
    refuse_to_begin()
    with transaction.atomic():
        current = locked(request)
        if not _rows(current).filter(claimed_by=by).update(claimed_by=None, claimed_until=None):
            now = clock.now()
            whose = taken_sentence(current, now) if holder_of(current, now) else "Nobody has claimed this."
            raise Conflict(f"You have not claimed this. {whose}")
        record("approval.released", call=current.call, by=by, approval=current.public_id)
        return _as_it_is(current)


def extend(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Give a request that will soon expire half an hour more, at most ten times; return it as it is then.

    Raises NotAllowed for who may not decide it, Conflict when it is answered, has time left, or had enough of it.
    """
    refuse_to_begin()
    _see_that_time_is_left(request)
    return _extend(request, by)


@retried
def _extend(request: ApprovalRequest, by: User) -> ApprovalRequest:
    with transaction.atomic():
        current, now = _waiting(request), clock.now()
        _see_that_they_may(current, by)
        if (why_not := why_not_extended(current, now)) is not None:
            raise Conflict(why_not)
        until, number = current.expires_at + EXTENSION, current.extensions + 1
        ending = _rows(current).filter(expires_at=current.expires_at, expires_at__gt=now)
        if not ending.update(expires_at=until, extensions=number):
            raise Conflict("Nobody answered this in time: it has expired.")
        told = {"approval": current.public_id, "expires_at": time_text(until), "number": number}
        record("approval.extended", call=current.call, by=by, **told)
        return _as_it_is(current)


def why_not_extended(request: ApprovalRequest, now: datetime) -> str | None:
    """Return why a request that waits is not given more time now; None when it can be."""
    if request.extensions >= MOST_EXTENSIONS:
        return f"This was extended {MOST_EXTENSIONS} times already: decide it, or let it expire and be asked for again."
    if request.expires_at - now > LAST_STRETCH:
        return f"There is time: this can be extended from {time_text(request.expires_at - LAST_STRETCH)} on."
    return None


def holder_of(request: ApprovalRequest, now: datetime) -> "User | None":
    """Return who looks after the request; None when nobody does, or their time is over."""
    is_on = request.claimed_until is not None and request.claimed_until > now
    return request.claimed_by if is_on else None


def taken_sentence(request: ApprovalRequest, now: datetime) -> str:
    """Say who has claimed the request and for how long still, of one that somebody has."""
    holder, until = request.claimed_by, request.claimed_until
    if holder is None or until is None:
        return "Nobody has claimed this."
    return f"{name_of(holder)} has claimed this, {say_left(until, now)}. You may decide it all the same."


def snooze(request: ApprovalRequest, *, by: User, until: datetime) -> ApprovalRequest:
    """Keep a request out of one's own lists until a time before it expires; nobody else's list changes.

    Raises ParameterError for another time, Conflict when it waits no longer, NotAllowed for agents' tokens.
    """
    refuse_to_begin()
    if agent_token_of(by) is not None:
        raise NotAllowed("Agents' tokens have no list to keep a request out of.")
    _see_that_time_is_left(request)
    now = clock.now()
    if not now < until <= request.expires_at:
        raise field_error(
            "until", "invalid", f"Name a time from now until the request expires, at {time_text(request.expires_at)}."
        )
    return _snooze(request, by, until)


@retried
def _snooze(request: ApprovalRequest, by: User, until: datetime) -> ApprovalRequest:
    with transaction.atomic():
        current = _waiting(request)
        Snooze.objects.update_or_create(request=current, person=by, defaults={"until": until})
        record("approval.snoozed", call=current.call, by=by, approval=current.public_id, until=time_text(until))
        return current


def wake(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Take a request back into one's lists; it may have been there all along."""
    refuse_to_begin()
    Snooze.objects.filter(request=request, person=by).delete()
    return request


def delegate(request: ApprovalRequest, *, by: User, to: "User | None") -> ApprovalRequest:
    """Ask someone who may decide a request to answer it in one's place; None or oneself takes that back.

    Raises NotAllowed for who may not decide it by their own right, ParameterError for someone who may not decide it,
    Conflict when it is answered, or there is nothing to take back.
    """
    refuse_to_begin()
    _see_that_time_is_left(request)
    return _take_back(request, by) if to is None or to.pk == by.pk else _delegate(request, by, to)


@retried
def _delegate(request: ApprovalRequest, by: User, to: User) -> ApprovalRequest:
    with transaction.atomic():
        current = _waiting(request)
        _see_that_they_may(current, by)
        giver = decided_for(current, by)
        if giver is not None:
            raise NotAllowed(f"You may decide this in the place of {name_of(giver)}, who alone can hand it on.")
        _see_that_it_helps(current, to)
        Delegation.objects.update_or_create(request=current, by=by, defaults={"to": to, "at": clock.now()})
        _rows(current).filter(claimed_by=by).update(claimed_by=None, claimed_until=None)
        record("approval.delegated", call=current.call, by=by, approval=current.public_id, to=to.get_username())
        return _as_it_is(current)


def _see_that_it_helps(current: ApprovalRequest, to: User) -> None:
    """Raise ParameterError when this person may not decide it: a delegation hands on work, never a right."""
    if may_decide(current, to) is not None:
        may = who_may(rule_for(current))
        raise field_error("to", "invalid", f"{name_of(to)} may not decide this request. {may} Name someone who may.")


@retried
def _take_back(request: ApprovalRequest, by: User) -> ApprovalRequest:
    with transaction.atomic():
        current = _waiting(request)
        given = Delegation.objects.filter(request=current, by=by)
        if not given.delete()[0]:
            raise Conflict("You have not asked anyone to answer this in your place.")
        record("approval.delegated", call=current.call, by=by, approval=current.public_id, to=None)
        return _as_it_is(current)


def comment(request: ApprovalRequest, *, by: User, text: str) -> Comment:
    """Say something in the thread of a request that one may see; that is the caller's to check. It decides nothing.

    Known shapes of secrets are cut out of it.
    Raises ParameterError for a text that is blank, too long or cannot be stored, Conflict when the thread is full.
    """
    refuse_to_begin()
    _check_text(text)
    return _comment(request, by, scrub_words(text))


@retried
def _comment(request: ApprovalRequest, by: User, text: str) -> Comment:
    with transaction.atomic():
        announce(request.call)
        if Comment.objects.filter(request=request).count() >= MOST_COMMENTS:
            raise Conflict(f"This thread has {MOST_COMMENTS} comments, and takes no more.")
        is_agent = agent_token_of(by) is not None
        said = Comment.objects.create(request=request, person=by, is_agent=is_agent, text=text, at=clock.now())
        record("approval.commented", call=request.call, by=by, approval=request.public_id, is_agent=is_agent)
        return said


def _check_text(text: str) -> None:
    if not text.strip():
        raise field_error("text", "required", "Say something, or send nothing.")
    check_text(text, "text")


def _see_that_time_is_left(request: ApprovalRequest) -> None:
    if expire_if_due(request, clock.now()):
        raise Conflict("Nobody answered this in time: it has expired.")


def _waiting(request: ApprovalRequest) -> ApprovalRequest:
    """Return the request locked, as it is now. Raises Conflict when it waits for nobody any more."""
    current = locked(request)
    if current.status != RequestStatus.PENDING:
        raise Conflict(status_sentence(current))
    return current


def _see_that_they_may(current: ApprovalRequest, by: User) -> None:
    why_not = may_decide(current, by)
    if why_not is not None:
        raise NotAllowed(why_not)


def _rows(current: ApprovalRequest) -> "QuerySet[ApprovalRequest]":
    return ApprovalRequest.objects.filter(pk=current.pk, status=RequestStatus.PENDING)


def _as_it_is(current: ApprovalRequest) -> ApprovalRequest:
    current.refresh_from_db()
    return current
