"""Decisions on requests: validating and recording reviews, undoing and revoking.

`approvals.reviews.effects` applies a decision to the call when its undo window ends.
"""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Prefetch, prefetch_related_objects

from approvals.models import ApprovalRequest, Comment, Review, Round
from approvals.policies.eligibility import (
    check_may_decide,
    delegator_of,
    editor_counts,
    may_revoke_approval,
    review_audit_details,
)
from approvals.policies.quorum import is_enough
from approvals.requests import held_calls
from approvals.requests.deadlines import EXPIRED_UNANSWERED, expire_if_due, run_window_end
from approvals.requests.held_calls import Refusal
from approvals.requests.lifecycle import check_text, lock_request
from approvals.requests.queries import counted_approvals, current_round, last_review, status_sentence
from approvals.reviews.confirmation import check_sign_in_age
from approvals.reviews.edits import (
    Edit,
    apply_edit,
    check_edit,
    narrow_to_hunks,
    require_edit_within_limits,
    undo_edit,
)
from approvals.reviews.effects import apply_decision
from approvals.reviews.passkeys import SIGNED_VERDICTS, PasskeySignature, approval_challenge, use_signature
from approvals.states import FAIL, REJECTION_EFFECTS, UNDOABLE, RequestStatus, ReviewVerdict
from catalog.access.roles import NotAllowed, user_display_name
from catalog.calls import vault
from catalog.core import clock
from catalog.core.canonical_json import format_utc, json_size
from catalog.core.transactions import move, move_row, retry_on_deadlock
from catalog.definitions.levels import Reversibility
from catalog.errors import Conflict, ParameterError, field_error, nested_errors
from catalog.schemas import ArgumentProblem, check_json_arguments, compile_schema, raise_for_problems
from catalog.secrets.placeholders import redact_text, without_macs
from catalog.signals import record_fact
from catalog.states import CallStatus

MAX_RESPONSE = 256 * 1024
"""Maximum size of an answer instead of the tool, in bytes of JSON; the same as for arguments."""


class Unset(Enum):
    """Type of the marker UNSET for a value that was not given, since None is a valid value."""

    UNSET = "unset"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Decision:
    """A reviewer's decision: verdict, the digest they saw, and the channel.

    `hunks` are the numbers (from 0) of the accepted parts of a change: None means all, an empty tuple is a rejection.
    `response` is the answer instead of the tool, `effect` what a rejection does to the plan.
    """

    verdict: ReviewVerdict
    seen_digest: str
    _: KW_ONLY
    comment: str = ""
    channel: Literal["rest", "page"] = "rest"
    hunks: tuple[int, ...] | None = None
    arguments: Mapping[str, Any] | None = None
    response: Any = UNSET
    effect: str = FAIL
    batch: str = ""
    passkey: PasskeySignature | None = None


def normalise_decision(decision: Decision) -> Decision:
    """Return the decision in canonical form: an approval that accepts no hunk becomes a rejection.

    Raises ParameterError for fields that do not belong to the verdict.
    """
    verdict = decision.verdict
    if decision.hunks is not None and verdict != ReviewVerdict.APPROVE:
        raise field_error("hunks", "invalid", "Hunks can only be given with the verdict approve. Leave them out.")
    if decision.arguments is not None and (verdict != ReviewVerdict.APPROVE or decision.hunks is not None):
        why = "Edited arguments can only be given with the verdict approve, and not together with hunks."
        raise field_error("arguments", "invalid", f"{why} Leave them out.")
    if decision.response is not UNSET and verdict != ReviewVerdict.RESPOND:
        raise field_error("response", "invalid", "A response can only be given with the verdict respond. Leave it out.")
    if decision.response is UNSET and verdict == ReviewVerdict.RESPOND:
        raise field_error(
            "response", "required", "Provide the answer that the agent gets instead of the tool's result."
        )
    if decision.effect not in REJECTION_EFFECTS:
        raise field_error("effect", "invalid_choice", f"This must be one of {', '.join(REJECTION_EFFECTS)}.")
    if decision.effect != FAIL and verdict != ReviewVerdict.REJECT:
        raise field_error("effect", "invalid", "An effect can only be given with the verdict reject. Leave it out.")
    check_text(decision.comment)
    decision = replace(decision, comment=redact_text(decision.comment))
    if decision.hunks is None or decision.hunks:
        return decision
    return replace(decision, verdict=ReviewVerdict.REJECT, hunks=None)


def check_comment(request: ApprovalRequest, decision: Decision) -> None:
    """Raise ParameterError if the comment is missing where the verdict requires one."""
    if decision.comment.strip():
        return
    verdict = decision.verdict
    if verdict == ReviewVerdict.REQUEST_CHANGES:
        raise field_error("comment", "required", "Describe the changes that the requester should make.")
    if verdict == ReviewVerdict.REJECT and needs_reason(request):
        raise field_error("comment", "required", "Give a reason for the rejection, for the agent and the audit log.")


