"""Approval requests from their opening to their ends other than a decision: withdrawn, invalidated, superseded.

Lock order: `announce` lets the plan be locked first, then the request, then the call. Requests about a tool that has
changed since are invalidated after the change, each in its own transaction, so that a change of the catalog never waits
for a plan.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, prefetch_related_objects
from pydantic_core import to_jsonable_python

from approvals.audit.log import SYSTEM_ACTOR
from approvals.audit.restore_guard import ensure_not_restored
from approvals.errors import Drift
from approvals.models import ApprovalRequest, Round
from approvals.policies.eligibility import is_requester
from approvals.policies.rulebook import Rule, rule_from_revision
from approvals.requests.digests import ApprovalBinding, action_digest, call_digest, intent_digest
from approvals.requests.queries import status_sentence
from approvals.states import OPEN, RequestStatus
from catalog.access.roles import NotAllowed, user_display_name
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import move, retry_on_deadlock, run_each, try_move
from catalog.errors import Conflict, field_error
from catalog.models import Call
from catalog.results import Preview
from catalog.secrets.placeholders import redact_text
from catalog.signals import announce_call_change, record_fact
from catalog.states import CallStatus

MAX_COMMENT = 4000


def check_text(comment: str, field: str = "comment") -> None:
    """Refuse a comment that is too long or cannot be stored; `field` is where it stands in what was sent."""
    if len(comment) > MAX_COMMENT:
        message = f"A comment has at most {MAX_COMMENT:,} characters; this one has {len(comment):,}."
        raise field_error(field, "too_long", message)
    if "\x00" in comment or not _is_encodable(comment):
        message = "The comment holds characters that cannot be stored; send plain text."
        raise field_error(field, "invalid", message)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


CHANGED_PREFIX = "changed:"
"""Leads the kind of error of a call whose request came to nothing because something changed; then follows what."""
ASKED_AGAIN = "asked_again"
"""The kind of error of a call that was asked about early and came to nothing: its step asks when it is ready."""
ASKS_AGAIN_DATA: dict[str, Any] = {"asks_again": True}
"""What a fact says of such a call: its step is not ended with it."""


@dataclass(frozen=True, slots=True)
class RequestProvenance:
    """The origin of a request: who asks for it before its step is ready, and by whose work its call came by values.

    Those are the keys of `input_authors`, who are not the only ones to approve it.
    """

    early_by: "User | None" = None
    input_authors: Collection[int] = ()


def open_request(
    call: Call,
    *,
    rule: Rule,
    preview: Preview | None,
    now: datetime,
    background: RequestProvenance = RequestProvenance(),
) -> ApprovalRequest:
    """Ask people about a held call, on the rule's terms, in the caller's transaction, whose time is `now`.

    One that a person has asked early, before its step is ready, is in no list and reminds nobody until
    `activate_pre_approval`.
    """
    early_by = background.early_by
    announce_call_change(call)
    binding = _binding(call, preview)
    request = ApprovalRequest.objects.create(
        call=call,
        digest=action_digest(call, binding, rule),
        intent_digest=intent_digest(call),
        policy_revision_id=rule.revision_id,
        tool_version=call.version,
        plan_ref=call.plan_ref,
        opened_at=now,
        likeness=call_digest(call),
        expires_at=now + timedelta(seconds=rule.expires_seconds),
        remind_at=None if early_by else first_reminder(now, rule),
        is_early=early_by is not None,
        input_authors=sorted(background.input_authors),
    )
    _first_round(request, binding, rule, preview)
    if early_by is not None:
        _announce_opening("approval.prepared", request, early_by)
    else:
        _announce_opening("approval.opened", request, call.requested_by)
    return request


def _announce_opening(kind: str, request: ApprovalRequest, by: "User | None") -> None:
    record_fact(
        kind,
        call=request.call,
        by=by,
        approval=request.public_id,
        digest=request.digest,
        expires_at=format_utc(request.expires_at),
    )


def activate_pre_approval(request: ApprovalRequest, now: datetime) -> None:
    """Let a request that was made early, and that nobody has decided, wait as any other does: its step is ready."""
    announce_call_change(request.call)
    rule = rule_from_revision(request.policy_revision)
    times = {
        "ready_at": now,
        "opened_at": now,
        "expires_at": now + timedelta(seconds=rule.expires_seconds),
        "remind_at": first_reminder(now, rule),
    }
    early = ApprovalRequest.objects.filter(pk=request.pk, status=RequestStatus.PENDING, is_early=True, ready_at=None)
    if not early.update(is_early=False, **times):
        raise Conflict("This request was answered meanwhile.")
    request.refresh_from_db()
    _announce_opening("approval.opened", request, request.call.requested_by)


def _binding(call: Call, preview: Preview | None) -> ApprovalBinding:
    return ApprovalBinding(
        fingerprint=call.version.fingerprint,
        implementation_digest=call.implementation.digest if call.implementation else "",
        arguments=call.arguments,
        state_token=(preview.state_token or "") if preview else "",
    )


def _first_round(request: ApprovalRequest, binding: ApprovalBinding, rule: Rule, preview: Preview | None) -> None:
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


def lock_request(request: ApprovalRequest) -> ApprovalRequest:
    """Return the request as it is now, its plan and itself locked until the caller's transaction ends."""
    announce_call_change(request.call)
    locked = ApprovalRequest.objects.select_for_update(of=("self",)).select_related("call").get(pk=request.pk)
    # Rows that never change are taken from the request read before: joining them makes this query expensive to build.
    for name in ("tool_version", "policy_revision"):
        if getattr(locked, f"{name}_id") == getattr(request, f"{name}_id"):
            setattr(locked, name, getattr(request, name))
    if locked.call.requested_by_id == request.call.requested_by_id:
        locked.call.requested_by = request.call.requested_by
    prefetch_related_objects([request.call], "requesters")
    locked.call._prefetched_objects_cache = {"requesters": request.call.requesters.all()}  # type: ignore[attr-defined]
    return locked


