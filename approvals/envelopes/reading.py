"""Envelopes as they are shown: promised beside used, the call that ran through one, and the promise that one broke."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Prefetch, QuerySet, prefetch_related_objects
from django.utils.translation import gettext, gettext_lazy

from approvals.envelopes.coverage import covering_envelopes
from approvals.envelopes.services import envelopes_for, proposal_of
from approvals.models import Envelope, EnvelopeItem, EnvelopeMismatch, EnvelopeUse
from approvals.policies.simulator import Simulation
from approvals.policy_language.bounds import condition_phrases
from approvals.policy_language.envelopes import Item, Promise, decimal_text, number_of
from approvals.requests.privacy import hidden_from
from catalog.access.roles import agent_token_of
from catalog.calls.privacy import can_see_private, is_own_call, mask, private_parts_of
from catalog.core import clock
from catalog.dispatch.pipeline import Hold
from catalog.models import Call
from catalog.ui.labels import Badge

MISMATCH_SENTENCES: Mapping[str, Any] = {
    Promise.TOOL: gettext_lazy("The envelope has no calls of this tool."),
    Promise.COUNT: gettext_lazy("The envelope has no calls of this kind left."),
    Promise.SUM: gettext_lazy("Its number does not fit into the sum of the envelope."),
    Promise.EXPIRED: gettext_lazy("The time of the envelope is over."),
    Promise.ENDED: gettext_lazy("The envelope was ended before this call."),
    Promise.RULE: gettext_lazy("The rule that holds this call asks more than the approval of the envelope gives."),
}
ARGUMENT = "argument:"
MOST_JUDGED = 1000
"""Uses of which it is judged if their amounts are private; the sum of an item with more is hidden from others."""
BADGES: Mapping[str, Badge] = {
    "proposed": Badge(gettext_lazy("Proposed"), "pending", "human"),
    "open": Badge(gettext_lazy("Open"), "ok", "ok"),
    "used": Badge(gettext_lazy("Used up"), "check", "idle"),
    "ended": Badge(gettext_lazy("Ended"), "stop", "idle"),
    "refused": Badge(gettext_lazy("Not approved"), "fail", "idle"),
}
SCOPES: Mapping[str, Any] = {
    "token": gettext_lazy("calls through the token %(name)s"),
    "plan": gettext_lazy("calls of the plan %(name)s"),
    "session": gettext_lazy("calls in the session %(name)s"),
}


def mismatch_sentence(mismatch: str) -> str:
    """Return the broken promise as a sentence."""
    if mismatch.startswith(ARGUMENT):
        path = mismatch.removeprefix(ARGUMENT)
        return gettext("The argument %(path)s is not what the envelope allows.") % {"path": path}
    return str(MISMATCH_SENTENCES[mismatch])


def outside_sentence(call: Call) -> str:
    """Return for the agent that made a call why it waits beside an envelope; empty if there was none."""
    broken = EnvelopeMismatch.objects.select_related("envelope").filter(call=call).first()
    if broken is None:
        return ""
    envelope = broken.envelope
    because = f" {envelope.ended_because.rstrip('.')}." if broken.mismatch == Promise.ENDED else ""
    return f"This call is outside of the envelope {envelope.public_id}: {mismatch_sentence(broken.mismatch)}{because}"


def amount_text(number: Decimal) -> str:
    """Return an amount for people: all its digits, those before the point in groups of three."""
    whole, point, rest = decimal_text(number).partition(".")
    return f"{int(whole):,}{point}{rest}"


@dataclass(frozen=True, slots=True)
class HiddenParts:
    """Parts of an envelope that a viewer may not see: all values of its proposal, and sums over private arguments."""

    proposal: bool = False
    sums: frozenset[int] = frozenset()
    """Numbers of items."""


NOTHING_HIDDEN = HiddenParts()


@dataclass(frozen=True, slots=True)
class ItemState:
    """An item with what is used of it, as one viewer may see it."""

    number: int
    terms: Item
    used: int = 0
    sum_used: Decimal = Decimal(0)
    is_private: bool = False
    """True if values of the proposal are hidden."""
    is_sum_private: bool = False

    @property
    def left(self) -> int:
        return self.terms.count - self.used

    @property
    def conditions(self) -> Sequence[dict[str, Any]]:
        """The bounds of the arguments, with masks in place of private values."""
        if not self.is_private:
            return self.terms.conditions
        return [row | {"value": mask(row["value"])} if "value" in row else row for row in self.terms.conditions]

    @property
    def phrases(self) -> Sequence[str]:
        """The bounds of the arguments in words, uncut: people decide on all of them."""
        return condition_phrases(self.conditions, whole=True)

    @property
    def most(self) -> str:
        """The most that the sum may be; empty without a sum, and if it is private."""
        return "" if self.is_private or self.terms.sum is None else amount_text(self.terms.sum.at_most)

    @property
    def spent(self) -> str:
        """The sum of all uses; empty if it is private."""
        return "" if self.is_sum_private else amount_text(self.sum_used)

    def as_json(self) -> dict[str, Any]:
        shown = self.terms.as_json() | {"arguments": list(self.conditions), "used": self.used}
        if self.terms.sum is None:
            return shown
        if self.is_private:
            shown["sum"] |= {"at_most": mask(shown["sum"]["at_most"])}
        return shown | {"sum_used": None if self.is_sum_private else number_of(self.sum_used)}


@dataclass(frozen=True, slots=True)
class EnvelopeView:
    """An envelope with its items as one viewer may see them."""

    envelope: Envelope
    items: Sequence[ItemState]
    is_private: bool = False

    @property
    def purpose(self) -> str:
        return "" if self.is_private else self.envelope.purpose

    @property
    def is_open(self) -> bool:
        return self.envelope.status == Envelope.Status.OPEN and self.envelope.expires_at > clock.now()

    @property
    def is_proposed(self) -> bool:
        return self.envelope.status == Envelope.Status.PROPOSED

    @property
    def badge(self) -> Badge:
        return BADGES[self.envelope.status]

    @property
    def used(self) -> int:
        return sum(item.used for item in self.items)

    @property
    def count(self) -> int:
        return sum(item.terms.count for item in self.items)

    @property
    def tools(self) -> Sequence[str]:
        return list(dict.fromkeys(item.terms.tool for item in self.items))

    @property
    def scope(self) -> Any:
        """The calls that it covers, in words."""
        envelope = self.envelope
        name = envelope.token.name if envelope.token is not None else envelope.scope_ref
        return SCOPES[envelope.scope] % {"name": name}


@dataclass(frozen=True, slots=True)
class Outside:
    """An envelope outside of which a call fell, and the promise that the call broke."""

    view: EnvelopeView
    mismatch: str

    @property
    def sentence(self) -> str:
        return mismatch_sentence(self.mismatch)


def listed(viewer: User) -> QuerySet[Envelope]:
    """Return the envelopes that the viewer may see, with all that lists and pages show of them."""
    items = EnvelopeItem.objects.select_related("tool")
    shown = envelopes_for(viewer).prefetch_related(Prefetch("items", items), "call__requesters")
    return shown.annotate(calls=Count("items__uses"))


def items_of(envelope: Envelope, hidden: HiddenParts = NOTHING_HIDDEN) -> list[ItemState]:
    """Return the items of the opened envelope, or else of the proposal."""
    rows = list(envelope.items.all())
    if not rows:
        items = enumerate(proposal_of(envelope).items)
        return [ItemState(number, item, is_private=hidden.proposal) for number, item in items]
    return [
        ItemState(
            row.number,
            row.terms,
            row.used,
            Decimal(row.sum_used),
            is_private=hidden.proposal,
            is_sum_private=hidden.proposal or row.number in hidden.sums,
        )
        for row in rows
    ]


def views_of(viewer: User, envelopes: Sequence[Envelope]) -> list[EnvelopeView]:
    """Return the envelopes as the viewer may see them, in a fixed number of queries."""
    prefetch_related_objects(envelopes, Prefetch("items", EnvelopeItem.objects.select_related("tool")))
    hidden = hidden_parts(viewer, envelopes)
    found = [(envelope, hidden.get(envelope.pk, NOTHING_HIDDEN)) for envelope in envelopes]
    return [EnvelopeView(each, items_of(each, parts), is_private=parts.proposal) for each, parts in found]


@dataclass(frozen=True, slots=True)
class UseView:
    """A call that ran through an envelope, as one viewer may see it."""

    use: EnvelopeUse
    is_private: bool

    @property
    def amount(self) -> str:
        """The amount that the call added to the sum of its item; empty if it is private."""
        return "" if self.is_private else amount_text(Decimal(self.use.amount))


def uses_of(viewer: User, envelope: Envelope, most: int) -> list[UseView]:
    """Return the newest uses of an envelope."""
    found = EnvelopeUse.objects.filter(item__envelope=envelope).select_related("item__tool", "call").order_by("-pk")
    uses = list(found[:most])
    private = _private_uses(viewer, uses)
    return [UseView(use, use.pk in private) for use in uses]


def covering_views(viewer: User, simulation: Simulation, tool_name: str) -> list[EnvelopeView]:
    """Return the open envelopes that would let a simulated call start that the current rules hold."""
    verdict, person, arguments = simulation.verdict, simulation.person, simulation.arguments
    if not isinstance(verdict, Hold) or person is None or arguments is None:
        return []
    found = {each.pk for each in covering_envelopes(person, arguments, tool_name, verdict.terms)}
    return views_of(viewer, list(listed(viewer).filter(pk__in=found))) if found else []


def hidden_parts(viewer: User, envelopes: Sequence[Envelope]) -> Mapping[int, HiddenParts]:
    """Return the parts of the envelopes that are hidden from the viewer, by the envelope's key."""
    if can_see_private(viewer):
        return {}
    proposals = hidden_from(viewer, [envelope.call.approval for envelope in envelopes])
    token = agent_token_of(viewer)
    of_others = [
        each for each in envelopes if (each.requester_id != viewer.pk if token is None else each.token_id != token.pk)
    ]
    sums = _private_sums(viewer, of_others)
    return {
        each.pk: HiddenParts(each.call_id in proposals, frozenset(sums[each.pk]))
        for each in envelopes
        if each.call_id in proposals or each.pk in sums
    }


