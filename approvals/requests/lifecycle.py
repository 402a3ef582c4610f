"""Life of an approval request: opening, withdrawal, invalidation and replacement; `approvals.reviews` decides it.

Lock order: the plan (by `announce_call_change`), then the request, then the call. Requests about a changed tool are
invalidated later, each in its own transaction, so that a change of the catalog never waits for a plan.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, prefetch_related_objects
from pydantic_core import to_jsonable_python

from approvals.audit.log import SYSTEM_ACTOR
from approvals.audit.restore_guard import ensure_not_restored
from approvals.errors import Drift
from approvals.models import ApprovalRequest, Round
from approvals.policies.combined_rules import store_rule
from approvals.policies.eligibility import is_requester
from approvals.policies.rulebook import Rule, rule_from_revision
from approvals.requests.digests import ApprovalBinding, action_digest, call_digest, intent_digest
from approvals.requests.queries import status_sentence
from approvals.requests.text_warnings import is_deceptive
from approvals.states import OPEN, RequestStatus
from catalog.access.roles import NotAllowed, user_display_name
from catalog.calls import vault
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from catalog.core.transactions import move, retry_on_deadlock, run_each, try_move
from catalog.dispatch.arguments import stored_arguments, validator_of
from catalog.errors import Conflict, field_error
from catalog.models import Call
from catalog.results import Preview
from catalog.schemas.defaults import NO_DEFAULTS
from catalog.secrets.placeholders import redact_text
from catalog.signals import announce_call_change, record_fact
from catalog.states import CallStatus
from catalog.tools.registry import get_tool

MAX_COMMENT = 4000


def check_text(comment: str, field: str = "comment") -> None:
    """Raise ParameterError for a comment that is too long or cannot be stored; `field` is its name in the input."""
    if len(comment) > MAX_COMMENT:
        message = f"A comment can have at most {MAX_COMMENT:,} characters; this one has {len(comment):,}."
        raise field_error(field, "too_long", message)
    try:
        comment.encode()
        is_storable = "\x00" not in comment
    except UnicodeEncodeError:
        is_storable = False
    if not is_storable:
        message = "The comment contains characters that cannot be stored. Send plain text."
        raise field_error(field, "invalid", message)


CHANGED_PREFIX = "changed:"
"""Prefix of a call's error kind if its request was invalidated by a change; the `Drift` follows."""
ASKED_AGAIN = "asked_again"
"""Error kind of a call whose pre-approval ended unused; its step requests approval again when the step is ready."""
ASKS_AGAIN_DATA: dict[str, Any] = {"asks_again": True}
"""Data of the fact that ends such a call, so that the step does not end with the call."""


@dataclass(frozen=True, slots=True)
class RequestProvenance:
    """Origin of a request. `early_by` is the user who requested a pre-approval, None for an ordinary request.

    `input_authors` are keys of users who changed or answered earlier steps; at least one other user must approve.
    """

    early_by: "User | None" = None
    input_authors: Collection[int] = ()


def open_request(
    call: Call,
    *,
    rule: Rule,
    preview: Preview | None,
    now: datetime,
    provenance: RequestProvenance = RequestProvenance(),
) -> ApprovalRequest:
    """Open a request for a held call on the rule's terms, in the caller's transaction, whose time is `now`.

    With `provenance.early_by` it is a pre-approval: it is in no list and sends no reminders until the step is ready and
    `activate_pre_approval` is called.
    """
    early_by = provenance.early_by
    announce_call_change(call)
    rule = store_rule(rule)
    binding = ApprovalBinding(
        fingerprint=call.version.fingerprint,
        implementation_digest=call.implementation.digest if call.implementation else "",
        arguments=call.arguments,
        state_token=(preview.state_token or "") if preview else "",
    )
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
        input_authors=sorted(provenance.input_authors),
    )
    Round.objects.create(
        request=request,
        number=request.round_number,
        arguments=binding.arguments,
        defaults=request.call.defaults,
        omitted=request.call.omitted,
        digest=request.digest,
        preview=json.dumps(to_jsonable_python(preview)) if preview else "",
        state_token=binding.state_token,
        is_deceptive=is_deceptive(binding.arguments, request.call.reason),
        policy_revision_id=rule.revision_id,
        quorum=rule.quorum,
        created_at=request.opened_at,
    )
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
    """Turn a pre-approval into an ordinary request, since its step is ready. Raises Conflict if it was decided."""
    announce_call_change(request.call)
    rule = rule_from_revision(request.policy_revision)
    times = {
        "ready_at": now,
        "opened_at": now,
        "expires_at": now + timedelta(seconds=rule.expires_seconds),
        "remind_at": first_reminder(now, rule),
        "stopped_seconds": 0.0,
    }
    early = ApprovalRequest.objects.filter(pk=request.pk, status=RequestStatus.PENDING, is_early=True, ready_at=None)
    if not early.update(is_early=False, **times):
        raise Conflict("This request has been answered meanwhile.")
    request.refresh_from_db()
    _announce_opening("approval.opened", request, request.call.requested_by)


