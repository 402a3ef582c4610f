"""Each time a model was asked for a plan, as its page shows it: to the plan's owner and administrators alone."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from rest_framework.exceptions import ValidationError

from catalog.access.roles import NotAllowed, user_display_name
from catalog.rest.pagination import PageCursor, PageParameters, paginate
from plans import states
from plans.models import ModelUse, Plan
from plans.store.selectors import may_control

PAGE_SIZE = 10
LONG_MESSAGE = 1500
"""Characters of a message beyond which it is folded."""
PURPOSES = {
    ModelUse.Purpose.DRAFT: "Drafted a plan",
    ModelUse.Purpose.REPAIR: "Mended the draft",
    ModelUse.Purpose.CONTINUE: "Planned on with an answer",
    ModelUse.Purpose.REPLY: "Composed the reply",
    ModelUse.Purpose.AGENT: "Worked as an agent",
}
SPEAKERS = {
    "instructions": "Instructions",
    "offered": "Tools it was offered",
    "earlier": "Before that",
    "user": "To the model",
    "model": "From the model",
    "tools": "What its calls gave",
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the model read or wrote it, whole."""

    by: str
    text: str

    @property
    def size(self) -> str:
        """How long it is, in words."""
        return f"{len(self.text):,} characters"

    @property
    def is_long(self) -> bool:
        """Whether it is folded until somebody opens it."""
        return len(self.text) > LONG_MESSAGE


@dataclass(frozen=True, slots=True)
class Transcript:
    """One time a model was asked: what it read, what it said, and what that took."""

    use: ModelUse

    @property
    def purpose(self) -> str:
        """What it was asked for."""
        return PURPOSES.get(ModelUse.Purpose(self.use.purpose), self.use.purpose)

    @property
    def is_draft(self) -> bool:
        """Whether it was asked for a draft, which has a page of its own."""
        return self.use.call.tool_name == states.DRAFT_TOOL

    @property
    def tokens(self) -> str:
        """How much it read and wrote, in words."""
        return f"{self.use.input_tokens:,} tokens read, {self.use.output_tokens:,} written"

    @property
    def read(self) -> Sequence[Message]:
        """What the model read."""
        return list(_messages(self.use.prompt, "user"))

    @property
    def said(self) -> Sequence[Message]:
        """What the model answered; nothing where it did not."""
        return list(_messages(self.use.answer, "model"))


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """A page of them, oldest first; `later` is the cursor of the next page."""

    plan: Plan
    rows: Sequence[Transcript]
    later: str
    is_first: bool


def may_read_prompts(viewer: User, plan: Plan) -> bool:
    """Say whether the viewer may read what models were asked for this plan: its owner and administrators."""
    return may_control(viewer, None, plan)


def has_prompts(plan: Plan) -> bool:
    """Say whether a model was asked for the plan; one query."""
    return ModelUse.objects.filter(plan=plan).exists()


def transcripts_of(viewer: User, plan: Plan, cursor: str) -> TranscriptPage:
    """Return what models were asked for the plan, and for the draft it was started from. Raises NotAllowed."""
    if not may_read_prompts(viewer, plan):
        raise NotAllowed(f"Only {user_display_name(plan.author)} and administrators may read the prompts of this plan.")
    uses, at = ModelUse.objects.filter(plan=plan).select_related("call").defer("call__response"), _cursor(cursor)
    page = paginate(uses, order="id", at=PageParameters(PAGE_SIZE, at))
    return TranscriptPage(
        plan, [Transcript(use) for use in page.rows], page.next.text() if page.next else "", at is None
    )


def _cursor(text: str) -> PageCursor | None:
    """Read a cursor; one that is not ours is the beginning."""
    try:
        found = PageCursor.read(text[:400])
    except ValidationError:
        return None
    return found if found is None or isinstance(found.value, int) else None


def _messages(text: str, by: str) -> Iterator[Message]:
    """Read stored messages: objects that say who speaks and what; anything else is shown as it is stored."""
    if not text:
        return
    try:
        stored = json.loads(text)
    except ValueError:
        yield Message(SPEAKERS[by], text)
        return
    for each in stored if isinstance(stored, list) else [stored]:
        yield _message(each, by)


def _message(stored: Any, by: str) -> Message:
    if not isinstance(stored, dict):
        return Message(SPEAKERS[by], _as_text(stored))
    speaker = str(stored.get("by", by))
    return Message(SPEAKERS.get(speaker, speaker), _as_text(stored.get("text", stored)))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
