"""Effect of an answer on the held call: it is released, gets an answer instead of the tool, is sent back, or fails.

A call that has ended meanwhile is left unchanged. If a rejected call is requested again in the same plan with the same
tool and arguments, it is refused at once with the first reason.
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
"""Error kind of a call whose reviewer requested changes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a held call will not run; `effect`: the step fails, is skipped, or cancels its plan."""

    error_kind: str
    message: str
    by: "User | None" = None
    effect: str = FAIL


def release_call(request: ApprovalRequest, *, by: "User | None") -> None:
    if try_move(Call.objects.filter(pk=request.call_id), to=CallStatus.READY):
        record_fact("call.released", call=request.call, by=by, approval=request.public_id)


def _fail(call: Call, refusal: Refusal, now: datetime) -> int:
    return try_move(
        Call.objects.filter(pk=call.pk),
        to=CallStatus.FAILED,
        response=call.error_text(refusal.message),
        message=refusal.message,
        error_kind=refusal.error_kind,
        finished_at=now,
    )


def refuse_call(request: ApprovalRequest, refusal: Refusal, *, now: datetime) -> None:
    """Fail the held call; the refusal's effect defines what happens to its step."""
    if _fail(request.call, refusal, now):
        details = {"approval": request.public_id, "effect": refusal.effect, "message": refusal.message}
        record_fact("call.refused", call=request.call, by=refusal.by, **details)


def send_back_call(request: ApprovalRequest, review: Review, *, now: datetime) -> None:
    """Fail the held call with the requested changes, so that the requester can submit a new one."""
    refusal = Refusal(SENT_BACK, attributed_comment("Changes requested", review), review.person)
    if _fail(request.call, refusal, now):
        details = {"approval": request.public_id, "message": refusal.message}
        record_fact("call.sent_back", call=request.call, by=review.person, **details)


def respond_for_tool(request: ApprovalRequest, review: Review, *, now: datetime) -> None:
    """Complete the held call with a reviewer's answer, marked as such; the tool does not run."""
    call = request.call
    query_type, parameters = call.response_parameters
    value = json.loads(review.response)
    response = answer_response(query_type, parameters, value, tool_name=call.tool_name, responded=True)
    moved = try_move(
        Call.objects.filter(pk=call.pk),
        to=CallStatus.COMPLETED,
        response=json.dumps(response, ensure_ascii=False),
        message=attributed_comment("Answered", review, " instead of the tool, which did not run"),
        finished_at=now,
    )
    if moved:
        call.refresh_from_db(fields=["status", "response", "message", "finished_at"])
        record_fact("call.responded", call=call, by=review.person, approval=request.public_id)


def refusal_from_review(review: Review) -> Refusal:
    """Return the refusal for a rejection: the reviewer's comment, followed by the tool's own message if it has one."""
    call = review.request.call
    tool = get_tool(call.tool_name)
    own = tool.rejection_message(call.arguments_json) if tool else ""
    message = attributed_comment("Rejected", review)
    return Refusal(REJECTED, f"{message} {own}" if own else message, review.person, review.effect)


def attributed_comment(what: str, review: Review, how: str = "") -> str:
    """Return a message with the reviewer's name and verbatim comment."""
    comment = review.comment.strip()
    return f"{what} by {user_display_name(review.person)}{how}" + (f": {comment}" if comment else ".")


PREVIOUSLY_REJECTED = "refused_before"


def find_previous_rejection(
    plan_ref: str, tool_name: str, schema: Mapping[str, Any], arguments: str, secrets: Sequence[Secret] = ()
) -> ApprovalRequest | None:
    """Return the plan's first request for this tool and these arguments whose rejection took effect, or None.

    Missing arguments count as their defaults in `schema`, the tool's input schema. `arguments` is RFC 8785 text with
    the `secrets` cut out; rejections from before a rotation of the encryption key are found too.
    """
    if not plan_ref:
        return None
    intents = [
        intent_digest_for(plan_ref, tool_name, text, schema) for text in variants_for_rotated_keys(arguments, secrets)
    ]
    refused = ApprovalRequest.objects.filter(plan_ref=plan_ref, status=RequestStatus.REJECTED)
    rejected = refused.filter(intent_digest__in=intents)
    return rejected.exclude(applied_at=None).order_by("pk").first()


def repeat_rejection(call: Call, rejected_request: ApprovalRequest) -> None:
    """Fail a newly stored call because the same call was rejected before; no reviewer is asked."""
    refusal = repeated_refusal(rejected_request)
    if _fail(call, refusal, clock.now()):
        details: dict[str, Any] = {"effect": refusal.effect, "error": refusal.error_kind, "message": refusal.message}
        record_fact("call.refused", call=call, approval=rejected_request.public_id, **details)


def repeated_refusal(rejected_request: ApprovalRequest) -> Refusal:
    rejections = Review.objects.filter(request=rejected_request, verdict=ReviewVerdict.REJECT, undone_at=None)
    review = rejections.select_related("person").order_by("pk").last()
    who = user_display_name(review.person) if review else "someone"
    reason = review.comment.strip() if review else ""
    words = f": {reason}" if reason else "."
    message = (
        "Refused without a new request, because the same call was rejected before in this plan. Change the call or its "
        f"arguments. {who} rejected it ({rejected_request.public_id}){words}"
    )
    return Refusal(PREVIOUSLY_REJECTED, message)