def needs_reason(request: ApprovalRequest) -> bool:
    """Return True if a rejection needs a reason: the rule says so, or says nothing and the call is irreversible."""
    required = request.policy_revision.reason_required
    irreversible = request.tool_version.reversibility == Reversibility.IRREVERSIBLE
    return irreversible if required is None else required


def check_response(request: ApprovalRequest, response: Any) -> None:
    """Raise ParameterError, with paths under `response`, if the tool itself could not return this answer."""
    try:
        value = check_json_arguments(response)
        if json_size(value) > MAX_RESPONSE:
            raise_for_problems(
                [ArgumentProblem("", "too_large", f"A response can have at most {MAX_RESPONSE:,} bytes as JSON.")]
            )
        schema = request.tool_version.output_schema
        if schema is not None:
            raise_for_problems(compile_schema(schema).problems(value))
    except ParameterError as error:
        raise nested_errors("response", error) from None


def redact_response(response: Any) -> str:
    """Return a response as JSON for storage, with secrets removed for good; empty if there is none."""
    return "" if response is UNSET else without_macs(vault.redact_arguments(None, response).text)


NOT_RECORDED = "Your decision was not recorded."
UNDONE = "undone"
STATUS_BY_VERDICT = {
    ReviewVerdict.APPROVE: RequestStatus.APPROVED,
    ReviewVerdict.REJECT: RequestStatus.REJECTED,
    ReviewVerdict.RESPOND: RequestStatus.RESPONDED,
    ReviewVerdict.REQUEST_CHANGES: RequestStatus.CHANGES_REQUESTED,
}


def decide(
    request: ApprovalRequest, *, by: User, decision: Decision, edit: Edit | Unset | None = UNSET
) -> ApprovalRequest:
    """Record a decision and settle the request if it is sufficient; return the updated request.

    With `edit` UNSET it is computed here. Raises NotAllowed, Conflict, OutsideLimits for an edit through a token that
    leaves out the tool, and ParameterError, whose paths are relative to the arguments if the error is in them.
    """
    decision = normalise_decision(decision)
    if expire_if_due(request, clock.now()):
        raise Conflict(f"{EXPIRED_UNANSWERED} {NOT_RECORDED}")
    if decision.response is not UNSET:
        _check_decision(request, by, decision)
        check_response(request, decision.response)
    if isinstance(edit, Unset):  # computed before anything is locked
        edit = None
        if decision.hunks is not None or decision.arguments is not None:
            _check_decision(request, by, decision)
            require_edit_within_limits(request, by=by)
        if decision.hunks is not None:
            edit = narrow_to_hunks(request, decision.hunks)
        elif decision.arguments is not None:
            edit = check_edit(request, decision.arguments)
            edit = edit if edit.text != current_round(request).arguments else None
    return _record_answer(request, by, decision, edit)


@retry_on_deadlock
def _record_answer(request: ApprovalRequest, by: User, decision: Decision, edit: Edit | None) -> ApprovalRequest:
    with transaction.atomic():
        current = lock_request(request)
        _check_decision(current, by, decision)
        challenge = b"" if decision.passkey is None else _challenge(current, decision, edit)
        if edit is not None:
            apply_edit(current, edit, by=by, comment=decision.comment)
        if decision.verdict == ReviewVerdict.APPROVE:
            check_sign_in_age(current.policy_revision, by)
        passkey = ""
        if current.policy_revision.fresh_passkey and decision.verdict in SIGNED_VERDICTS:
            passkey = use_signature(decision.passkey, challenge, by)
        prefetch_related_objects([current], Prefetch("rounds", Round.objects.defer("arguments", "preview")))
        if not editor_counts(current, by):
            _store_comment(current, by, decision.comment)
            return current
        try:
            with transaction.atomic():
                review = Review.objects.create(
                    request=current,
                    round=current_round(current),
                    person=by,
                    on_behalf_of=delegator_of(current, by),
                    verdict=decision.verdict,
                    comment=decision.comment,
                    response=redact_response(decision.response),
                    effect=decision.effect,
                    seen_digest=current.digest,
                    channel=decision.channel,
                    batch=decision.batch,
                    passkey=passkey,
                    at=clock.now(),
                )
        except IntegrityError:
            raise Conflict(f"You have already decided this request. {NOT_RECORDED}") from None
        _record("approval.reviewed", current, review)
        if review.verdict == ReviewVerdict.APPROVE:
            approvals = counted_approvals(review.round)
            for each in approvals:
                if each.person_id == by.pk:
                    each.person = by  # has its groups loaded
            if not is_enough(current, approvals):
                return current
        # A decision on a page takes effect after the undo window, a request for changes at once.
        status = STATUS_BY_VERDICT[decision.verdict]
        undo_seconds = settings.TOOLGATE_UNDO_SECONDS if review.channel == "page" and status in UNDOABLE else 0
        effective_at = review.at + timedelta(seconds=undo_seconds)
        move_row(
            current,
            ApprovalRequest.objects.filter(pk=current.pk, digest=review.seen_digest, expires_at__gt=review.at),
            to=status,
            decided_at=review.at,
            effective_at=effective_at,
            not_after=run_window_end(current, effective_at) if status == RequestStatus.APPROVED else None,
        )
        _record("approval.decided", current, review, effective_at=format_utc(effective_at))
        if not undo_seconds:
            apply_decision(current, review.at, review)
        return current


