"""Approval requests from their opening to their ends other than a decision: withdrawn, invalidated, superseded.

Lock order: `announce` lets the plan be locked first, then the request, then the call.
"""

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from pydantic_core import to_jsonable_python

from approvals.audit import NOBODY
from approvals.digests import Binding, action_digest, intent_digest
from approvals.models import ApprovalRequest, Round
from approvals.policy import Rule
from approvals.states import RequestStatus
from catalog import clock
from catalog.access import name_of
from catalog.canonical import time_text
from catalog.facts import announce, record
from catalog.models import Call
from catalog.results import Preview
from catalog.retries import retried
from catalog.states import CallStatus
from catalog.transitions import move

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def open_request(call: Call, *, rule: Rule, preview: Preview | None) -> ApprovalRequest:
    """Ask people about a held call, on the rule's terms, in the caller's transaction."""
    announce(call)
    now = clock.now()
    binding = _binding(call, preview)
    request = ApprovalRequest.objects.create(
        call=call,
        digest=action_digest(call, binding, rule),
        intent_digest=intent_digest(call),
        policy_revision_id=rule.revision_id,
        tool_version=call.version,
        plan_ref=call.plan_ref,
        opened_at=now,
        expires_at=now + timedelta(seconds=rule.expires_seconds),
    )
    _first_round(request, binding, rule, preview)
    record(
        "approval.opened",
        call=call,
        by=call.requested_by,
        approval=request.public_id,
        digest=request.digest,
        expires_at=time_text(request.expires_at),
    )
    return request


def _binding(call: Call, preview: Preview | None) -> Binding:
    return Binding(
        fingerprint=call.version.fingerprint,
        implementation_digest=call.implementation.digest if call.implementation else "",
        arguments=call.arguments,
        state_token=(preview.state_token or "") if preview else "",
    )


def _first_round(request: ApprovalRequest, binding: Binding, rule: Rule, preview: Preview | None) -> None:
    Round.objects.create(
        request=request,
        number=request.round_number,
        arguments=binding.arguments,
        digest=request.digest,
        preview=json.dumps(to_jsonable_python(preview)) if preview else "",
        state_token=binding.state_token,
        policy_revision_id=rule.revision_id,
        quorum=rule.quorum,
        created_at=request.opened_at,
    )


def locked(request: ApprovalRequest) -> ApprovalRequest:
    """Return the request as it is now, its plan and itself locked until the caller's transaction ends."""
    announce(request.call)
    related = ("call", "tool_version", "policy_revision__policy")
    rows = ApprovalRequest.objects.select_for_update(of=("self",)).select_related(*related)
    return rows.get(pk=request.pk)


@retried
def withdraw(request: ApprovalRequest, *, by: "User | None", reason: str) -> None:
    """Take an open request back: its call is cancelled. Raises Conflict when it is no longer open.

    Whether `by` may is the caller's to check: who asked, or who may cancel the plan. None: no person did, but time.
    """
    name = name_of(by) if by else NOBODY
    message = f"Withdrawn by {name}: {reason}" if reason else f"Withdrawn by {name}."
    with transaction.atomic():
        announce(request.call)
        move(ApprovalRequest.objects.filter(pk=request.pk), to=RequestStatus.WITHDRAWN)
        _cancel(request, message)
        told = {"approval": request.public_id, "reason": reason, "message": message}
        record("approval.withdrawn", call=request.call, by=by, **told)


def invalidate(request: ApprovalRequest, *, reason: str) -> None:
    """End an open request whose call may not run as it was approved: the call is cancelled."""
    with transaction.atomic():
        announce(request.call)
        move(ApprovalRequest.objects.filter(pk=request.pk), to=RequestStatus.INVALIDATED)
        _cancel(request, reason)
        record("approval.invalidated", call=request.call, approval=request.public_id, reason=reason)


def supersede(old: Call, new: ApprovalRequest) -> None:
    """Let whoever follows the request of `old`, if it had one, arrive at `new`."""
    ApprovalRequest.objects.filter(call=old, superseded_by=None).update(superseded_by=new)


def _cancel(request: ApprovalRequest, message: str) -> None:
    calls = Call.objects.filter(pk=request.call_id)
    move(calls, to=CallStatus.CANCELLED, message=message, finished_at=clock.now())
