"""The step that a plan's page has open: what it is, where its arguments come from, what came of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models.functions import Left, Length

from approvals.models import ApprovalRequest, GrantUse
from approvals.states import RequestStatus
from catalog.calls.privacy import Hidden
from catalog.errors import ParameterError
from catalog.inventory import snapshot
from catalog.secrets.placeholders import shown_text
from plans.actions.give_input import is_sent_back
from plans.documents import references
from plans.engine.questions import waits_for_answer
from plans.masked import MaskedParts, masked_parameters, masked_parts
from plans.models import MemoryItem, Step
from plans.picture import VALUE_SHOWN, Picture, StepPicture
from plans.states import WaitingFor

BY_GRANT = ("call__grant_use__grant__created_by", "call__grant_use__grant__created_from")
SHOWN_PARTS = ("call__arguments", "call__response", "call__late_evidence")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text, and the size of all of it in characters."""

    head: str
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether there is more."""
        return self.size > len(self.head)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as the plan gives it, and the steps from which it takes values."""

    name: str
    text: Excerpt
    sources: Sequence[str]


@dataclass(frozen=True, slots=True)
class StepCard:
    """One step in detail; `picture` is how the other views draw it, `masked` what is shown of a private call."""

    step: Step
    picture: StepPicture
    level: str
    after: Sequence[Step]
    arguments: Sequence[Argument]
    called_with: Excerpt | None
    result: Excerpt | None
    evidence: Excerpt | None
    masked: MaskedParts | None = None
    is_private: bool = False
    skip_note: Mapping[str, Any] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The step's number."""
        return self.step.step_id

    @property
    def request(self) -> ApprovalRequest | None:
        """The request that its call waits, or waited, for."""
        return getattr(self.step.call, "approval", None) if self.step.call else None

    @property
    def grant_use(self) -> GrantUse | None:
        """The use of the grant by which its call ran without a review."""
        return getattr(self.step.call, "grant_use", None) if self.step.call else None

    @property
    def waits_for_approval(self) -> bool:
        """Whether people must answer first."""
        return self.step.waiting_for == WaitingFor.APPROVAL and self.step.ready_at is None

    @property
    def starts_until(self) -> datetime | None:
        """Until when its approval may be used; None when it is not approved, or was used."""
        request = self.request
        return request.not_after if request is not None and request.status == RequestStatus.APPROVED else None

    @property
    def waits_for_arguments(self) -> bool:
        """Whether reviewers sent its call back, and its person must change it."""
        return is_sent_back(self.step)

    @property
    def waits_for_answer(self) -> bool:
        """Whether its question waits for an answer."""
        return waits_for_answer(self.step)

    @property
    def outcome_unknown(self) -> bool:
        """Whether a person must say what happened."""
        return self.step.waiting_for == WaitingFor.OUTCOME


def card_of(picture: Picture, number: int) -> StepCard | None:
    """Return a step of a plan in detail, None when it has no such step; one query."""
    drawn = picture.by_number.get(number)
    if drawn is None:
        return None
    excerpts = {f"{part}_head": Left(part, VALUE_SHOWN) for part in SHOWN_PARTS}
    sizes = {f"{part}_size": Length(part) for part in SHOWN_PARTS}
    rows = picture.plan.steps.select_related("call__approval", "call__version", *BY_GRANT).defer(
        *SHOWN_PARTS, "call__message"
    )
    step = rows.annotate(**excerpts, **sizes).get(pk=drawn.step.pk)
    by_number, hidden = picture.by_number, picture.private.steps.get(number)
    return StepCard(
        step=step,
        picture=drawn,
        level=level_of(step),
        after=[by_number[needed].step for needed in drawn.needs],
        arguments=list(_arguments(picture, masked_parameters(step.parameters_json, hidden))),
        is_private=hidden is not None,
        skip_note=_skip_note(step),
        **_contents(step, hidden),
    )


def _skip_note(step: Step) -> Mapping[str, Any]:
    """Return who skipped the step and why; nothing when it was not skipped by a person."""
    if not step.skipped:
        return {}
    notes = MemoryItem.objects.filter(plan=step.plan_id, step_id=step.step_id, type=MemoryItem.Type.STEP_SKIPPED)
    note: dict[str, Any] = next((each.value_json for each in notes), {})
    return note if "by" in note else {}


def _contents(step: Any, hidden: Hidden | None) -> dict[str, Any]:
    """Return the beginnings of what the call was given and gave, or what may be shown where that is private."""
    parts = dict(zip(("called_with", "result", "evidence"), SHOWN_PARTS, strict=True))
    if hidden is None or step.call is None:
        return {name: _excerpt(step, part) for name, part in parts.items()}
    step.call.refresh_from_db(fields=[part.partition("__")[2] for part in SHOWN_PARTS])
    return {**dict.fromkeys(parts), "masked": masked_parts(step.call, hidden)}


def default_step(picture: Picture) -> int:
    """Return the step to look at first: one that waits for people, failed or runs; else the first.

    Never a call of an agent: what came of it is the agent's to hear, whose step says what people have to do.
    """
    order = ("human", "danger", "run")
    own = [step for step in picture.steps if step.step.parent_id is None and step.word.hue in order]
    found = sorted((order.index(step.word.hue), step.number) for step in own)
    return found[0][1] if found else min(picture.by_number, default=0)


def level_of(step: Step) -> str:
    """Return the level of the version that was called; before there is a call, the one that holds now."""
    if step.call:
        return step.call.version.safety_level
    now = snapshot.current(step.tool)
    return str(now.tool.safety_level) if now else ""


def _excerpt(step: Step, part: str) -> Excerpt | None:
    size, head = getattr(step, f"{part}_size"), getattr(step, f"{part}_head")
    if not size:
        return None
    shown = shown_text(head)
    return Excerpt(shown, size - len(head) + len(shown))


def _arguments(picture: Picture, parameters: Mapping[str, Any]) -> Iterator[Argument]:
    writers = {row.key: row.step_id for row in picture.memory}
    for step in picture.steps:
        if step.step.expected_key:
            writers[step.step.expected_key] = step.number
    for name, value in parameters.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        yield Argument(name, Excerpt(text[:VALUE_SHOWN], len(text)), _sources(value, writers))


def _sources(value: Any, writers: Mapping[str, int | None]) -> list[str]:
    """Say where the references of an argument lead: `brief, from step 6`."""
    try:
        keys = dict.fromkeys(reference.key for reference in references.find(value))
    except ParameterError:
        return []
    return [f"{key}, from step {writers[key]}" if writers.get(key) else key for key in keys]
