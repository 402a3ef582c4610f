"""Life of an envelope: proposed with its request, opened by the start of its approved call, used up, ended or refused.

A proposal is a held call of `propose_envelope`: reviews, edits, undo and expiry are those of every request. Rows of
envelopes change under the lock of the audit head, like those of grants.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet, Subquery

from approvals.grants.services import digests_in_use
from approvals.models import ApprovalRequest, Envelope, EnvelopeItem, Instance, Stop
from approvals.policies.eligibility import eligible_members
from approvals.policies.quorum import unmet_stages
from approvals.policies.rulebook import rule_from_revision
from approvals.policy_language.envelopes import Proposal, check_end, decimal_text, read_proposal
from approvals.policy_language.stages import people_in_words
from approvals.requests import lifecycle
from approvals.requests.lifecycle import check_text
from approvals.states import OPEN
from approvals.stops.standing import StopFacts, covers
from catalog.access.roles import (
    ADMINISTRATOR,
    REVIEWER,
    NotAllowed,
    agent_token_of,
    can_see_all,
    has_role,
    user_display_name,
)
from catalog.calls import vault
from catalog.core import clock
from catalog.core.transactions import retry_on_deadlock, run_each, try_move
from catalog.errors import Conflict, field_error
from catalog.models import ApiToken, Call, Tool
from catalog.rest.idempotency import record_done
from catalog.secrets.placeholders import redact_text, without_macs
from catalog.signals import record_fact
from catalog.states import TERMINAL

Status = Envelope.Status
Scope = Envelope.Scope
TIME_OVER = "Its time is over."
PROPOSAL_TIME_OVER = "Its time was over before it was approved."
TOOL_CHANGED = "The definition or the code of {tool} has changed since the envelope was opened."
TOKENLESS = "Its token has ended."
BATCH = 100
STOPPED = "A stop was set: {reason}"
PlanOwner = Callable[[str], int | None]
_plan_owners: list[PlanOwner] = []
FindMakers = Callable[[Envelope], Collection[StopFacts]]
_find_makers: list[FindMakers] = []


def register_plan_owner(owner: PlanOwner) -> None:
    """Register a function that returns the key of the person who makes a plan's calls, None for a call's own plan."""
    _plan_owners[:] = [owner]


def register_envelope_makers(find: FindMakers) -> None:
    """Register the function that returns for whom, and by which tokens and agents, calls of an envelope are made.

    It replaces an earlier one. Its facts have no tool.
    """
    _find_makers[:] = [find]


def envelopes_for(viewer: User) -> QuerySet[Envelope]:
    """Return the envelopes that the viewer may see: all for people with a role, otherwise one's own.

    An agent's token sees those that it proposed.
    """
    related = ("call__token", "requester", "ended_by", "token", "call__approval")
    envelopes = Envelope.objects.select_related(*related).order_by("-pk")
    token = agent_token_of(viewer)
    if token is not None:
        return envelopes.filter(call__token=token)
    return envelopes if can_see_all(viewer) else envelopes.filter(call__requesters__user=viewer.pk)


def proposal_of(envelope: Envelope) -> Proposal:
    """Return the proposal as it stands, with the edits of reviewers. Raises ParameterError for a broken row."""
    return read_proposal(envelope.call.arguments_json)


def may_end(envelope: Envelope, by: User) -> bool:
    """Return True if the user may end the envelope: who proposed it, also by the same token, or a reviewer."""
    token = agent_token_of(by)
    if token is not None:
        return envelope.call.token_id == token.pk
    is_own = by.pk in {envelope.requester_id, *(each.user_id for each in envelope.call.requesters.all())}
    return is_own or has_role(by, REVIEWER, ADMINISTRATOR)


@retry_on_deadlock
def end_envelope(envelope: Envelope, *, reason: str, by: User) -> Envelope:
    """End an open envelope. Raises NotAllowed, ParameterError for a missing reason, and Conflict if it is not open."""
    if not may_end(envelope, by):
        raise NotAllowed("Only the person or token that proposed an envelope, reviewers and administrators may end it.")
    check_text(reason, "reason")
    if not reason.strip():
        raise field_error("reason", "required", "Say why the envelope ends.")
    because = f"Ended by {user_display_name(by)}: {redact_text(reason.strip())}"
    with transaction.atomic():
        if not close_envelope(envelope, because, by=by):
            envelope.refresh_from_db()
            remedy = " Withdraw its request instead." if envelope.status == Status.PROPOSED else ""
            raise Conflict(f"This envelope is {envelope.get_status_display().lower()}, not open.{remedy}")
        record_done(envelope.public_id)
    envelope.refresh_from_db()
    return envelope


def close_envelope(envelope: Envelope, because: str, *, by: User | None = None) -> bool:
    """End an open envelope; return False if it is not open. Takes the audit head's lock."""
    with transaction.atomic():
        _lock_instance()
        going = Envelope.objects.filter(pk=envelope.pk)
        if not try_move(going, to=Status.ENDED, ended_at=clock.now(), ended_by=by, ended_because=because):
            return False
        record_fact("envelope.ended", by=by, envelope=envelope.public_id, reason=because)
    return True


