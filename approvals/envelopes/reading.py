"""Envelopes as they are shown: promised beside used, the call that ran through one, and the promise that one broke."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Prefetch, QuerySet, prefetch_related_objects
from django.utils.translation import gettext, gettext_lazy

from approvals.envelopes.coverage import covering_envelopes
from approvals.envelopes.services import envelopes_for, proposal_of
from approvals.models import Envelope, EnvelopeItem
from approvals.policies.simulator import Simulation
from approvals.policy_language.bounds import condition_phrases
from approvals.policy_language.envelopes import COUNT, EXPIRED, RULE, SUM, TOOL, Item, decimal_text, number_of
from approvals.requests.privacy import hidden_from
from catalog.calls.privacy import PrivateCallParts, mask
from catalog.core import clock
from catalog.dispatch.pipeline import Hold
from catalog.ui.labels import Badge

MISMATCH_SENTENCES: Mapping[str, Any] = {
    TOOL: gettext_lazy("The envelope has no calls of this tool."),
    COUNT: gettext_lazy("The envelope has no calls of this kind left."),
    SUM: gettext_lazy("Its number does not fit into the sum of the envelope."),
    EXPIRED: gettext_lazy("The time of the envelope is over."),
    RULE: gettext_lazy("The rule that holds this call asks more than the approval of the envelope gives."),
}
ARGUMENT = "argument:"
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


def amount_text(number: Decimal) -> str:
    """Return an amount for people: all its digits, those before the point in groups of three."""
    whole, point, rest = decimal_text(number).partition(".")
    return f"{int(whole):,}{point}{rest}"


@dataclass(frozen=True, slots=True)
class ItemState:
    """An item with what is used of it."""

    number: int
    terms: Item
    used: int = 0
    sum_used: Decimal = Decimal(0)

    @property
    def left(self) -> int:
        return self.terms.count - self.used

    @property
    def phrases(self) -> Sequence[str]:
        """The bounds of the arguments in words, uncut: people decide on all of them."""
        return condition_phrases(self.terms.conditions, whole=True)

    @property
    def most(self) -> str:
        return amount_text(self.terms.sum.at_most) if self.terms.sum is not None else ""

    @property
    def spent(self) -> str:
        return amount_text(self.sum_used)

    def as_json(self) -> dict[str, Any]:
        spent = {} if self.terms.sum is None else {"sum_used": number_of(self.sum_used)}
        return self.terms.as_json() | {"used": self.used, **spent}


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


def items_of(envelope: Envelope, private: PrivateCallParts | None = None) -> list[ItemState]:
    """Return the items of the opened envelope, or else of the proposal; with masked values if parts are private."""
    rows = list(envelope.items.all())
    states = [ItemState(row.number, row.terms, row.used, Decimal(row.sum_used)) for row in rows]
    if not rows:
        states = [ItemState(number, item) for number, item in enumerate(proposal_of(envelope).items)]
    return states if private is None else [_masked(state) for state in states]


def _masked(state: ItemState) -> ItemState:
    terms = state.terms
    rows = [row | {"value": mask(row["value"])} if "value" in row else row for row in terms.conditions]
    return ItemState(state.number, Item(terms.tool, rows, terms.count, terms.sum), state.used, state.sum_used)


def view_of(envelope: Envelope, private: PrivateCallParts | None) -> EnvelopeView:
    prefetch_related_objects([envelope], Prefetch("items", EnvelopeItem.objects.select_related("tool")))
    return EnvelopeView(envelope, items_of(envelope, private), is_private=private is not None)


def views_of(viewer: User, envelopes: Sequence[Envelope]) -> list[EnvelopeView]:
    """Return the envelopes as the viewer may see them, in a fixed number of queries."""
    private = private_parts(viewer, envelopes)
    return [view_of(envelope, private.get(envelope.call_id)) for envelope in envelopes]


def covering_views(viewer: User, simulation: Simulation, tool_name: str) -> list[EnvelopeView]:
    """Return the open envelopes that would let a simulated call start that the current rules hold."""
    verdict, person, arguments = simulation.verdict, simulation.person, simulation.arguments
    if not isinstance(verdict, Hold) or person is None or arguments is None:
        return []
    found = {each.pk for each in covering_envelopes(person, arguments, tool_name, verdict.terms)}
    return views_of(viewer, list(listed(viewer).filter(pk__in=found))) if found else []


def private_parts(viewer: User, envelopes: Iterable[Envelope]) -> Mapping[int, PrivateCallParts]:
    """Return the parts of the proposals that are hidden from the viewer, by the keys of their calls."""
    return hidden_from(viewer, [envelope.call.approval for envelope in envelopes])