def _challenge(request: ApprovalRequest, decision: Decision, edit: Edit | None) -> bytes:
    nonce = decision.passkey.nonce if decision.passkey is not None else ""
    response = None if decision.response is UNSET else decision.response
    return approval_challenge(request, nonce, verdict=decision.verdict, edit=edit, response=response)


def _check_decision(request: ApprovalRequest, by: User, decision: Decision) -> None:
    if request.status != RequestStatus.PENDING:
        raise Conflict(f"{status_sentence(request)} {NOT_RECORDED}")
    check_may_decide(request, by)
    if decision.seen_digest != request.digest:
        raise Conflict(f"The request has changed since you opened it. {NOT_RECORDED} Check the changes, then decide.")
    check_comment(request, decision)


def _store_comment(request: ApprovalRequest, by: User, text: str) -> None:
    """Store text as a comment: the text of a revocation, or of an edit that others must approve."""
    if text.strip():
        Comment.objects.create(request=request, person=by, text=text, at=clock.now())


def _record(kind: str, request: ApprovalRequest, review: Review, **more: Any) -> None:
    details = {
        "approval": request.public_id,
        "digest": request.digest,
        "verdict": review.verdict,
        "reviewer": user_display_name(review.person),
        "reason": review.comment,
    }
    effect = {"effect": review.effect} if review.verdict == ReviewVerdict.REJECT else {}
    if review.passkey:
        effect["passkey"] = json.loads(review.passkey)["id"]
    record_fact(kind, call=request.call, by=review.person, **(details | effect | review_audit_details(review) | more))


@retry_on_deadlock
def undo_decision(request: ApprovalRequest, *, by: User) -> ApprovalRequest:
    """Undo one's own decision and its edit before it takes effect. Raises Conflict and NotAllowed."""
    with transaction.atomic():
        current = lock_request(request)
        review = last_review(current)
        if review is None or current.status not in UNDOABLE:
            raise Conflict(f"There is no decision to undo. {status_sentence(current)}")
        if review.person_id != by.pk:
            raise NotAllowed(f"Only {user_display_name(review.person)}, who decided this, may undo it.")
        undoable = ApprovalRequest.objects.filter(
            pk=current.pk, applied_at=None, effective_at__gt=clock.now(), call__status=CallStatus.HELD
        )
        try:
            move(
                undoable,
                to=RequestStatus.PENDING,
                decided_at=None,
                effective_at=None,
                not_after=None,
                window_stopped_seconds=0.0,
            )
        except Conflict:
            raise Conflict(f"It is too late to undo this. {status_sentence(current)}") from None
        Review.objects.filter(pk=review.pk).update(undone_at=clock.now())
        # Recorded as a review, a kind of event that clients know, so that they show the request as pending again.
        _record("approval.reviewed", current, review, verdict=UNDONE)
        undo_edit(current, by=by)
        current.refresh_from_db()
        return current


@retry_on_deadlock
def revoke(request: ApprovalRequest, *, by: User, comment: str = "") -> ApprovalRequest:
    """Revoke an unused approval after its undo window; the call fails with the reason.

    Raises NotAllowed, Conflict if there is no approval to revoke, and ParameterError for an invalid comment.
    """
    check_text(comment)
    comment = redact_text(comment)
    expire_if_due(request, clock.now())
    with transaction.atomic():
        current, now = lock_request(request), clock.now()
        why_not = may_revoke_approval(current, by)
        if why_not is not None:
            raise NotAllowed(why_not)
        if current.status != RequestStatus.APPROVED:
            raise Conflict(f"There is no approval to revoke. {status_sentence(current)}")
        if current.effective_at is None or current.effective_at > now:
            remedy = "It can be revoked after the undo window."
            raise Conflict(f"This approval can still be undone by its reviewer. {remedy}")
        in_effect = ApprovalRequest.objects.filter(pk=current.pk, effective_at__lte=now)
        move(in_effect, to=RequestStatus.REVOKED, applied_at=current.applied_at or now)
        current.refresh_from_db()
        details = {
            "approval": current.public_id,
            "digest": current.digest,
            "reviewer": user_display_name(by),
            "reason": comment,
        }
        record_fact("approval.revoked", call=current.call, by=by, **details)
        _store_comment(current, by, comment)
        words = f": {comment.strip()}" if comment.strip() else "."
        held_calls.refuse_call(
            current, Refusal(held_calls.REVOKED, f"Revoked by {user_display_name(by)}{words}", by), now=now
        )
        current.refresh_from_db()
        return current