def open_envelope(call: Call, now: datetime) -> None:
    """Open the envelope that this call proposes, in the transaction that starts the call; once, whatever is repeated.

    An envelope whose time is over ends instead; one whose tools are gone raises ParameterError.
    """
    instance = _lock_instance()
    envelope = Envelope.objects.select_related("call").get(call=call)
    if envelope.expires_at <= now:
        refuse_proposal(call, PROPOSAL_TIME_OVER)
        return
    waiting = Envelope.objects.filter(pk=envelope.pk)
    if not try_move(waiting, to=Status.OPEN, opened_at=now, epoch=instance.epoch):
        return
    proposal = read_proposal(vault.load_available(call.arguments, call.plan_ref))
    names = {item.tool for item in proposal.items}
    tools = {tool.name: tool for tool in Tool.objects.select_related("current_version").filter(name__in=names)}
    digests = {name: digests_in_use(tool) for name, tool in tools.items()}
    rows = []
    for number, item in enumerate(proposal.items):
        tool = tools.get(item.tool)
        if tool is None or tool.current_version is None:
            raise field_error(f"items.{number}.tool", "unknown", f"The tool {item.tool} is gone.")
        limit = item.sum
        rows.append(
            EnvelopeItem(
                envelope=envelope,
                number=number,
                tool=tool,
                fingerprint=tool.current_version.fingerprint,
                implementation_digests=digests[item.tool],
                conditions=list(item.conditions),
                count=item.count,
                sum_path="" if limit is None else limit.path,
                at_most="" if limit is None else decimal_text(limit.at_most),
            )
        )
    EnvelopeItem.objects.bulk_create(rows)
    record_fact("envelope.opened", by=call.requested_by, envelope=envelope.public_id, items=len(rows))


def _lock_instance() -> Instance:
    """Lock and return this installation's row (the audit head). It must be locked before any envelope."""
    return Instance.objects.select_for_update().get(pk=1)


def propose(request: ApprovalRequest) -> None:
    """Store the envelope that a held call proposes, in the transaction that opens its request.

    Raises ParameterError for an end that has passed, and if nobody but its proposers could approve it.
    """
    call = request.call
    assert call.requested_by is not None  # noqa: S101 (every held call has a requester)
    if Envelope.objects.filter(call=call).exists():
        return
    proposal = read_proposal(vault.load_available(call.arguments, call.plan_ref))
    check_end(proposal, call.created_at, now=call.created_at)
    scope, ref = _scope_of(proposal, call, call.requested_by)
    _require_other_reviewers(request)
    envelope = Envelope.objects.create(
        call=call,
        purpose=json.loads(without_macs(call.arguments))["purpose"].strip(),
        scope=scope,
        scope_ref=ref,
        token_id=int(ref) if scope == Scope.TOKEN else None,
        requester=call.requested_by,
        epoch=_lock_instance().epoch,
        proposed_at=call.created_at,
        expires_at=proposal.end(call.created_at),
    )
    details: dict[str, Any] = {
        "approval": request.public_id,
        "scope": scope,
        "scope_ref": ref,
        "items": len(proposal.items),
    }
    record_fact("envelope.proposed", by=call.requested_by, envelope=envelope.public_id, **details)


