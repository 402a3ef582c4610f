"""Open step on a plan's page: details, sources of its arguments, and its result; private values are masked."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

from django.contrib.auth.models import User
from django.db.models.functions import Left, Length
from django.http import Http404

from approvals.envelopes.reading import mismatch_sentence
from approvals.models import ApprovalRequest, Envelope, GrantUse
from approvals.states import RequestStatus
from catalog.calls.argument_notes import ArgumentNote, notes_on_arguments
from catalog.calls.privacy import PrivateCallParts, is_mask, mask, masked_fields
from catalog.inventory import snapshot
from catalog.models import Call, ClientRun
from catalog.schemas.description import in_schema_order
from catalog.secrets.placeholders import without_macs
from catalog.ui.results import ShownResult, shown_result
from plans.actions.give_input import is_sent_back
from plans.engine.questions import waits_for_answer
from plans.models import MemoryItem, Plan, Step
from plans.states import WaitingFor
from plans.store.privacy import reveal_private_values
from plans.web.plan.overview import VALUE_READ, VALUE_SHOWN, MemoryRow, PlanOverview, StepOverview
from plans.web.plan.value_uses import ArgumentSource, sources_of

PARTS = {"arguments": "call__arguments", "result": "call__response", "evidence": "call__late_evidence"}


FIELDS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class MaskedField:
    """One masked value of a response; `text` is set once it is revealed."""

    number: int
    path: str
    kind: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class MaskedParts:
    """Parts of a private call: its arguments as masked JSON, and the masked values of its response."""

    arguments: str
    fields: Sequence[MaskedField]
    more: bool
    has_evidence: bool

    def with_field(self, revealed_field: MaskedField) -> "MaskedParts":
        others = (field for field in self.fields if field.path != revealed_field.path)
        return replace(self, fields=sorted([*others, revealed_field], key=lambda field: field.number))


def masked_parts(call: Call, private_parts: PrivateCallParts) -> MaskedParts:
    found = list(islice(masked_fields(call.response_json), FIELDS_SHOWN + 1)) if call.response else []
    fields = [MaskedField(number, field.path, field.kind) for number, field in enumerate(found[:FIELDS_SHOWN])]
    return MaskedParts(
        arguments=json.dumps(
            in_schema_order(private_parts.mask_arguments(call.arguments_json), call.version.input_schema),
            indent=2,
            ensure_ascii=False,
        ),
        fields=fields,
        more=len(found) > FIELDS_SHOWN,
        has_evidence=bool(call.late_evidence),
    )


def reveal_on_page(plan: Plan, step_id: int, path: str, *, by: User) -> MaskedField:
    """Reveal one value of a step's result. Raises Http404 without a call, and the errors of `reveal_private_values`."""
    call = Call.objects.filter(step__plan=plan, step__step_id=step_id).first()
    if call is None:
        raise Http404
    value = reveal_private_values(call, path, by=by)
    places = {field.path: number for number, field in enumerate(masked_fields(call.response_json))}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return MaskedField(places.get(path, len(places)), path, "", text)