def lock_request(request: ApprovalRequest) -> ApprovalRequest:
    """Lock the plan and the request until the caller's transaction ends; return the current request."""
    announce_call_change(request.call)
    locked = ApprovalRequest.objects.select_for_update(of=("self",)).select_related("call").get(pk=request.pk)
    # Rows that never change are taken from the request read before: joining them makes this query expensive to build.
    for name in ("tool_version", "policy_revision"):
        if getattr(locked, f"{name}_id") == getattr(request, f"{name}_id"):
            setattr(locked, name, getattr(request, name))
    if locked.call.version_id == locked.tool_version_id:
        locked.call.version = locked.tool_version
    if locked.call.requested_by_id == request.call.requested_by_id:
        locked.call.requested_by = request.call.requested_by
    # The requesters never change after the request is opened: read them once for all four-eyes checks.
    prefetch_related_objects([request.call], "requesters")
    locked.call._prefetched_objects_cache = {"requesters": request.call.requesters.all()}  # type: ignore[attr-defined]
    return locked


def lock_pending(request: ApprovalRequest) -> ApprovalRequest:
    """Lock the request and return its current state. Raises Conflict if it is not pending."""
    current = lock_request(request)
    if current.status != RequestStatus.PENDING:
        raise Conflict(status_sentence(current))
    return current


def withdraw(request: ApprovalRequest, *, by: User, reason: str) -> None:
    """Withdraw one's own open request and cancel its call.

    Raises NotAllowed if `by` is not a requester, ParameterError for an invalid reason, Conflict if it is too late.
    """
    ensure_not_restored()
    if not is_requester(request, by):
        raise NotAllowed("Only a requester of the call may withdraw its request.")
    check_text(reason)
    try:
        withdraw_for_plan(request, by=by, reason=reason.strip())
    except Conflict:
        request.refresh_from_db()
        raise Conflict(f"This request can no longer be withdrawn. {status_sentence(request)}") from None


@retry_on_deadlock
def withdraw_for_plan(request: ApprovalRequest, *, by: "User | None", reason: str, asks_again: bool = False) -> None:
    """Withdraw an open request because its plan or step has ended. Raises Conflict if it is no longer open.

    The caller has checked that `by` may change the plan; None means that no user caused it. With `asks_again`, the step
    requests approval again once it is ready.
    """
    name, reason = user_display_name(by) if by else SYSTEM_ACTOR, redact_text(reason)
    message = f"Withdrawn by {name}: {reason}" if reason else f"Withdrawn by {name}."
    with transaction.atomic():
        announce_call_change(request.call)
        move(ApprovalRequest.objects.filter(pk=request.pk), to=RequestStatus.WITHDRAWN)
        _cancel(request, message, kind=ASKED_AGAIN if asks_again else "")
        details = {"approval": request.public_id, "reason": reason, "message": message}
        more = ASKS_AGAIN_DATA if asks_again else {}
        record_fact("approval.withdrawn", call=request.call, by=by, **details, **more)


def expire_pre_approval(request: ApprovalRequest, message: str) -> None:
    """Record the expiry of a pre-approval and cancel its call; its step requests approval again when it is ready."""
    _cancel(request, message, kind=ASKED_AGAIN)
    record_fact("approval.expired", call=request.call, approval=request.public_id, **ASKS_AGAIN_DATA)


def invalidate(request: ApprovalRequest, *, reason: str, drift: Drift = Drift.OTHER) -> None:
    """Invalidate an open request whose call has changed, and cancel the call with this reason."""
    with transaction.atomic():
        announce_call_change(request.call)
        move(ApprovalRequest.objects.filter(pk=request.pk), to=RequestStatus.INVALIDATED)
        _cancel(request, reason, kind=f"{CHANGED_PREFIX}{drift}")
        details: dict[str, Any] = {"approval": request.public_id, "reason": reason, "what": str(drift)}
        record_fact("approval.invalidated", call=request.call, **details)


