"""Reviews and what they decide. Every verdict is one conditional UPDATE with its review, facts and audit entry."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from django.conf import settings
from django.db import IntegrityError, transaction

from approvals.edits import Narrowing, editor_counts, narrow, narrowing_of, refused, take_back
from approvals.expiry import expire_if_due
from approvals.models import ApprovalRequest, Review
from approvals.outcomes import Refusal, refuse, release
from approvals.policy import rule_of
from approvals.requests import locked
from approvals.selectors import counted_approvals, current_round, last_review, may_decide, status_sentence
from approvals.states import RequestStatus, Verdict
from catalog import clock
from catalog.access import NotAllowed, name_of
from catalog.batches import do_each
from catalog.canonical import time_text
from catalog.definitions import Reversibility
from catalog.errors import Conflict, ParameterError
from catalog.facts import announce, record
from catalog.registry import get_tool
from catalog.retries import retried
from catalog.states import CallStatus
from catalog.transitions import move

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_COMMENT = 4000
NOT_RECORDED = "Your answer was not recorded."
DECIDED = (RequestStatus.APPROVED, RequestStatus.REJECTED)
UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class Decision:
    """One person's answer: the verdict, the digest they saw, and where they gave it.

    `hunks` are the parts of a change they accept, from 0; none of them is a rejection, None is all.
    """

    verdict: Verdict
    seen_digest: str
    comment: str = ""
    channel: Literal["rest", "page"] = "rest"
    hunks: tuple[int, ...] | None = None


def decide(request: ApprovalRequest, *, by: "User", decision: Decision) -> ApprovalRequest:
    """Record one answer and decide when it is enough; return the request as it is then.

    Raises Conflict (too late, or something changed), NotAllowed, or ParameterError for the comment or the hunks.
    """
    decision = _with_verdict(decision)
    if expire_if_due(request, clock.now()):
        raise Conflict(f"Nobody answered this in time: it has expired. {NOT_RECORDED}")
    return _record_answer(request, by, decision, _narrowing(request, by, decision))


@retried
def _record_answer(
    request: ApprovalRequest, by: "User", decision: Decision, narrowing: Narrowing | None
) -> ApprovalRequest:
    with transaction.atomic():
        current = locked(request)
        _judge(current, by, decision)
        decision = _as_edited(current, by, decision, narrowing)
        if editor_counts(current, by):
            review = _keep(current, by, decision)
            if _is_enough(review):
                _settle(current, review)
        current.refresh_from_db()
        return current


def _with_verdict(decision: Decision) -> Decision:
    """Read an answer that accepts no hunk as the rejection it is."""
    if decision.hunks is None:
        return decision
    if decision.verdict != Verdict.APPROVE:
        raise refused("invalid", "Hunks are for approving; a rejection is of the whole change. Leave hunks out.")
    return decision if decision.hunks else replace(decision, verdict=Verdict.REJECT, hunks=None)


def _narrowing(request: ApprovalRequest, by: "User", decision: Decision) -> Narrowing | None:
    """Work out, for who may decide and before anything is locked, what the accepted hunks make of the change."""
    if decision.hunks is None:
        return None
    _judge(request, by, decision)
    return narrowing_of(request, decision.hunks)


def _as_edited(request: ApprovalRequest, by: "User", decision: Decision, narrowing: Narrowing | None) -> Decision:
    """Narrow the request to the hunks accepted; the answer then counts for the round that this made."""
    if narrowing is None:
        return decision
    narrow(request, narrowing, by=by)
    return replace(decision, seen_digest=request.digest)


def _judge(request: ApprovalRequest, by: "User", decision: Decision) -> None:
    if request.status != RequestStatus.PENDING:
        raise Conflict(f"{status_sentence(request)} {NOT_RECORDED}")
    why_not = may_decide(request, by)
    if why_not is not None:
        raise NotAllowed(why_not)
    if decision.seen_digest != request.digest:
        raise Conflict(f"What is asked has changed since you looked at it. {NOT_RECORDED} Look again, then decide.")
    _judge_comment(request, decision)


def _judge_comment(request: ApprovalRequest, decision: Decision) -> None:
    comment = decision.comment
    if len(comment) > MAX_COMMENT:
        raise _refused("too_long", f"A comment has at most {MAX_COMMENT:,} characters; this one has {len(comment):,}.")
    if "\x00" in comment or not _is_encodable(comment):
        raise _refused("invalid", "The comment holds characters that cannot be stored; send plain text.")
    if decision.verdict == Verdict.REJECT and not comment.strip() and _needs_reason(request):
        raise _refused("required", "Say why you reject this: the agent and the audit log need the reason.")


def _needs_reason(request: ApprovalRequest) -> bool:
    irreversible = request.tool_version.reversibility == Reversibility.IRREVERSIBLE
    return irreversible or rule_of(request.policy_revision).reason_required


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(code: str, message: str) -> ParameterError:
    problem = {"path": "comment", "code": code, "message": message}
    return ParameterError(message, {"field": "comment", "errors": [problem]})


def _keep(request: ApprovalRequest, by: "User", decision: Decision) -> Review:
    """Store the review: one per person and round."""
    try:
        with transaction.atomic():
            review = Review.objects.create(
                request=request,
                round=current_round(request),
                person=by,
                verdict=decision.verdict,
                comment=decision.comment,
                seen_digest=decision.seen_digest,
                channel=decision.channel,
                at=clock.now(),
            )
    except IntegrityError:
        raise Conflict(f"You have already answered this request. {NOT_RECORDED}") from None
    _record("approval.reviewed", request, review)
    return review


def _is_enough(review: Review) -> bool:
    """Say whether this review decides: one rejection does, or as many people's approvals as the round asks for."""
    if review.verdict == Verdict.REJECT:
        return True
    people = {each.person_id for each in counted_approvals(review.round)}
    return len(people) >= review.round.quorum