def _scope_of(proposal: Proposal, call: Call, person: User) -> tuple[Envelope.Scope, str]:
    """Return whose calls the envelope would cover: by default those of an agent's token, or of the call's plan."""
    is_agent = call.token is not None and call.token.kind == ApiToken.Kind.AGENT
    named = proposal.scope
    if is_agent:
        if named is not None and (named[0] != Scope.TOKEN or named[1] != str(call.token_id)):
            message = "An agent proposes envelopes for its own token only. Leave this out."
            raise field_error("for", "not_yours", message)
        return Scope.TOKEN, str(call.token_id)
    if named is None:
        if _plan_owners[0](call.plan_ref) is None:
            raise field_error("for", "required", f"Name one of {', '.join(Scope.values)}: whose calls it is for.")
        return Scope.PLAN, call.plan_ref
    kind, ref = named
    if kind == Scope.TOKEN:
        live = ApiToken.objects.filter(pk=ref, user=person, revoked_at=None, expires_at__gt=clock.now())
        if not live.exists():
            raise field_error("for.token", "not_yours", "You have no valid token with this number.")
    elif kind == Scope.PLAN and _plan_owners[0](ref) != person.pk:
        raise field_error("for.plan", "not_yours", "You have no plan with this id whose calls are made in your name.")
    return Scope(kind), str(ref)


def _require_other_reviewers(request: ApprovalRequest) -> None:
    """Raise ParameterError if the people who may decide, without the proposers, are too few for the request's rule."""
    rule = rule_from_revision(request.policy_revision)
    proposers = {each.user_id for each in request.call.requesters.all()}
    people = eligible_members(rule, without=() if rule.allow_self_review else proposers)
    if unmet_stages(rule, people):
        message = (
            f"This needs approval by {people_in_words(rule.stages)}, and apart from those who propose it there are not "
            "so many. An administrator can add people to the group."
        )
        raise field_error("items", "no_reviewers", message)


def follow_edit(call: Call) -> None:
    """Take over the end from the edited arguments of a proposal; its items follow when it opens."""
    envelope = Envelope.objects.get(call=call)
    arguments = Call.objects.values_list("arguments", flat=True).get(pk=call.pk)
    end = read_proposal(vault.load_available(arguments, call.plan_ref)).end(envelope.proposed_at)
    Envelope.objects.filter(pk=envelope.pk, status=Status.PROPOSED).update(expires_at=end)
    record_fact("envelope.edited", envelope=envelope.public_id)


def refuse_proposal(call: Call, because: str) -> None:
    """Mark the envelope of a proposal that was not approved, or was not opened in time."""
    waiting = Envelope.objects.filter(call=call)
    public_id = waiting.values_list("public_id", flat=True).first()
    if public_id and try_move(waiting, to=Status.REFUSED, ended_at=clock.now(), ended_because=because):
        record_fact("envelope.refused", envelope=public_id, reason=because)


def end_of_changed_tool(name: str) -> None:
    """End the open envelopes with calls of a tool whose definition or code has changed."""
    items = EnvelopeItem.objects.filter(tool__name=name, envelope__status=Status.OPEN)
    for item in items.select_related("tool__current_version", "envelope").order_by("envelope_id"):
        if has_changed(item):
            close_envelope(item.envelope, TOOL_CHANGED.format(tool=name))


def has_changed(item: EnvelopeItem) -> bool:
    """Return True if the tool of an item no longer has the definition, or any of the code, that was approved."""
    version = item.tool.current_version
    return (
        version is None
        or version.fingerprint != item.fingerprint
        or item.tool.held_version_id is not None
        or not set(digests_in_use(item.tool)) & set(item.implementation_digests)
    )


