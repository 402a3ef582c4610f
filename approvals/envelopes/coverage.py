"""Use of envelopes: a call that would wait starts at once if it is inside an open envelope; uses are counted.

Called inside the transaction that starts the call. An envelope covers a call if it is made by whom and where the
envelope is for, if an item with room left bounds all its arguments, if the tool still has the definition and code of
the time when the envelope opened, and if the people who approved the envelope could approve the call by the rule that
holds it now. The first such item counts the call, and no use is ever given back. Calls that replace an earlier one are
never covered.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils.text import Truncator

from approvals.envelopes.services import (
    TOOL_CHANGED,
    close_envelope,
    end_of_changed_tool,
    follow_edit,
    has_changed,
    propose,
    refuse_proposal,
    was_stopped,
)
from approvals.grants.coverage import GrantCandidate, lock_epoch
from approvals.models import ApprovalRequest, Envelope, EnvelopeItem, EnvelopeMismatch, EnvelopeUse, Review, Stop
from approvals.policies.combined_rules import with_escalation
from approvals.policies.envelope_rules import coverage_objection
from approvals.policies.quorum import is_enough
from approvals.policies.rulebook import Rule
from approvals.policy_language.envelopes import (
    PROPOSE_ENVELOPE,
    Promise,
    amount_of,
    broken_argument,
    decimal_text,
    exact_sum,
)
from approvals.requests.queries import counted_approvals, current_round
from approvals.states import ReviewVerdict
from catalog.access.roles import user_display_name
from catalog.core import clock
from catalog.core.transactions import move
from catalog.dispatch.arguments import CallArguments, stored_arguments, validator_of
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from catalog.models import ApiToken, Call
from catalog.signals import Fact, record_fact

Status = Envelope.Status
Scope = Envelope.Scope
REMEMBERED = timedelta(days=1)
"""Time for which a call that waits is shown beside an envelope that has ended."""
MOST_COMPARED = 20
SET_SINCE = Exists(Stop.objects.filter(since__gt=OuterRef("opened_at")))
"""True for an envelope after whose opening a stop was set, of whatever."""
LONGEST_MISMATCH = EnvelopeMismatch._meta.get_field("mismatch").max_length or 0


@dataclass(frozen=True, slots=True)
class Fit:
    """An item that a call is inside of, and the amount that the call adds to its sum."""

    item: EnvelopeItem
    amount: Decimal

    @property
    def has_room(self) -> bool:
        return not self.shortage

    @property
    def shortage(self) -> str:
        """The promise that one more call would break; empty if there is room."""
        if self.item.used >= self.item.count:
            return Promise.COUNT
        return Promise.SUM if self.item.sum_path and self.sum_after > Decimal(self.item.at_most) else ""

    @property
    def sum_after(self) -> Decimal:
        return exact_sum([Decimal(self.item.sum_used), self.amount])


def may_cover(candidate: GrantCandidate) -> bool:
    """Return True if an open envelope with an item of the call's tool is there for calls like this one."""
    return not candidate.replaces_call and _open_for(candidate, clock.now()).exists()


def find_covering(
    candidate: GrantCandidate, rule: Rule, standing: "StandingEnvelopes | None" = None
) -> Envelope | None:
    """Return an envelope that covers the call now, or None. Never writes.

    `standing` are the envelopes read for several calls at once; their room is taken by the calls asked about before.
    """
    if candidate.replaces_call or candidate.target.tool.name == PROPOSE_ENVELOPE:  # people decide on each proposal
        return None
    envelopes = _with_items(_open_for(candidate, clock.now()), candidate) if standing is None else standing.envelopes
    objection = _rule_objection if standing is None else standing.rule_objection
    for envelope, items in envelopes:
        fits = _fits(items, candidate)
        fit = next((fit for fit in fits if fit.has_room and _is_bound_to(fit.item, candidate.target)), None)
        if fit is not None and not objection(envelope, candidate, rule):
            if standing is not None:
                fit.item.used, fit.item.sum_used = fit.item.used + 1, decimal_text(fit.sum_after)
            return envelope
    return None