def _settle(request: ApprovalRequest, review: Review) -> None:
    """Decide the request; what a page decided takes effect after the undo window."""
    undo_seconds = settings.TOOLGATE_UNDO_SECONDS if review.channel == "page" else 0
    effective_at = review.at + timedelta(seconds=undo_seconds)
    approved = review.verdict == Verdict.APPROVE
    move(
        ApprovalRequest.objects.filter(pk=request.pk, digest=review.seen_digest, expires_at__gt=review.at),
        to=RequestStatus.APPROVED if approved else RequestStatus.REJECTED,
        decided_at=review.at,
        effective_at=effective_at,
        not_after=effective_at + timedelta(seconds=settings.TOOLGATE_RUN_WINDOW_SECONDS) if approved else None,
    )
    request.refresh_from_db(fields=["status", "decided_at", "effective_at", "not_after"])
    _record("approval.decided", request, review, effective_at=time_text(effective_at))
    if not undo_seconds:
        apply_decision(request, review.at)


def _record(kind: str, request: ApprovalRequest, review: Review, **more: str) -> None:
    told = {
        "approval": request.public_id,
        "digest": request.digest,
        "verdict": review.verdict,
        "reviewer": name_of(review.person),
        "reason": review.comment,
    }
    record(kind, call=request.call, by=review.person, **(told | more))


@retried
def undo(request: ApprovalRequest, *, by: "User") -> ApprovalRequest:
    """Take back one's own decision before it takes effect: the request is pending again.

    Raises Conflict when there is nothing to undo (any more), NotAllowed when someone else decided.
    """
    with transaction.atomic():
        current = locked(request)
        review = last_review(current)
        if review is None or current.status not in DECIDED:
            raise Conflict(f"There is no decision to undo. {status_sentence(current)}")
        if review.person_id != by.pk:
            raise NotAllowed(f"Only {name_of(review.person)}, who decided this, may undo it.")
        _reopen(current)
        Review.objects.filter(pk=review.pk).update(undone_at=clock.now())
        # Told as a review, a kind of event that clients know: whoever watches sees the request wait again.
        _record("approval.reviewed", current, review, verdict=UNDONE)
        take_back(current, by=by)
        current.refresh_from_db()
        return current


def _reopen(request: ApprovalRequest) -> None:
    undoable = ApprovalRequest.objects.filter(
        pk=request.pk, applied_at=None, effective_at__gt=clock.now(), call__status=CallStatus.HELD
    )
    try:
        move(undoable, to=RequestStatus.PENDING, decided_at=None, effective_at=None, not_after=None)
    except Conflict:
        raise Conflict(f"The time to undo is over. {status_sentence(request)}") from None


def apply_due(now: datetime, limit: int = 100) -> int:
    """Let decisions whose undo window is over take effect, each in its own transaction; return how many did."""
    due = ApprovalRequest.objects.filter(
        status__in=DECIDED, applied_at=None, decided_at__isnull=False, effective_at__lte=now
    )
    requests = due.select_related("call").order_by("effective_at")[:limit]
    return do_each(lambda request: apply_decision(request, now), requests)


def apply_decision(request: ApprovalRequest, now: datetime) -> bool:
    """Carry one decision to its call, once; say whether that happened now."""
    with transaction.atomic():
        announce(request.call)
        decided = ApprovalRequest.objects.filter(pk=request.pk, status=request.status, status__in=DECIDED)
        if not decided.filter(applied_at=None, effective_at__lte=now).update(applied_at=now):
            return False
        review = last_review(request)
        if request.status == RequestStatus.APPROVED:
            release(request, by=review.person if review else None)
        elif review is not None:
            refuse(request, _rejection(review), now=now)
        return True


def _rejection(review: Review) -> Refusal:
    reason = review.comment.strip()
    message = f"Rejected by {name_of(review.person)}" + (f": {reason}" if reason else ".")
    call = review.request.call
    tool = get_tool(call.tool_name)
    own = tool.told_when_rejected(call.arguments_json) if tool else ""
    message = f"{message} {own}" if own else message
    return Refusal("rejected", message, review.person)