def end_stopped(ended_for: Collection[int] = ()) -> set[int]:
    """End the open envelopes that a stop covers which was set after they opened, each in its own transaction.

    `ended_for` are keys of stops for which that is done. Return those for which it is done now: an envelope that could
    not be ended is left for the next time, and lets no call start until then.
    """
    first = Envelope.objects.filter(status=Status.OPEN).order_by("opened_at").values("opened_at")[:1]
    stops = list(Stop.objects.filter(since__gt=Subquery(first)).order_by("since"))
    new = [stop for stop in stops if stop.pk not in ended_for]
    if not new:
        return {stop.pk for stop in stops}
    older = Envelope.objects.filter(status=Status.OPEN, opened_at__lt=new[-1].since).select_related("call")
    is_complete, after = True, 0
    while found := list(older.filter(pk__gt=after).order_by("pk")[:BATCH]):
        is_complete = run_each(partial(_end_if_stopped, new), found) == len(found) and is_complete
        after = found[-1].pk
    return {stop.pk for stop in stops if is_complete or stop.pk in ended_for}


def _end_if_stopped(stops: Sequence[Stop], envelope: Envelope) -> bool:
    stop = find_ending_stop(envelope, stops)
    if stop is not None:
        close_envelope(envelope, STOPPED.format(reason=stop.reason))
    return True


def was_stopped(envelope: Envelope) -> bool:
    """Return True if a stop that covers the envelope was set after it opened, even if nothing has ended it yet."""
    stops = Stop.objects.filter(since__gt=envelope.opened_at).order_by("since")
    return find_ending_stop(envelope, list(stops)) is not None


def find_ending_stop(envelope: Envelope, stops: Sequence[Stop]) -> Stop | None:
    """Return the first of these stops that was set after an envelope opened and covers calls that it is for, or None.

    Those are calls of any of its tools, made by anyone and anything that the envelope is for or that proposed it.
    """
    later = [stop for stop in stops if envelope.opened_at is not None and stop.since > envelope.opened_at]
    if not later:
        return None
    tools = Tool.objects.filter(pk__in=envelope.items.values("tool")).select_related("source")
    facts = [
        replace(
            makers, tool=tool.name, categories=[each.name for each in tool.categories.all()], source=tool.source.name
        )
        for makers in _find_makers[0](envelope)
        for tool in tools.prefetch_related("categories")
    ]
    return next((stop for stop in later if any(covers(stop, each) for each in facts)), None)


def end_due(now: datetime) -> int:
    """End the envelopes whose time is over or whose token has ended, and refuse such proposals; return their number."""
    dead = Q(token__revoked_at__isnull=False) | Q(token__expires_at__lte=now)
    due = Envelope.objects.filter(status=Status.OPEN).filter(Q(expires_at__lte=now) | dead)
    ended = Q(expires_at__lte=now) | dead | Q(call__status__in=TERMINAL)
    proposals = Envelope.objects.filter(ended, status=Status.PROPOSED).select_related("call__approval")
    done = run_each(
        lambda each: close_envelope(each, TIME_OVER if each.expires_at <= now else TOKENLESS), list(due[:BATCH])
    )
    return done + run_each(partial(_refuse_due, now), list(proposals[:BATCH]))


def _refuse_due(now: datetime, envelope: Envelope) -> bool:
    because = PROPOSAL_TIME_OVER if envelope.expires_at <= now else TOKENLESS
    if envelope.call.status not in TERMINAL and envelope.call.approval.status in OPEN:
        lifecycle.withdraw_for_plan(envelope.call.approval, by=None, reason=because)
        return True
    if envelope.call.status not in TERMINAL:
        return False  # it starts at this moment
    with transaction.atomic():
        _lock_instance()
        refuse_proposal(envelope.call, envelope.call.message or because)
    return True


def end_older_epochs(epoch: int, because: str) -> int:
    """End the open envelopes of earlier epochs; return their number."""
    return sum(close_envelope(each, because) for each in Envelope.objects.filter(status=Status.OPEN, epoch__lt=epoch))