def covering_envelopes(person: User, arguments: CallArguments, tool_name: str, rule: Rule) -> list[Envelope]:
    """Return the envelopes that would cover a call that the rule holds, if this person made it in the envelope's scope.

    That is through its token, in its plan or in its session. Never writes.
    """
    target = snapshot.callable_tool(tool_name)
    if target is None:
        return []
    people = frozenset({person.pk})
    found: dict[int, Envelope] = {}
    mine = Envelope.objects.filter(requester=person, status=Status.OPEN, expires_at__gt=clock.now())
    for envelope in mine.filter(items__tool=target.tool_pk).distinct().order_by("pk"):
        candidate = GrantCandidate(
            target=target,
            arguments=arguments,
            plan_ref=envelope.scope_ref if envelope.scope == Scope.PLAN else "",
            session=envelope.scope_ref if envelope.scope == Scope.SESSION else "",
            requested_by=person.pk,
            requesters=people,
            barred=people,
            token=envelope.token_id,
        )
        covering = find_covering(candidate, rule)
        if covering is not None:
            found[covering.pk] = covering
    return list(found.values())


class StandingEnvelopes:
    """The open envelopes of one scope, read once to judge several calls that would start one after the other."""

    def __init__(self, envelopes: QuerySet[Envelope]) -> None:
        self.envelopes = _with_items(envelopes)
        self._objections: dict[tuple[object, ...], str] = {}

    def has_tool(self, tool_pk: int) -> bool:
        return any(item.tool_id == tool_pk for _, items in self.envelopes for item in items)

    def rule_objection(self, envelope: Envelope, candidate: GrantCandidate, rule: Rule) -> str:
        """Return the same as for a single call, read once for calls of the same people under the same rule."""
        people = (candidate.requesters, candidate.barred)
        key = (envelope.pk, rule.revision_id, candidate.target.tool.reversibility, people)
        if key not in self._objections:
            self._objections[key] = _rule_objection(envelope, candidate, rule)
        return self._objections[key]


def consume_use(candidate: GrantCandidate, rule: Rule, *, now: datetime) -> Fit | None:
    """Count one use of an envelope that covers the call; None if none covers it.

    The call must start in this transaction, whose time is `now`. Raises RestoredDatabase and AuditUnavailable. Of
    several concurrent calls only one gets the last place: items are read and counted under the lock of the audit head.
    """
    if candidate.replaces_call:
        return None
    for envelope, items in _with_items(_open_for(candidate, now), candidate):
        fits = any(fit.has_room for fit in _fits(items, candidate))  # no use is ever given back
        if not fits or _rule_objection(envelope, candidate, rule):
            continue
        usable = Envelope.objects.filter(pk=envelope.pk, status=Status.OPEN, expires_at__gt=now, epoch=lock_epoch())
        state = usable.values_list(SET_SINCE).first()
        if state is None or (state[0] and was_stopped(envelope)):
            continue
        current = envelope.items.filter(tool=candidate.target.tool_pk)
        for fit in _fits(current.select_related("tool"), candidate):  # read again, now that nobody else counts
            if not _is_bound_to(fit.item, candidate.target):
                if has_changed(EnvelopeItem.objects.select_related("tool__current_version").get(pk=fit.item.pk)):
                    close_envelope(envelope, TOOL_CHANGED.format(tool=fit.item.tool.name))
                continue
            room = current.filter(pk=fit.item.pk, used=fit.item.used, sum_used=fit.item.sum_used, used__lt=F("count"))
            going = room.filter(envelope__status=Status.OPEN)
            if fit.has_room and going.update(used=F("used") + 1, sum_used=decimal_text(fit.sum_after)):
                return fit
    return None


def record_use(fit: Fit, call: Call, *, now: datetime) -> None:
    """Record that the call used the envelope, with an audit entry and an event; an envelope without room is used up."""
    envelope = fit.item.envelope
    EnvelopeUse.objects.create(item=fit.item, call=call, amount=decimal_text(fit.amount), at=now)
    approvers = [user_display_name(review.person) for review in _approvals(envelope)[1]]
    record_fact("envelope.used", call=call, envelope=envelope.public_id, item=fit.item.number, approved_by=approvers)
    if not envelope.items.filter(used__lt=F("count")).exists():
        move(Envelope.objects.filter(pk=envelope.pk), to=Status.USED, ended_at=now)
        record_fact("envelope.used_up", envelope=envelope.public_id)


def is_still_valid(call: Call, candidate: GrantCandidate, rule: Rule, *, now: datetime) -> bool:
    """Return True if the envelope that this call used still allows it to start, even without room left.

    Raises RestoredDatabase and AuditUnavailable. The audit head is locked, so the envelope cannot be ended meanwhile.
    """
    going = Q(status__in=[Status.OPEN, Status.USED], expires_at__gt=now)
    found = Envelope.objects.filter(going, epoch=lock_epoch(), items__uses__call=call)
    envelope = found.annotate(is_older_than_stop=SET_SINCE).first()
    if envelope is None or candidate.replaces_call or (envelope.is_older_than_stop and was_stopped(envelope)):
        return False
    bound = _is_bound_to(call.envelope_use.item, candidate.target)
    return bound and not _rule_objection(envelope, candidate, rule)


