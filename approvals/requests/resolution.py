"""Effect of an answer on the held call: it is released, answered in the tool's place, sent back, or it fails.

The requester gets the reason word for word. A call that has ended meanwhile, because its plan was cancelled, is left
unchanged. A rejected call that is asked for again in the same plan, with the same tool and arguments, is refused at
once with the first reason; only rejections are remembered, neither silence nor requests for changes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, Review
from approvals.requests.digests import intent_digest_for
from approvals.states import FAIL, RequestStatus, ReviewVerdict
from catalog.access.roles import user_display_name
from catalog.calls.vault import variants_for_rotated_keys
from catalog.core import clock
from catalog.core.transactions import try_move
from catalog.dispatch.pipeline import answer_response
from catalog.models import Call
from catalog.secrets.placeholders import Secret
from catalog.signals import record_fact
from catalog.states import CallStatus
from catalog.tools.registry import get_tool

REJECTED, REVOKED, EXPIRED = "rejected", "revoked", "expired"
SENT_BACK = "changes_requested"
"""The kind of error of a call that people want to see changed."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a held call will not run: a word for programs, a sentence for people and models, who said so.

    `effect` says what becomes of its step: it fails, is skipped, or takes its plan with it.
    """

    error_kind: str
    message: str
    by: "User | None" = None
    effect: str = FAIL


def release_call(request: ApprovalRequest, *, by: "User | None") -> None:
    """Let an approved call run."""
    if try_move(Call.objects.filter(pk=request.call_id), to=CallStatus.READY):
        record_fact("call.released", call=request.call, by=by, approval=request.public_id)


def refuse_call(request: ApprovalRequest, refusal: Refusal, *, now: datetime) -> None:
    """Fail the held call; what becomes of its step, the effect says."""
    if _fail(request, refusal, now):
        told = {"approval": request.public_id, "effect": refusal.effect, "message": refusal.message}
        record_fact("call.refused", call=request.call, by=refusal.by, **told)


def send_back_call(request: ApprovalRequest, review: Review, *, now: datetime) -> None:
    """Fail the held call with what is to be changed; whoever may change it is waited for, or asks anew."""
    refusal = Refusal(SENT_BACK, attributed_comment("Changes requested", review), review.person)
    if _fail(request, refusal, now):
        told = {"approval": request.public_id, "message": refusal.message}
        record_fact("call.sent_back", call=request.call, by=review.person, **told)


def respond_for_tool(request: ApprovalRequest, review: Review, *, now: datetime) -> None:
    """Complete the held call with a person's answer, in the standard shape and marked so: its tool does not run."""
    call = request.call
    query_type, parameters = call.asked
    value = json.loads(review.response)
    response = answer_response(query_type, parameters, value, tool_name=call.tool_name, responded=True)
    moved = try_move(
        Call.objects.filter(pk=call.pk),
        to=CallStatus.COMPLETED,
        response=json.dumps(response, ensure_ascii=False),
        message=attributed_comment("Answered", review, " in the tool's place; the tool did not run"),
        finished_at=now,
    )
    if moved:
        call.refresh_from_db(fields=["status", "response", "message", "finished_at"])
        record_fact("call.responded", call=call, by=review.person, approval=request.public_id)


def refusal_from_review(review: Review) -> Refusal:
    """Return the refusal that a rejection means: the reviewer's words, and what the tool has to say to it."""
    call = review.request.call
    tool = get_tool(call.tool_name)
    own = tool.rejection_message(call.arguments_json) if tool else ""
    message = attributed_comment("Rejected", review)
    return Refusal(REJECTED, f"{message} {own}" if own else message, review.person, review.effect)


def attributed_comment(what: str, review: Review, how: str = "") -> str:
    """Say who answered, and their comment word for word."""
    comment = review.comment.strip()
    return f"{what} by {user_display_name(review.person)}{how}" + (f": {comment}" if comment else ".")


def _fail(request: ApprovalRequest, refusal: Refusal, now: datetime) -> int:
    return try_move(
        Call.objects.filter(pk=request.call_id),
        to=CallStatus.FAILED,
        response=request.call.error_text(refusal.message),
        message=refusal.message,
        error_kind=refusal.error_kind,
        finished_at=now,
    )


PREVIOUSLY_REJECTED = "refused_before"


def find_previous_rejection(
    plan_ref: str, tool_name: str, schema: Mapping[str, Any], arguments: str, secrets: Sequence[Secret] = ()
) -> ApprovalRequest | None:
    """Return the first request about this that people rejected in the plan, once that took effect; None for none.

    `schema` is the tool's input schema: an argument that is left out counts as its default. `arguments` is their RFC
    8785 text with the `secrets` cut out: what was rejected under an earlier key counts too.
    """
    if not plan_ref:
        return None
    intents = [
        intent_digest_for(plan_ref, tool_name, text, schema) for text in variants_for_rotated_keys(arguments, secrets)
    ]
    refused = ApprovalRequest.objects.filter(plan_ref=plan_ref, status=RequestStatus.REJECTED)
    rejected = refused.filter(intent_digest__in=intents)
    return rejected.exclude(applied_at=None).order_by("pk").first()


def repeat_rejection(call: Call, first: ApprovalRequest) -> None:
    """Fail a call that was just stored, as its first request was refused; nobody is asked."""
    refusal = repeated_refusal(first)
    now = clock.now()
    moved = try_move(
        Call.objects.filter(pk=call.pk),
        to=CallStatus.FAILED,
        response=call.error_text(refusal.message),
        message=refusal.message,
        error_kind=refusal.error_kind,
        finished_at=now,
    )
    if moved:
        record_fact(
            "call.refused",
            call=call,
            approval=first.public_id,
            effect=refusal.effect,
            error=refusal.error_kind,
            message=refusal.message,
        )


def repeated_refusal(first: ApprovalRequest) -> Refusal:
    """Return the refusal that an earlier rejection means for whoever asks the same again."""
    rejections = Review.objects.filter(request=first, verdict=ReviewVerdict.REJECT, undone_at=None)
    review = rejections.select_related("person").order_by("pk").last()
    who = user_display_name(review.person) if review else "someone"
    reason = review.comment.strip() if review else ""
    words = f": {reason}" if reason else "."
    message = (
        "Refused again without asking. Ask for something else, or with other arguments: "
        f"{who} rejected exactly this in this plan before ({first.public_id}){words}"
    )
    return Refusal(PREVIOUSLY_REJECTED, message)