def withdraw(request: ApprovalRequest, *, by: User, reason: str) -> None:
    """Take one's own open request back: its call is cancelled.

    Raises NotAllowed for who did not ask for the call, ParameterError for the reason, and Conflict when the request is
    no longer open, or the database was set back.
    """
    ensure_not_restored()
    if not is_requester(request, by):
        raise NotAllowed("Only who asked for the call may withdraw its request.")
    check_text(reason)
    try:
        withdraw_for_plan(request, by=by, reason=reason.strip())
    except Conflict:
        request.refresh_from_db()
        raise Conflict(f"There is nothing to withdraw. {status_sentence(request)}") from None


@retry_on_deadlock
def withdraw_for_plan(request: ApprovalRequest, *, by: "User | None", reason: str, asks_again: bool = False) -> None:
    """Withdraw an open request because of what became of its plan or step. Raises Conflict when it is no longer open.

    `by` may do to the plan what they did: the caller has seen to that. None: no person did, but time. With
    `asks_again` its step, which is not ready yet, asks when it is.
    """
    name, reason = user_display_name(by) if by else SYSTEM_ACTOR, redact_text(reason)
    message = f"Withdrawn by {name}: {reason}" if reason else f"Withdrawn by {name}."
    with transaction.atomic():
        announce_call_change(request.call)
        move(ApprovalRequest.objects.filter(pk=request.pk), to=RequestStatus.WITHDRAWN)
        _cancel(request, message, kind=ASKED_AGAIN if asks_again else "")
        told = {"approval": request.public_id, "reason": reason, "message": message}
        more = ASKS_AGAIN_DATA if asks_again else {}
        record_fact("approval.withdrawn", call=request.call, by=by, **told, **more)


def expire_pre_approval(request: ApprovalRequest, message: str) -> None:
    """Record that a request which was asked early has expired, and cancel its call: its step asks when it is ready."""
    _cancel(request, message, kind=ASKED_AGAIN)
    record_fact("approval.expired", call=request.call, approval=request.public_id, **ASKS_AGAIN_DATA)