def open_envelopes(
    *, requested_by: int, token: int | None, plan_ref: str, session: str, now: datetime
) -> QuerySet[Envelope]:
    """Return the open envelopes for calls of a person through this token, in this plan or session, with one query."""
    found = _for_calls(requested_by, token, plan_ref, session)
    return found.filter(status=Status.OPEN, expires_at__gt=now).order_by("pk")


def _open_for(candidate: GrantCandidate, now: datetime) -> QuerySet[Envelope]:
    """Return the open envelopes whose scope includes the call, and that have an item of its tool."""
    found = open_envelopes(
        requested_by=candidate.requested_by,
        token=candidate.token,
        plan_ref=candidate.plan_ref,
        session=candidate.session,
        now=now,
    )
    return found.filter(_has_item(candidate))


def _for_calls(requested_by: int | None, token: int | None, plan_ref: str, session: str) -> QuerySet[Envelope]:
    scopes = Q(scope=Scope.PLAN, scope_ref=plan_ref)
    if session and not _is_of_agent(token):
        scopes |= Q(scope=Scope.SESSION, scope_ref=session)
    if token is not None:
        scopes |= Q(scope=Scope.TOKEN, token=token, token__revoked_at=None)
    return Envelope.objects.filter(scopes, requester=requested_by)


def _has_item(candidate: GrantCandidate) -> Exists:
    return Exists(EnvelopeItem.objects.filter(envelope=OuterRef("pk"), tool=candidate.target.tool_pk))


def _with_items(
    envelopes: QuerySet[Envelope], candidate: GrantCandidate | None = None
) -> list[tuple[Envelope, list[EnvelopeItem]]]:
    """Return the envelopes, each with its items of the call's tool, or with all: two queries, however many there are.

    They are no prefetched rows of `Envelope.items`, since further queries of that would see these items alone.
    """
    found = {envelope.pk: (envelope, list[EnvelopeItem]()) for envelope in envelopes}
    items = EnvelopeItem.objects.filter(envelope__in=found).select_related("tool").order_by("number")
    if candidate is not None:
        items = items.filter(tool=candidate.target.tool_pk)
    for item in items if found else ():
        envelope, of_envelope = found[item.envelope_id]
        item.envelope = envelope
        of_envelope.append(item)
    return list(found.values())


def _is_of_agent(token: int | None) -> bool:
    """Return True for calls of agents: they choose the names of their sessions, also that of a person's session."""
    return token is not None and ApiToken.objects.filter(pk=token, kind=ApiToken.Kind.AGENT).exists()


def _fits(items: Iterable[EnvelopeItem], candidate: GrantCandidate) -> Iterator[Fit]:
    """Yield those of the items that the call is inside of, with or without room left, in order."""
    arguments = candidate.arguments
    for item in items:
        terms = item.terms
        amount = amount_of(terms, arguments) if item.tool_id == candidate.target.tool_pk else None
        if amount is not None and broken_argument(terms, arguments) is None:
            yield Fit(item, amount)


def _approvals(envelope: Envelope) -> tuple[ApprovalRequest, list[Review]]:
    related = ("call", "policy_revision__policy")
    request = ApprovalRequest.objects.select_related(*related).get(call=envelope.call_id)
    return request, counted_approvals(current_round(request))


def _rule_objection(envelope: Envelope, candidate: GrantCandidate, rule: Rule) -> str:
    """Return the reason why the envelope's approval is not enough for the rule that holds the call; empty if it is."""
    objection = coverage_objection(rule, str(candidate.target.tool.reversibility))
    if objection:
        return objection
    request, approvals = _approvals(envelope)
    if not candidate.requesters <= {each.user_id for each in request.call.requesters.all()}:
        return "Other people than those who proposed the envelope have shaped this call."
    rule = with_escalation(rule, request)
    barred = frozenset() if rule.allow_self_review else candidate.barred
    counting = [each for each in approvals if not {each.person_id, each.on_behalf_of_id} & barred]
    return "" if is_enough(request, counting, rule) else f"The envelope's approvers are not enough. {rule.sentence}"


def _is_bound_to(item: EnvelopeItem, tool: CallableTool) -> bool:
    return item.fingerprint == tool.fingerprint and tool.implementation_digest in item.implementation_digests