def _private_sums(viewer: User, envelopes: Sequence[Envelope]) -> Mapping[int, set[int]]:
    """Return the numbers of the items over whose sums private arguments were added up, by the envelope's key."""
    items = EnvelopeItem.objects.filter(envelope__in=envelopes, used__gt=0).exclude(sum_path="")
    summed = {each.pk: each for each in items} if envelopes else {}
    uses = EnvelopeUse.objects.filter(item__in=summed).select_related("item", "call").order_by("-pk")
    judged = list(uses[:MOST_JUDGED]) if summed else []
    private, found = _private_uses(viewer, judged), defaultdict[int, set[int]](set)
    counted = Counter(use.item_id for use in judged)
    of_private = {use.item_id for use in judged if use.pk in private}
    for pk, item in summed.items():
        if pk in of_private or counted[pk] < item.used:
            found[item.envelope_id].add(item.number)
    return found


def _private_uses(viewer: User, uses: Sequence[EnvelopeUse]) -> set[int]:
    """Return the keys of those uses whose amounts are hidden from the viewer: they are arguments of their calls."""
    calls = [] if can_see_private(viewer) else [use.call for use in uses if not is_own_call(viewer, use.call)]
    parts = private_parts_of(calls) if calls else {}
    return {
        use.pk
        for use in uses
        if use.call_id in parts
        and (parts[use.call_id].everything or use.item.sum_path.partition(".")[0] in parts[use.call_id].names)
    }
