"""What a page shows of a private step: which values there are, none of them, but for one that somebody reveals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.http import Http404

from catalog.calls.privacy import Hidden, fields_of, mask
from catalog.models import Call
from plans.models import Plan
from plans.store.privacy import reveal

if TYPE_CHECKING:
    from django.contrib.auth.models import User

FIELDS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class MaskedField:
    """One value of a response; `text` once it is revealed."""

    number: int
    path: str
    kind: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class MaskedParts:
    """The parts of one private call: its arguments as masked JSON text, the values of its response."""

    arguments: str
    fields: Sequence[MaskedField]
    more: bool
    has_evidence: bool

    def with_field(self, shown: MaskedField) -> "MaskedParts":
        """Return the parts with one value revealed."""
        others = (field for field in self.fields if field.path != shown.path)
        return replace(self, fields=sorted([*others, shown], key=lambda field: field.number))


def masked_parts(call: Call, hidden: Hidden) -> MaskedParts:
    """Return what a page shows of a private call."""
    found = list(islice(fields_of(call.response_json), FIELDS_SHOWN + 1)) if call.response else []
    fields = [MaskedField(number, field.path, field.kind) for number, field in enumerate(found[:FIELDS_SHOWN])]
    return MaskedParts(
        arguments=json.dumps(hidden.mask_arguments(call.arguments_json), indent=2, ensure_ascii=False),
        fields=fields,
        more=len(found) > FIELDS_SHOWN,
        has_evidence=bool(call.late_evidence),
    )


def reveal_on_page(plan: Plan, step_id: int, path: str, *, by: "User") -> MaskedField:
    """Reveal one value of what a step's tool has answered. Raises Http404 without a call, and what `reveal` raises."""
    call = Call.objects.filter(step__plan=plan, step__step_id=step_id).first()
    if call is None:
        raise Http404
    value = reveal(call, path, by=by)
    places = {field.path: number for number, field in enumerate(fields_of(call.response_json))}
    return MaskedField(places.get(path, len(places)), path, "", _text(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def masked_json(text: str) -> str:
    """Return the JSON text of a value with everything in it masked."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return json.dumps(mask(value), ensure_ascii=False)


def masked_parameters(parameters: Mapping[str, Any], hidden: Hidden | None) -> Mapping[str, Any]:
    """Return a step's parameters as the plan gives them; those that only refer to private values say nothing."""
    return mask(parameters) if hidden is not None and hidden.everything else parameters