def invalidate_and_reopen(request: ApprovalRequest, *, reason: str, drift: Drift = Drift.OTHER) -> bool:
    """Invalidate an open request, so that its step requests approval again; return False if it is too late."""
    try:
        with transaction.atomic():
            announce_call_change(request.call)
            invalidate(request, reason=reason, drift=drift)
            record_fact("call.voided", call=request.call)
    except Conflict:
        return False
    return True


def supersede(old_call: Call, new_request: ApprovalRequest) -> None:
    """Link the request of `old_call` to its replacement; an invalidated or sent-back one becomes superseded."""
    before = ApprovalRequest.objects.filter(call=old_call, superseded_by=None)
    if not try_move(before, to=RequestStatus.SUPERSEDED, superseded_by=new_request):
        before.update(superseded_by=new_request)


@dataclass(frozen=True, slots=True)
class RequestChange:
    """The change that invalidated a request and led to a new one: kind, reason, and a round of each request."""

    what: Drift
    reason: str
    before: Round
    after: Round
    was_approved: bool


def find_request_change(request: ApprovalRequest) -> RequestChange | None:
    """Return the change that invalidated the predecessor of this request; None if it has no invalidated predecessor."""
    if request.call.replaces_id is None:  # as on most pages, which then ask no more
        return None
    old = ApprovalRequest.objects.select_related("call").filter(superseded_by=request).first()
    if old is None or not old.call.error_kind.startswith(CHANGED_PREFIX):
        return None
    word = old.call.error_kind.removeprefix(CHANGED_PREFIX)
    drift = Drift(word) if word in set(map(str, Drift)) else Drift.OTHER
    before = old.rounds.get(number=old.round_number)
    return RequestChange(drift, old.call.message, before, request.rounds.get(number=1), old.decided_at is not None)


def _cancel(request: ApprovalRequest, message: str, *, kind: str = "") -> None:
    calls = Call.objects.filter(pk=request.call_id)
    move(calls, to=CallStatus.CANCELLED, message=message, error_kind=kind, finished_at=clock.now())


MAX_INVALIDATED_PER_TICK = 100


def invalidate_outdated(most: int = MAX_INVALIDATED_PER_TICK) -> int:
    """Invalidate and reopen open requests about outdated versions of their tools; return their number."""
    requests = ApprovalRequest.objects.filter(status__in=OPEN).order_by("pk")
    changed = ~Q(tool_version=F("tool_version__tool__current_version"))
    outdated = requests.filter(changed | Q(tool_version__tool__held_version__isnull=False))
    related = ("call__version", "tool_version__tool__current_version")
    invalidated = run_each(
        lambda request: invalidate_and_reopen(request, reason=_outdated_reason(request), drift=Drift.DEFINITION),
        outdated.select_related(*related)[:most],
    )
    return invalidated + run_each(
        _invalidate_unfilled, requests.filter(call__defaults=None).select_related(*related)[:most]
    )


UNFILLED = "The request did not show the default values of its arguments."


def _invalidate_unfilled(request: ApprovalRequest) -> bool:
    if hides_defaults(request.call):
        return invalidate_and_reopen(request, reason=UNFILLED, drift=Drift.ARGUMENTS)
    Call.objects.filter(pk=request.call_id, defaults=None).update(defaults=NO_DEFAULTS)
    return False


def hides_defaults(call: Call) -> bool:
    """Return True if a call was stored before defaults were filled in, and would run with defaults nobody saw."""
    tool = get_tool(call.tool_name) if call.defaults is None else None
    if tool is None or not tool.fills_defaults:
        return False
    arguments = vault.load_available(call.arguments, call.plan_ref)
    return len(stored_arguments(validator_of(call.version.input_schema), arguments, None).forms) > 1


def _outdated_reason(request: ApprovalRequest) -> str:
    before, tool = request.tool_version, request.tool_version.tool
    now = tool.current_version.number if tool.current_version else before.number
    if tool.held_version_id is not None:
        return f"The source of {tool.name} changed its definition while the request was open."
    return f"The definition of {tool.name} changed from version {before.number} to {now} while the request was open."


REMINDER_FRACTIONS = (0.5, 0.9)
"""Fractions of the time to answer after which reminders are sent."""


def first_reminder(opened: datetime, rule: Rule) -> datetime | None:
    """Return the time of the first reminder of a request opened now; None if the rule sends none."""
    return next_reminder(opened, opened + timedelta(seconds=rule.expires_seconds), opened) if rule.remind else None


def next_reminder(opened: datetime, expires: datetime, after: datetime) -> datetime | None:
    """Return the time of the first reminder after `after`, None if none is left; an escalation resets `opened`."""
    moments = (opened + (expires - opened) * part for part in REMINDER_FRACTIONS)
    return next((moment for moment in moments if moment > after), None)