def masked_json(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return json.dumps(mask(value), ensure_ascii=False)


def masked_parameters(parameters: Mapping[str, Any], private_parts: PrivateCallParts | None) -> Mapping[str, Any]:
    """Return a step's parameters, masked if they are private; references to private values reveal nothing."""
    return mask(parameters) if private_parts is not None and private_parts.everything else parameters


CALL_FIELDS = (
    *("call__approval", "call__version", "call__client_run"),
    *("call__grant_use__grant__created_by", "call__grant_use__grant__created_from"),
    *("call__envelope_use__item__envelope", "call__envelope_mismatch__envelope"),
)
CALL_PART_FIELDS = ("call__arguments", "call__late_evidence")
PRIVATE_FIELDS = ("arguments", "late_evidence")
"""Columns of a private call that its masked parts are made of, beside its result."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text, and its full length in characters."""

    head: str
    size: int

    @property
    def is_cut(self) -> bool:
        return self.size > len(self.head)


@dataclass(frozen=True, slots=True)
class StepArgument:
    """An argument in the plan, with the values it is made of; `became` is what the call got, where it differs."""

    name: str
    text: Excerpt
    sources: Sequence[ArgumentSource]
    became: Excerpt | None = None


@dataclass(frozen=True, slots=True)
class StepCard:
    step: Step
    overview: StepOverview
    level: str
    after: Sequence[Step]
    arguments: Sequence[StepArgument]
    called_with: Excerpt | None
    result: ShownResult | None
    evidence: Excerpt | None
    masked: MaskedParts | None = None
    is_private: bool = False
    argument_notes: Sequence[ArgumentNote] = ()
    skip_note: Mapping[str, Any] = field(default_factory=dict)
    stored: MemoryRow | None = None

    @property
    def number(self) -> int:
        return self.step.step_id

    @property
    def request(self) -> ApprovalRequest | None:
        return getattr(self.step.call, "approval", None) if self.step.call else None

    @property
    def client_run(self) -> ClientRun | None:
        """The row of a call that its client runs, else None."""
        return getattr(self.step.call, "client_run", None) if self.step.call else None

    @property
    def envelope(self) -> Envelope | None:
        """The envelope through which the call ran, or outside of which it fell."""
        call = self.step.call
        if call is not None and hasattr(call, "envelope_use"):
            return call.envelope_use.item.envelope
        return call.envelope_mismatch.envelope if call is not None and hasattr(call, "envelope_mismatch") else None

    @property
    def mismatch(self) -> str:
        """The promise of the envelope that the call broke, in words; empty if it ran inside it."""
        call = self.step.call
        if call is None or hasattr(call, "envelope_use") or not hasattr(call, "envelope_mismatch"):
            return ""
        return mismatch_sentence(call.envelope_mismatch.mismatch)

    @property
    def grant_use(self) -> GrantUse | None:
        return getattr(self.step.call, "grant_use", None) if self.step.call else None

    @property
    def waits_for_approval(self) -> bool:
        return self.step.waiting_for == WaitingFor.APPROVAL and self.step.ready_at is None

    @property
    def starts_until(self) -> datetime | None:
        """Time at which the unused approval expires; None if the call is not approved or has started."""
        request = self.request
        return request.not_after if request is not None and request.status == RequestStatus.APPROVED else None

    @property
    def waits_for_arguments(self) -> bool:
        return is_sent_back(self.step)

    @property
    def waits_for_answer(self) -> bool:
        return waits_for_answer(self.step)

    @property
    def outcome_unknown(self) -> bool:
        return self.step.waiting_for == WaitingFor.OUTCOME


def load_step_card(overview: PlanOverview, number: int) -> StepCard | None:
    """Return a step in detail, or None if the plan has no such step; one query."""
    drawn = overview.by_number.get(number)
    if drawn is None:
        return None
    excerpts = {f"{part}_head": Left(part, VALUE_READ) for part in CALL_PART_FIELDS}
    sizes = {f"{part}_size": Length(part) for part in CALL_PART_FIELDS}
    rows = overview.plan.steps.select_related(*CALL_FIELDS).defer(*CALL_PART_FIELDS)
    step = rows.annotate(**excerpts, **sizes).get(pk=drawn.step.pk)
    by_number, hidden = overview.by_number, overview.private.steps.get(number)
    # The schema of the called version, or the current one before there is a call; empty without a tool.
    current = None if step.call else snapshot.callable_tool(step.tool)
    schema: Mapping[str, Any] = current.tool.input_schema if current else {}
    if step.call:
        schema = step.call.version.input_schema
    skip_note: dict[str, Any] = {}  # who skipped the step and why; empty if no person did
    if step.skipped:
        notes = MemoryItem.objects.filter(plan=step.plan_id, step_id=step.step_id, type=MemoryItem.Type.STEP_SKIPPED)
        skip_note = next((each.value_json for each in notes), {})
        skip_note = skip_note if "by" in skip_note else {}
    return StepCard(
        step=step,
        overview=drawn,
        level=step_level(step),
        after=[by_number[needed].step for needed in drawn.needs],
        arguments=list(
            _arguments(
                overview,
                in_schema_order(masked_parameters(step.parameters_json, hidden), schema),
                _called_arguments(step, hidden),
            )
        ),
        stored=next((row for row in overview.memory if step.expected_key and row.key == step.expected_key), None),
        is_private=hidden is not None,
        skip_note=skip_note,
        **_contents(step, hidden),
    )


def _contents(step: Any, private_parts: PrivateCallParts | None) -> dict[str, Any]:
    """Return the beginnings of arguments, result and evidence, or masked parts if they are private."""
    parts = dict(zip(("called_with", "evidence"), CALL_PART_FIELDS, strict=True))
    if private_parts is None or step.call is None:
        contents: dict[str, Any] = {name: _excerpt(step, part) for name, part in parts.items()}
        contents["result"] = shown_result(step.call) if step.call and step.call.response else None
        given = contents["called_with"]
        argument_notes: Sequence[ArgumentNote] = ()
        if step.call and given and not given.is_cut:  # notes need all arguments
            tool, schema = snapshot.loaded_tool(step.call.tool_name), step.call.version.input_schema
            argument_notes = notes_on_arguments(tool, step.call, json.loads(given.head), schema)
        return {**contents, "argument_notes": argument_notes}
    step.call.refresh_from_db(fields=PRIVATE_FIELDS)
    return {"result": None, **dict.fromkeys(parts), "masked": masked_parts(step.call, private_parts)}


def default_step(overview: PlanOverview) -> int:
    """Return the step to open first: one that waits for people, failed or runs, else the first.

    Never a call of an agent, because the agent handles its result and the agent's step shows what people have to do.
    """
    order = ("human", "danger", "run")
    own = [step for step in overview.steps if step.step.parent_id is None and step.word.hue in order]
    found = sorted((order.index(step.word.hue), step.number) for step in own)
    return found[0][1] if found else min(overview.by_number, default=0)


def step_level(step: Step) -> str:
    """Return the safety level of the called version, or the current level before there is a call."""
    if step.call:
        return step.call.version.safety_level
    now = snapshot.callable_tool(step.tool)
    return str(now.tool.safety_level) if now else ""


def _excerpt(step: Step, part: str) -> Excerpt | None:
    size, head = getattr(step, f"{part}_size"), getattr(step, f"{part}_head")
    if not size:
        return None
    shown = without_macs(head)
    return Excerpt(shown[:VALUE_SHOWN], size - len(head) + len(shown))


def _called_arguments(step: Any, private_parts: PrivateCallParts | None) -> Mapping[str, Any]:
    """Return the arguments of a step's call, masked if they are private; none if they are too long to be read."""
    if step.call is None or not 0 < step.call__arguments_size <= VALUE_READ:
        return {}
    arguments: dict[str, Any] = json.loads(without_macs(step.call__arguments_head))
    return arguments if private_parts is None else private_parts.mask_arguments(arguments)


def _arguments(
    overview: PlanOverview, parameters: Mapping[str, Any], called_with: Mapping[str, Any]
) -> Iterator[StepArgument]:
    writers = {row.key: row.step_id for row in overview.memory}
    for step in overview.steps:
        if step.step.expected_key:
            writers[step.step.expected_key] = step.number
    for name, value in parameters.items():
        became = called_with.get(name, value)
        yield StepArgument(
            name,
            _argument_text(value),
            list(sources_of(overview.plan, value, writers, {row.key for row in overview.memory})),
            None if became == value or is_mask(value) else _argument_text(became),
        )


def _argument_text(value: Any) -> Excerpt:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return Excerpt(text[:VALUE_SHOWN], len(text))
