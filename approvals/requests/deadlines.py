"""Deadlines of requests: reminders, extension, expiry, escalation, the end of the run window, and the time of stops.

Expiry never approves anything. Reminders at 50 % and 90 % of the time are facts, each recorded exactly once.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet

from approvals.models import ApprovalRequest, PolicyRevision
from approvals.policies.eligibility import check_may_decide, is_requester
from approvals.policies.rulebook import rule_from_revision
from approvals.requests.held_calls import EXPIRED, Refusal, refuse_call
from approvals.requests.lifecycle import expire_pre_approval, first_reminder, lock_pending, lock_request, next_reminder
from approvals.requests.queries import HIDDEN_PRE_APPROVALS, request_for
from approvals.states import APPLYING, FAIL, OPEN, REJECTION_EFFECTS, RequestStatus
from approvals.stops.stopped_time import (
    StoppableDeadline,
    StoppableWork,
    facts_of_calls,
    move_deadlines,
    stops_since,
)
from catalog.access.roles import (
    ADMINISTRATOR,
    OPERATOR,
    REVIEWER,
    NotAllowed,
    agent_token_of,
    has_role,
    user_display_name,
)
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import retry_on_deadlock, run_each, try_move
from catalog.errors import Conflict
from catalog.signals import announce_call_change, record_fact

OnExpiry = PolicyRevision.OnExpiry
EXPIRED_UNANSWERED = "This request has expired without an answer."
MAX_PRE_APPROVAL_TIME = timedelta(hours=8)
EXTENSION = timedelta(minutes=30)
EXTENDABLE_TIME = timedelta(hours=1)
"""A request can be extended only when at most this much time is left; WCAG 2.2.1 asks for ten extensions."""
MAX_EXTENSIONS = 10
COUNTED_AT_ONCE = 50
"""Requests compared with stops by the same queries."""
TIME_BETWEEN_REMINDERS = timedelta(minutes=10)
"""Time after a reminder in which no person can ask for another."""


def expire_due(now: datetime, limit: int = 100) -> int:
    """Expire due requests, each in its own transaction; return their number."""
    related = ("call", "policy_revision__policy")
    due = ApprovalRequest.objects.filter(_is_overdue(now)).select_related(*related).order_by("expires_at")
    return run_each(lambda request: _expire(request, now), due[:limit])


def expire_if_due(request: ApprovalRequest, now: datetime) -> bool:
    """Expire this request if it is overdue; return True if it expired now. An escalated request stays open."""
    ends = {RequestStatus.PENDING: request.expires_at, RequestStatus.APPROVED: request.not_after}
    end = ends.get(RequestStatus(request.status))
    return end is not None and end <= now and _expire(request, now)


def check_not_expired(request: ApprovalRequest) -> None:
    """Expire the request if it is overdue. Raises Conflict if it expired now."""
    if expire_if_due(request, clock.now()):
        raise Conflict(EXPIRED_UNANSWERED)


def expire_and_load(viewer: User, public_id: str) -> ApprovalRequest:
    """Return a request for its page, after expiring it if overdue. Raises ApprovalRequest.DoesNotExist."""
    request = request_for(viewer, public_id)
    return request_for(viewer, public_id) if expire_if_due(request, clock.now()) else request


def next_due(after: datetime) -> datetime | None:
    """Return when, after `after`, the next decision takes effect or request expires; None if there is neither."""
    requests = ApprovalRequest.objects
    decided = requests.filter(status__in=APPLYING, applied_at=None, decided_at__isnull=False)
    moments = (
        _earliest(decided, "effective_at", after),
        _earliest(requests.filter(status=RequestStatus.PENDING), "expires_at", after),
        _earliest(requests.filter(status=RequestStatus.APPROVED), "not_after", after),
    )
    return min(filter(None, moments), default=None)


def _earliest(requests: QuerySet[ApprovalRequest], field: str, after: datetime) -> datetime | None:
    return requests.filter(**{f"{field}__gt": after}).order_by(field).values_list(field, flat=True).first()


def _is_overdue(now: datetime) -> Q:
    unanswered = Q(status=RequestStatus.PENDING, expires_at__lte=now)
    return unanswered | Q(status=RequestStatus.APPROVED, not_after__lte=now)


@retry_on_deadlock
def _expire(request: ApprovalRequest, now: datetime) -> bool:
    """Expire an overdue request or escalate it; return True if it has expired."""
    with transaction.atomic():
        current = lock_request(request)
        if count_stops(current, now):
            request.expires_at, request.not_after = current.expires_at, current.not_after
        if not ApprovalRequest.objects.filter(_is_overdue(now), pk=request.pk).exists():
            return False
        if not current.is_pre_approval and _escalate(current, now):
            request.refresh_from_db(fields=["escalated_at", "escalated_to", "expires_at"])
            return False
        if not try_move(ApprovalRequest.objects.filter(_is_overdue(now), pk=request.pk), to=RequestStatus.EXPIRED):
            return False
        if current.is_pre_approval:
            expire_pre_approval(current, f"{_sentence(current)} Its step requests approval again when it is ready.")
            return True
        effect = current.policy_revision.on_expiry  # an escalation has no effect of its own: the step fails
        if current.status != RequestStatus.PENDING or effect not in REJECTION_EFFECTS:
            effect = FAIL
        record_fact("approval.expired", call=current.call, approval=current.public_id, effect=effect)
        refuse_call(current, Refusal(EXPIRED, _sentence(current), effect=effect), now=now)
        return True


def count_stops(request: ApprovalRequest, now: datetime) -> bool:
    """Move the deadline of a locked request, or the end of its run window, by the time that stops stood.

    Return whether it was moved: not if the request has ended without a call that may still start.
    """
    before = _stoppable_deadline(request)
    if before is None:
        return False
    after = before.counted(lambda _since: [StoppableWork(facts_of_calls([request.call])[request.call.pk])], now)
    if after == before:
        return False
    is_pending = request.status == RequestStatus.PENDING
    names = ("expires_at", "stopped_seconds") if is_pending else ("not_after", "window_stopped_seconds")
    moved = dict(zip(names, (after.at, after.moved_seconds), strict=True))
    same = ApprovalRequest.objects.filter(pk=request.pk, status=request.status, **{names[0]: before.at})
    if not same.update(**moved):
        return False
    for name, value in moved.items():
        setattr(request, name, value)
    details: dict[str, Any] = {names[0]: format_utc(after.at), "stopped_seconds": round(after.moved_seconds)}
    record_fact("approval.extended", call=request.call, approval=request.public_id, **details)
    return True


def _stoppable_deadline(request: ApprovalRequest) -> StoppableDeadline | None:
    """Return the deadline of a pending request or the end of an approved one's run window; None if it has neither."""
    is_pending = request.status == RequestStatus.PENDING
    at = request.expires_at if is_pending else request.not_after
    if at is None or request.status not in (*OPEN, RequestStatus.CONSUMED):
        return None
    moments = (request.opened_at, request.escalated_at) if is_pending else (request.effective_at,)
    began = max(each for each in (*moments, request.ready_at) if each is not None)
    return StoppableDeadline(at, began, request.stopped_seconds if is_pending else request.window_stopped_seconds)


