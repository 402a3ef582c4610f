"""Envelopes as they are shown: promised beside used, the call that ran through one, and the promise that one broke."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Prefetch, QuerySet

from approvals.envelopes.services import envelopes_for, proposal_of
from approvals.models import Envelope, EnvelopeItem
from approvals.policy_language.bounds import conditions_sentence
from approvals.policy_language.envelopes import COUNT, EXPIRED, RULE, SUM, TOOL, Item, decimal_text, number_of
from approvals.requests.privacy import hidden_from
from catalog.calls.privacy import PrivateCallParts, mask
from catalog.core import clock

MISMATCH_SENTENCES = {
    TOOL: "The envelope has no calls of this tool.",
    COUNT: "The envelope has no calls of this kind left.",
    SUM: "Its number does not fit into the sum of the envelope.",
    EXPIRED: "The time of the envelope is over.",
    RULE: "The rule that holds this call asks more than the approval of the envelope gives.",
}
ARGUMENT = "argument:"


def mismatch_sentence(mismatch: str) -> str:
    """Return the broken promise as a sentence."""
    if mismatch.startswith(ARGUMENT):
        return f"The argument {mismatch.removeprefix(ARGUMENT)} is not one that the envelope allows."
    return MISMATCH_SENTENCES[mismatch]


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
    def sentence(self) -> str:
        """The bounds of the arguments in words."""
        return conditions_sentence(self.terms.conditions)

    @property
    def most(self) -> str:
        return decimal_text(self.terms.sum.at_most) if self.terms.sum is not None else ""

    @property
    def spent(self) -> str:
        return decimal_text(self.sum_used)

    def as_json(self) -> dict[str, Any]:
        spent = {} if self.terms.sum is None else {"sum_used": number_of(self.sum_used)}
        return self.terms.as_json() | {"used": self.used, **spent}


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


def private_parts(viewer: User, envelopes: Iterable[Envelope]) -> Mapping[int, PrivateCallParts]:
    """Return the parts of the proposals that are hidden from the viewer, by the keys of their calls."""
    return hidden_from(viewer, [envelope.call.approval for envelope in envelopes])


def seconds_left(envelope: Envelope, now: datetime | None = None) -> int:
    """Return the seconds until an open envelope ends; 0 if it is over."""
    return max(0, int((envelope.expires_at - (now or clock.now())).total_seconds()))
