"""Refusal memory: what people rejected in a plan is refused there again at once, with the first reason.

The same tool with the same arguments in the same plan, whichever step or call asks. Only rejections count: nobody's
silence, and no wish for changes. A direct call is a plan of its own, so it is remembered where it joins a plan.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from approvals.digests import intent_of
from approvals.models import ApprovalRequest, Review
from approvals.outcomes import Refusal
from approvals.states import RequestStatus, Verdict
from catalog.access.roles import name_of
from catalog.calls.vault import under_every_key
from catalog.core import clock
from catalog.core.transactions import try_move
from catalog.models import Call
from catalog.secrets.placeholders import Secret
from catalog.signals import record
from catalog.states import CallStatus

REFUSED_BEFORE = "refused_before"


def refused_before(
    plan_ref: str, tool_name: str, schema: Mapping[str, Any], arguments: str, secrets: Sequence[Secret] = ()
) -> ApprovalRequest | None:
    """Return the first request about this that people rejected in the plan, once that took effect; None for none.

    `schema` is the tool's input schema: an argument that is left out counts as its default. `arguments` is their RFC
    8785 text with the `secrets` cut out: what was rejected under an earlier key counts too.
    """
    if not plan_ref:
        return None
    intents = [intent_of(plan_ref, tool_name, text, schema) for text in under_every_key(arguments, secrets)]
    refused = ApprovalRequest.objects.filter(plan_ref=plan_ref, status=RequestStatus.REJECTED)
    rejected = refused.filter(intent_digest__in=intents)
    return rejected.exclude(applied_at=None).order_by("pk").first()


def refuse_again(call: Call, first: ApprovalRequest) -> None:
    """Fail a call that was just stored, as its first request was refused; nobody is asked."""
    refusal = refusal_of(first)
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
        record(
            "call.refused",
            call=call,
            approval=first.public_id,
            effect=refusal.effect,
            error=refusal.error_kind,
            message=refusal.message,
        )


def refusal_of(first: ApprovalRequest) -> Refusal:
    """Return the refusal that an earlier rejection means for whoever asks the same again."""
    rejections = Review.objects.filter(request=first, verdict=Verdict.REJECT, undone_at=None)
    review = rejections.select_related("person").order_by("pk").last()
    who = name_of(review.person) if review else "someone"
    reason = review.comment.strip() if review else ""
    words = f": {reason}" if reason else "."
    message = (
        "Refused again without asking. Ask for something else, or with other arguments: "
        f"{who} rejected exactly this in this plan before ({first.public_id}){words}"
    )
    return Refusal(REFUSED_BEFORE, message)