def count_stops_of_open_requests(until: datetime, now: datetime, limit: int) -> tuple[int, bool]:
    """Count the time of stops for open requests that are older than `until`, and move the deadlines of about `limit`.

    Return the number of deadlines that were moved, and whether none is left. Only requests whose deadlines move are
    locked: the others are compared in batches.
    """
    rows = ApprovalRequest.objects.filter(status__in=OPEN, opened_at__lt=until).select_related("call")
    return move_deadlines(rows, COUNTED_AT_ONCE, limit, partial(_with_stopped_time, now=now), partial(_count, now=now))


def _with_stopped_time(requests: Sequence[ApprovalRequest], now: datetime) -> list[ApprovalRequest]:
    """Return those of the requests whose deadlines move if the time of stops is counted."""
    deadlines = {each.pk: deadline for each in requests if (deadline := _stoppable_deadline(each)) is not None}
    stops = stops_since(min((each.began for each in deadlines.values()), default=now))
    if not stops:
        return []
    facts = facts_of_calls([each.call for each in requests])
    moved = {
        each.pk
        for each in requests
        if (deadline := deadlines.get(each.pk)) is not None
        and deadline.counted_for([StoppableWork(facts[each.call.pk])], stops, now) != deadline
    }
    return [each for each in requests if each.pk in moved]


