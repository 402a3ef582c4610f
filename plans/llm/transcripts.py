"""Transcripts of the model requests of a plan, visible to the plan's owner and administrators."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import ValidationError

from catalog.access.roles import NotAllowed, user_display_name
from catalog.rest.pagination import PageCursor, PageParameters, paginate
from plans import states
from plans.models import ModelUse, Plan
from plans.store.selectors import may_control

PAGE_SIZE = 10
LONG_MESSAGE = 1500
"""Length in characters above which a message is shown folded."""
PURPOSES = {
    ModelUse.Purpose.DRAFT: _("Drafted a plan"),
    ModelUse.Purpose.REPAIR: _("Fixed the draft"),
    ModelUse.Purpose.CONTINUE: _("Continued planning after an answer"),
    ModelUse.Purpose.REPLY: _("Composed the reply"),
    ModelUse.Purpose.AGENT: _("Worked as an agent"),
}
SPEAKERS = {
    "instructions": "Instructions",
    "offered": "Offered tools",
    "earlier": "Earlier messages",
    "user": "To the model",
    "model": "From the model",
    "tools": "Results of its calls",
}


@dataclass(frozen=True, slots=True)
class Message:
    by: str
    text: str

    @property
    def size(self) -> str:
        count = len(self.text)
        return ngettext("%(count)s character", "%(count)s characters", count) % {"count": f"{count:,}"}

    @property
    def is_long(self) -> bool:
        return len(self.text) > LONG_MESSAGE


@dataclass(frozen=True, slots=True)
class Transcript:
    use: ModelUse

    @property
    def purpose(self) -> str:
        return str(PURPOSES.get(ModelUse.Purpose(self.use.purpose), self.use.purpose))

    @property
    def is_draft(self) -> bool:
        """True if the request was for a draft, which has its own page."""
        return self.use.call.tool_name == states.DRAFT_TOOL

    @property
    def tokens(self) -> str:
        counts = {"read": f"{self.use.input_tokens:,}", "written": f"{self.use.output_tokens:,}"}
        return gettext("%(read)s tokens read, %(written)s written") % counts

    @property
    def read(self) -> Sequence[Message]:
        return list(_messages(self.use.prompt, "user"))

    @property
    def said(self) -> Sequence[Message]:
        """The messages that the model answered; empty if the request failed."""
        return list(_messages(self.use.answer, "model"))


@dataclass(frozen=True, slots=True)
class TranscriptPage:
    """A page of transcripts, oldest first; `later` is the cursor of the next page."""

    plan: Plan
    rows: Sequence[Transcript]
    later: str
    is_first: bool


def may_read_prompts(viewer: User, plan: Plan) -> bool:
    """Return whether the viewer may read the plan's transcripts: its owner and administrators may."""
    return may_control(viewer, None, plan)


def has_prompts(plan: Plan) -> bool:
    return ModelUse.objects.filter(plan=plan).exists()


def transcripts_of(viewer: User, plan: Plan, cursor: str) -> TranscriptPage:
    """Return a page of transcripts of the plan and of the draft it was started from. Raises NotAllowed."""
    if not may_read_prompts(viewer, plan):
        raise NotAllowed(f"Only {user_display_name(plan.author)} and administrators may read the prompts of this plan.")
    uses = ModelUse.objects.filter(plan=plan).select_related("call").defer("call__response")
    try:
        at = PageCursor.read(cursor[:400])
    except ValidationError:
        at = None
    if at is not None and not isinstance(at.value, int):
        at = None  # an invalid cursor means the first page
    page = paginate(uses, order="id", at=PageParameters(PAGE_SIZE, at))
    return TranscriptPage(
        plan, [Transcript(use) for use in page.rows], page.next.text() if page.next else "", at is None
    )


def _messages(text: str, by: str) -> Iterator[Message]:
    """Yield stored messages: objects with `by` and `text`; anything else is shown as stored."""
    if not text:
        return
    try:
        stored = json.loads(text)
    except ValueError:
        yield Message(SPEAKERS[by], text)
        return
    for each in stored if isinstance(stored, list) else [stored]:
        speaker, value = (str(each.get("by", by)), each.get("text", each)) if isinstance(each, dict) else (by, each)
        shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        yield Message(SPEAKERS.get(speaker, speaker), shown)
