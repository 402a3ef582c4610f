"""Claims, snoozes, delegations and comments of reviewers. A claim prevents nobody from deciding."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest, Comment, Delegation, Snooze
from approvals.policies.eligibility import check_may_decide, deciders_sentence, delegator_of, may_decide
from approvals.policies.rulebook import rule_for
from approvals.requests.deadlines import check_not_expired
from approvals.requests.lifecycle import check_text, lock_pending, lock_request
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
MAX_COMMENTS = 500
"""Maximum number of comments on one request, so that an agent cannot fill the database."""


UNCLAIMED = "Nobody has claimed this."


@retry_on_deadlock
def claim(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Claim a request for 15 minutes, or renew one's own claim. Raises NotAllowed and Conflict."""
    check_not_expired(request)
    with transaction.atomic():
        current = lock_pending(request)
        check_may_decide(current, by)
        now = clock.now()
        until = min(now + timedelta(seconds=CLAIM_SECONDS), current.expires_at)
        free = Q(claimed_by=None) | Q(claimed_by=by) | Q(claimed_until__lte=now)
        if not _pending_row(current).filter(free).update(claimed_by=by, claimed_until=until):
            raise Conflict(claim_sentence(current, now))
        record_fact("approval.claimed", call=current.call, by=by, approval=current.public_id, until=format_utc(until))
        return _reload(current)


@retry_on_deadlock
def release(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Release one's own claim. Raises Conflict if the request is not claimed by `by`."""
    with transaction.atomic():
        current = lock_request(request)
        if not _pending_row(current).filter(claimed_by=by).update(claimed_by=None, claimed_until=None):
            now = clock.now()
            whose = claim_sentence(current, now) if claimant_of(current, now) else UNCLAIMED
            raise Conflict(f"You have not claimed this. {whose}")
        record_fact("approval.released", call=current.call, by=by, approval=current.public_id)
        return _reload(current)


def on_access_ended(sender: object, *, person: User, by: User, **kwargs: Any) -> None:
    """Release a person's claims, in transactions of their own after the change: it holds the audit log's lock."""
    transaction.on_commit(partial(_release_claims, person, by))


def _release_claims(person: User, by: User) -> None:
    for request in ApprovalRequest.objects.filter(claimed_by=person, status=RequestStatus.PENDING):
        _release_claim_of(request, person, by)


@retry_on_deadlock
def _release_claim_of(request: ApprovalRequest, person: User, by: User) -> None:
    with transaction.atomic():
        current = lock_request(request)
        if _pending_row(current).filter(claimed_by=person).update(claimed_by=None, claimed_until=None):
            record_fact("approval.released", call=current.call, by=by, approval=current.public_id)


def claimant_of(request: ApprovalRequest, now: datetime) -> "User | None":
    """Return the user who has claimed the request; None if it is unclaimed or the claim has lapsed."""
    is_on = request.claimed_until is not None and request.claimed_until > now
    return request.claimed_by if is_on else None


def claim_sentence(request: ApprovalRequest, now: datetime) -> str:
    holder, until = request.claimed_by, request.claimed_until
    if holder is None or until is None:
        return UNCLAIMED
    return f"{user_display_name(holder)} has claimed this, {format_time_left(until, now)}. You can still decide it."


@retry_on_deadlock
def snooze(request: ApprovalRequest, *, by: User, until: datetime) -> ApprovalRequest:
    """Hide a request from one's own lists until a time before its deadline; other users' lists do not change.

    Raises ParameterError for any other time, Conflict if the request is closed, and NotAllowed for agent tokens.
    """
    if agent_token_of(by) is not None:
        raise NotAllowed("Agent tokens cannot snooze requests.")
    check_not_expired(request)
    now = clock.now()
    if not now < until <= request.expires_at:
        message = f"Choose a time between now and the deadline, {format_utc(request.expires_at)}."
        raise field_error("until", "invalid", message)
    with transaction.atomic():
        current = lock_pending(request)
        Snooze.objects.update_or_create(request=current, person=by, defaults={"until": until})
        record_fact("approval.snoozed", call=current.call, by=by, approval=current.public_id, until=format_utc(until))
        return current


def unsnooze(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """End one's own snooze of a request, if there is one."""
    Snooze.objects.filter(request=request, person=by).delete()
    return request


@retry_on_deadlock
def delegate(request: ApprovalRequest, *, by: User, to: "User | None") -> ApprovalRequest:
    """Delegate a request to a user who may decide it. If `to` is None or `by`, end the delegation instead.

    Raises NotAllowed if `by` has no right of their own to decide it, ParameterError if `to` has none, and Conflict.
    """
    check_not_expired(request)
    with transaction.atomic():
        current = lock_pending(request)
        if to is None or to.pk == by.pk:
            if not Delegation.objects.filter(request=current, by=by).delete()[0]:
                raise Conflict("You have not delegated this request.")
            record_fact("approval.delegated", call=current.call, by=by, approval=current.public_id, to=None)
            return _reload(current)
        check_may_decide(current, by)
        giver = delegator_of(current, by)
        if giver is not None:
            raise NotAllowed(f"You may decide this on behalf of {user_display_name(giver)}. Only they can delegate it.")
        if may_decide(current, to) is not None:  # a delegation conveys no rights
            may = deciders_sentence(rule_for(current))
            message = f"{user_display_name(to)} may not decide this request. {may} Choose someone who may."
            raise field_error("to", "invalid", message)
        Delegation.objects.update_or_create(request=current, by=by, defaults={"to": to, "at": clock.now()})
        _pending_row(current).filter(claimed_by=by).update(claimed_by=None, claimed_until=None)
        record_fact("approval.delegated", call=current.call, by=by, approval=current.public_id, to=to.get_username())
        return _reload(current)


@retry_on_deadlock
def comment(request: ApprovalRequest, *, by: User, text: str) -> Comment:
    """Comment on a request that `by` may see; secrets are redacted. Raises ParameterError and Conflict."""
    if not text.strip():
        raise field_error("text", "required", "Enter a comment.")
    check_text(text, "text")
    text = redact_text(text)
    with transaction.atomic():
        announce_call_change(request.call)
        if Comment.objects.filter(request=request).count() >= MAX_COMMENTS:
            raise Conflict(f"This request has {MAX_COMMENTS} comments, the maximum.")
        is_agent = agent_token_of(by) is not None
        comment = Comment.objects.create(request=request, person=by, is_agent=is_agent, text=text, at=clock.now())
        record_fact("approval.commented", call=request.call, by=by, approval=request.public_id, is_agent=is_agent)
        return comment


def _pending_row(request: ApprovalRequest) -> "QuerySet[ApprovalRequest]":
    return ApprovalRequest.objects.filter(pk=request.pk, status=RequestStatus.PENDING)


def _reload(request: ApprovalRequest) -> ApprovalRequest:
    request.refresh_from_db()
    return request