def record_mismatch(candidate: GrantCandidate, call: Call, *, now: datetime) -> None:
    """Store which promise a call breaks that now waits, beside the envelope of its requester.

    For a day, an envelope that has ended or was used up counts too, for calls of its tools; open ones come first.
    """
    if candidate.replaces_call or candidate.target.tool.name == PROPOSE_ENVELOPE:  # no promise is about proposals
        return
    there = _for_calls(candidate.requested_by, candidate.token, candidate.plan_ref, candidate.session).filter(
        Q(ended_at=None) | Q(ended_at__gt=now - REMEMBERED), opened_at__isnull=False, expires_at__gt=now - REMEMBERED
    )
    newest = there.annotate(has_item=_has_item(candidate)).order_by("-has_item", "-pk")[:MOST_COMPARED]
    found: tuple[Envelope, str] | None = None
    for envelope, items in sorted(_with_items(newest, candidate), key=lambda each: each[0].status != Status.OPEN):
        mismatch = _mismatch(envelope, items, candidate, now)
        if mismatch and (found is None or found[1] == Promise.TOOL != mismatch):
            found = envelope, mismatch
    if found is not None:
        # A path has names that the caller chose; not every database stores null characters.
        mismatch = Truncator(found[1].replace("\0", "\ufffd")).chars(LONGEST_MISMATCH)
        EnvelopeMismatch.objects.get_or_create(call=call, defaults={"envelope": found[0], "mismatch": mismatch})


def _mismatch(envelope: Envelope, items: Sequence[EnvelopeItem], candidate: GrantCandidate, now: datetime) -> str:
    """Return the promise that the call breaks; empty for an envelope that is over and has no item of its tool.

    `items` are those of that tool.
    """
    if envelope.status == Status.ENDED and envelope.ended_at is not None and envelope.ended_at < envelope.expires_at:
        return Promise.ENDED if items else ""
    fits = list(_fits(items, candidate))
    if fits:
        is_over = envelope.expires_at <= now
        shortage = "" if any(fit.has_room for fit in fits) else fits[-1].shortage
        return Promise.EXPIRED if is_over else shortage or Promise.RULE
    found = ""
    for item in items:
        broken = broken_argument(item.terms, candidate.arguments)
        found = Promise.SUM if broken is None else found or f"argument:{broken}"
        if found == Promise.SUM:
            break
    is_open = envelope.status == Status.OPEN and envelope.expires_at > now
    return found or (Promise.TOOL if is_open else "")


REFUSED = frozenset(
    {
        *("approval.withdrawn", "approval.expired", "approval.invalidated"),
        *("call.refused", "call.sent_back", "call.responded"),
    }
)
"""Facts with which a proposal has come to nothing."""
CALL_REJECTED = "{who} rejected a call that it would have covered."
APPROVAL_REVOKED = "{who} revoked the approval of a call that it would have covered."


def on_fact(sender: object, *, fact: Fact, **kwargs: Any) -> None:
    """Follow the request that proposes an envelope; end envelopes when something about their calls changes.

    That is the rejection of a call that one would cover, and a change of one of its tools.
    """
    call, kind = fact.call, fact.kind
    if call is None:
        if kind.startswith("tool."):
            end_of_changed_tool(str(fact.data.get("tool", "")))
    elif call.tool_name == PROPOSE_ENVELOPE:
        if kind in ("approval.opened", "approval.prepared"):
            propose(ApprovalRequest.objects.select_related("policy_revision__policy").get(call=call))
        elif kind == "approval.edited":
            follow_edit(call)
        elif kind in REFUSED:
            refuse_proposal(call, str(fact.data.get("message") or fact.data.get("reason") or "It was not approved."))
    elif kind == "approval.revoked" or (
        kind == "approval.decided" and fact.data.get("verdict") == ReviewVerdict.REJECT
    ):
        who = user_display_name(fact.by) if fact.by else "Someone"
        because = CALL_REJECTED if kind == "approval.decided" else APPROVAL_REVOKED
        _end_refused(call, because.format(who=who))


def _end_refused(call: Call, because: str) -> None:
    """End the open envelopes of which an item bounds this call."""
    there = _for_calls(call.requested_by_id, call.token_id, call.plan_ref, call.session)
    items = EnvelopeItem.objects.filter(envelope__in=there.filter(status=Status.OPEN), tool__name=call.tool_name)
    found = list(items.select_related("envelope", "tool").order_by("envelope_id"))
    if not found:
        return
    arguments = stored_arguments(validator_of(call.version.input_schema), call.arguments_json, call.defaults)
    for item in found:
        if broken_argument(item.terms, arguments) is None:
            close_envelope(item.envelope, because)