def invalidate(request: ApprovalRequest, *, reason: str, what: Drift = Drift.OTHER) -> None:
    """End an open request whose call may not run as it was approved: the call is cancelled, and says what differs."""
    with transaction.atomic():
        announce_call_change(request.call)
        move(ApprovalRequest.objects.filter(pk=request.pk), to=RequestStatus.INVALIDATED)
        _cancel(request, reason, kind=f"{CHANGED_PREFIX}{what}")
        record_fact(
            "approval.invalidated", call=request.call, approval=request.public_id, reason=reason, what=str(what)
        )


def invalidate_and_reopen(request: ApprovalRequest, *, reason: str, what: Drift = Drift.OTHER) -> bool:
    """End an open request, in a transaction of its own, and have its call asked for anew.

    Return False, with nothing done, when it was answered, withdrawn or started meanwhile.
    """
    try:
        with transaction.atomic():
            announce_call_change(request.call)
            invalidate(request, reason=reason, what=what)
            record_fact("call.voided", call=request.call)
    except Conflict:
        return False
    return True


def supersede(old: Call, new: ApprovalRequest) -> None:
    """Let whoever follows the request of `old`, if it had one, arrive at `new`.

    One that has come to nothing is superseded by it; one that was rejected, used or ended otherwise stays what it is.
    """
    before = ApprovalRequest.objects.filter(call=old, superseded_by=None)
    if not try_move(before, to=RequestStatus.SUPERSEDED, superseded_by=new):
        before.update(superseded_by=new)


@dataclass(frozen=True, slots=True)
class RequestChange:
    """Why a request took the place of another: what differs, in a sentence, and what was asked before and is now."""

    what: Drift
    reason: str
    before: Round
    after: Round
    was_approved: bool


def find_request_change(request: ApprovalRequest) -> RequestChange | None:
    """Return what changed since the request that this one replaces was open; None where nothing did, or none was."""
    old = ApprovalRequest.objects.select_related("call").filter(superseded_by=request).first()
    if old is None or not old.call.error_kind.startswith(CHANGED_PREFIX):
        return None
    word = old.call.error_kind.removeprefix(CHANGED_PREFIX)
    what = Drift(word) if word in set(map(str, Drift)) else Drift.OTHER
    before = old.rounds.get(number=old.round_number)
    return RequestChange(what, old.call.message, before, request.rounds.get(number=1), old.decided_at is not None)


def _cancel(request: ApprovalRequest, message: str, *, kind: str = "") -> None:
    calls = Call.objects.filter(pk=request.call_id)
    move(calls, to=CallStatus.CANCELLED, message=message, error_kind=kind, finished_at=clock.now())


MAX_INVALIDATED_PER_TICK = 100


def invalidate_outdated(most: int = MAX_INVALIDATED_PER_TICK) -> int:
    """End open requests about earlier versions of their tools; return how many were. Their calls are asked for anew."""
    requests = ApprovalRequest.objects.filter(status__in=OPEN)
    outdated = requests.exclude(tool_version=F("tool_version__tool__current_version")).order_by("pk")
    found = outdated.select_related("call", "tool_version__tool__current_version")[:most]
    return run_each(
        lambda request: invalidate_and_reopen(request, reason=_outdated_reason(request), what=Drift.DEFINITION), found
    )


def _outdated_reason(request: ApprovalRequest) -> str:
    before, tool = request.tool_version, request.tool_version.tool
    now = tool.current_version.number if tool.current_version else before.number
    return f"The definition of {tool.name} changed from version {before.number} to {now} while this waited."


REMINDER_FRACTIONS = (0.5, 0.9)
"""Which parts of the time to answer have passed."""


def first_reminder(opened: datetime, rule: Rule) -> datetime | None:
    """Return when a request opened now is first to be spoken of again; None for never."""
    return next_reminder(opened, opened + timedelta(seconds=rule.expires_seconds), opened) if rule.remind else None


def next_reminder(opened: datetime, expires: datetime, after: datetime) -> datetime | None:
    """Return the first moment to remind that is later than `after`; None when there is none left.

    `opened`: when the time to answer began, which is anew where a request was escalated.
    """
    moments = (opened + (expires - opened) * part for part in REMINDER_FRACTIONS)
    return next((moment for moment in moments if moment > after), None)