@retry_on_deadlock
def _count(request: ApprovalRequest, now: datetime) -> bool:
    with transaction.atomic():
        return count_stops(lock_request(request), now)


def _escalate(request: ApprovalRequest, now: datetime) -> bool:
    """Escalate an unanswered request once, if its rule says so: restart its time and add a group. True if done."""
    revision = request.policy_revision
    if revision.on_expiry != OnExpiry.ESCALATE or not revision.escalate_to:
        return False
    rule = rule_from_revision(revision)
    until, remind_at = now + timedelta(seconds=rule.expires_seconds), first_reminder(now, rule)
    unanswered = ApprovalRequest.objects.filter(
        pk=request.pk, status=RequestStatus.PENDING, expires_at__lte=now, escalated_at=None
    )
    anew = {"expires_at": until, "remind_at": remind_at, "stopped_seconds": 0.0}
    if not unanswered.update(escalated_at=now, escalated_to=revision.escalate_to, **anew):
        return False
    record_fact(
        "approval.escalated",
        call=request.call,
        approval=request.public_id,
        to=revision.escalate_to,
        expires_at=format_utc(until),
    )
    return True


@retry_on_deadlock
def extend(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Extend the deadline of a request by 30 minutes, at most ten times; return the updated request.

    Raises NotAllowed if `by` may not decide it, and Conflict if it is answered or has more than an hour left.
    """
    check_not_expired(request)
    with transaction.atomic():
        current, now = lock_pending(request), clock.now()
        check_may_decide(current, by)
        if (why_not := extension_objection(current, now)) is not None:
            raise Conflict(why_not)
        until, number = current.expires_at + EXTENSION, current.extensions + 1
        ending = ApprovalRequest.objects.filter(
            pk=current.pk, status=RequestStatus.PENDING, expires_at=current.expires_at, expires_at__gt=now
        )
        if not ending.update(expires_at=until, extensions=number):
            raise Conflict(EXPIRED_UNANSWERED)
        details = {"approval": current.public_id, "expires_at": format_utc(until), "number": number}
        record_fact("approval.extended", call=current.call, by=by, **details)
        current.refresh_from_db()
        return current


def extension_objection(request: ApprovalRequest, now: datetime) -> str | None:
    """Return the reason why a request cannot be extended now; None if it can."""
    if request.extensions >= MAX_EXTENSIONS:
        return f"This has been extended {MAX_EXTENSIONS} times already. Decide it, or let it expire."
    if request.expires_at - now > EXTENDABLE_TIME:
        return f"This can be extended from {format_utc(request.expires_at - EXTENDABLE_TIME)} on."
    return None


def run_window_end(request: ApprovalRequest, effective_at: datetime) -> datetime:
    """Return the end of the run window. A pre-approval is valid until its step is ready, at most for 8 h."""
    window = timedelta(seconds=settings.TOOLGATE_RUN_WINDOW_SECONDS)
    if not request.is_early:
        return effective_at + window
    longest = effective_at + MAX_PRE_APPROVAL_TIME
    if request.ready_at is None:
        return longest
    return min(max(effective_at, request.ready_at) + window, longest)


def start_run_window(request: ApprovalRequest, now: datetime) -> None:
    """Start the run window of a pre-approval, since its step is ready."""
    request.ready_at = now
    # If the decision is undone, the request waits like any other from now on.
    expires_at = now + timedelta(seconds=rule_from_revision(request.policy_revision).expires_seconds)
    fields: dict[str, Any] = {"ready_at": now, "expires_at": expires_at, "stopped_seconds": 0.0}
    if request.status == RequestStatus.APPROVED and request.effective_at is not None:
        fields |= {"not_after": run_window_end(request, request.effective_at), "window_stopped_seconds": 0.0}
    ApprovalRequest.objects.filter(pk=request.pk, status__in=OPEN).update(**fields)


def _sentence(request: ApprovalRequest) -> str:
    if request.not_after is not None and request.effective_at is not None:
        begins = max(request.effective_at, request.ready_at or request.effective_at)
        window = _duration_in_words(request.not_after - begins)
        return f"Approved, but not started within {window}: the approval has expired and the call was not run."
    waited = _duration_in_words(request.expires_at - (request.escalated_at or request.opened_at))
    escalated = f", after {request.escalated_to} was asked too" if request.escalated_to else ""
    return f"Nobody answered within {waited}{escalated}: the request has expired and the call was not run."


def _duration_in_words(duration: timedelta) -> str:
    """Return a duration as text in its largest whole unit: 24 h, 15 min, 90 s."""
    seconds = round(duration.total_seconds())
    whole = ((size, unit) for size, unit in ((3600, "h"), (60, "min")) if seconds and seconds % size == 0)
    size, unit = next(whole, (1, "s"))
    return f"{seconds // size} {unit}"


def send_due_reminders(now: datetime, limit: int = 100) -> int:
    """Send the due reminders, each in its own transaction, at most one per request; return their number."""
    waiting = ApprovalRequest.objects.filter(status=RequestStatus.PENDING, remind_at__lte=now, expires_at__gt=now)
    due = waiting.exclude(HIDDEN_PRE_APPROVALS).select_related("call").order_by("remind_at")
    return run_each(lambda request: _remind(request, now), due[:limit])


@retry_on_deadlock
def _remind(request: ApprovalRequest, now: datetime) -> bool:
    """Record the due reminder, unless another process has."""
    began = request.escalated_at or request.opened_at
    following = next_reminder(began, request.expires_at, now)
    with transaction.atomic():
        announce_call_change(request.call)
        unreminded = ApprovalRequest.objects.filter(
            pk=request.pk, status=RequestStatus.PENDING, remind_at=request.remind_at, expires_at__gt=now
        )
        if not unreminded.update(reminders=F("reminders") + 1, remind_at=following, reminded_at=now):
            return False
        record_fact(
            "approval.reminded",
            call=request.call,
            approval=request.public_id,
            number=request.reminders + 1,
            expires_at=format_utc(request.expires_at),
        )
        return True


@retry_on_deadlock
def remind(request: ApprovalRequest, *, by: User) -> None:
    """Remind the reviewers of a request now, at most once in ten minutes, by whomever.

    Raises NotAllowed if `by` may not ask for that, and Conflict if the request waits no more or they were reminded.
    """
    if (why_not := reminder_objection(request, by)) is not None:
        raise NotAllowed(why_not)
    check_not_expired(request)
    with transaction.atomic():
        current, now = lock_pending(request), clock.now()
        if current.is_pre_approval:
            raise Conflict("Its step is not ready yet, so nobody is asked to answer this.")
        waiting = ApprovalRequest.objects.filter(pk=current.pk, status=RequestStatus.PENDING, expires_at__gt=now)
        due = waiting.filter(Q(reminded_at=None) | Q(reminded_at__lte=now - TIME_BETWEEN_REMINDERS))
        if not due.update(reminders=F("reminders") + 1, reminded_at=now):
            raise Conflict("The reviewers were reminded less than ten minutes ago.")
        record_fact(
            "approval.reminded",
            call=current.call,
            by=by,
            approval=current.public_id,
            number=current.reminders + 1,
            expires_at=format_utc(current.expires_at),
            asked_by=user_display_name(by),
        )


def reminder_objection(request: ApprovalRequest, by: User) -> str | None:
    """Return the reason why a person may not have the reviewers reminded; None if they may."""
    if agent_token_of(by) is None and (is_requester(request, by) or has_role(by, OPERATOR, REVIEWER, ADMINISTRATOR)):
        return None
    return "Only its requester, operators, reviewers and administrators may have the reviewers reminded."
