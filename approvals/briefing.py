"""One request as a reviewer is briefed on it: what will change, what it touches, who asks, who may answer.

Texts of agents are passed on whole and unchanged; the templates escape them and spell out what does not show.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model

from approvals.edits import part_of, progress_of
from approvals.models import ApprovalRequest, Review
from approvals.policy import rule_of
from approvals.private import hidden_from
from approvals.selectors import current_round, last_review, may_decide, precedent_for, status_sentence
from approvals.states import RequestStatus
from catalog import clock
from catalog.access import name_of, sees_all
from catalog.definitions import Reversibility
from catalog.diffs import MOST_DRAWN, Change, diff_texts
from catalog.glyphs import count_hidden
from catalog.hunks import Division, Hunk

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONG = 1024
"""From this size on (bytes) a value is shown with its size and lines, so that nobody takes a part for the whole."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as it would be used. `is_before`, `is_after`: the change below begins, ends with its text."""

    name: str
    text: str
    is_before: bool = False
    is_after: bool = False
    is_default: bool = False

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self.text.encode(errors="replace"))

    @property
    def lines(self) -> int:
        """Lines of the text."""
        return self.text.count("\n") + 1

    @property
    def is_long(self) -> bool:
        """Say whether the size is worth saying."""
        return self.size >= LONG


class Briefing:
    """All that the page shows of one request, to one viewer; each part is worked out when it is asked for."""

    def __init__(self, request: ApprovalRequest, viewer: "User") -> None:
        self.request = request
        self.viewer = viewer
        hidden = hidden_from(viewer, [request]).get(request.call_id)
        arguments = json.loads(current_round(request).arguments)
        self.is_private = hidden is not None
        self.arguments: Mapping[str, Any] = hidden.mask_arguments(arguments) if hidden else arguments
        self.reason = "" if hidden else request.call.reason
        self.preview: Mapping[str, Any] = {} if hidden else current_round(request).preview_json or {}

    @property
    def kind(self) -> str:
        """What the tool shows of its effect: diff, rows, text or none."""
        return str(self.preview.get("kind", "none"))

    @cached_property
    def title(self) -> tuple[str, str, str]:
        """The summary, cut before and after the argument that it names, if it names one."""
        summary = str(self.preview.get("summary", ""))
        if not summary:
            return ("Run ", self.request.call.tool_name, "")
        texts = (value for value in self.arguments.values() if isinstance(value, str))
        target = max(("", *(text for text in texts if text in summary)), key=len)
        lead, _, rest = summary.partition(target) if target else (summary, "", "")
        return (lead, target, rest)

    @cached_property
    def change(self) -> Change | None:
        """The change from what is there to what would be; None when the tool shows none."""
        return diff_texts(self.preview.get("before"), self.preview.get("after")) if self.kind == "diff" else None

    @cached_property
    def hunks(self) -> tuple[Hunk, ...]:
        """The parts of the change that the viewer may accept one by one; nothing where there is nothing to choose."""
        part = part_of(current_round(self.request), self.request.call.tool_name) if self.change else None
        if part is None or not self.may_answer:
            return ()
        hunks = Division(part.before, part.after).hunks
        return hunks if len(hunks) > 1 and not self.is_cut else ()

    @property
    def is_cut(self) -> bool:
        """Say whether the change is too long for a page to draw it whole; it is then decided as one."""
        return self.change is not None and len(self.change.rows) > MOST_DRAWN

    @property
    def progress(self) -> str:
        """How far a change that is accepted in parts has come; empty for any other."""
        return progress_of(self.request) if self.change else ""

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """Bytes before and after; None where there is, or will be, nothing."""
        texts = (self.preview.get("before"), self.preview.get("after"))
        before, after = (None if text is None else len(text.encode(errors="replace")) for text in texts)
        return (before, after)

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows that the call would affect, as the tool lists them."""
        return self.preview.get("rows") or ()

    @property
    def columns(self) -> list[str]:
        """The names in the rows, in the order they first appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    @cached_property
    def table(self) -> list[list[Any]]:
        """The rows' values, column by column."""
        return [[row.get(name, "") for name in self.columns] for row in self.rows]

    @cached_property
    def named_arguments(self) -> list[Argument]:
        """Every argument in full, then the defaults that the call leaves to the tool."""
        given = [self._argument(name, value) for name, value in self.arguments.items()]
        properties = self.request.tool_version.input_schema.get("properties", {})
        defaults = (
            Argument(name, _text(schema["default"]), is_default=True)
            for name, schema in properties.items()
            if name not in self.arguments and isinstance(schema, Mapping) and "default" in schema
        )
        return [*sorted(given, key=lambda argument: argument.is_before or argument.is_after), *defaults]

    def _argument(self, name: str, value: Any) -> Argument:
        if self.kind != "diff" or not isinstance(value, str):
            return Argument(name, _text(value))
        is_before = "\n" in value and value == self.preview.get("before")
        return Argument(name, value, is_before=is_before, is_after=value == self.preview.get("after"))

    @cached_property
    def hidden(self) -> int:
        """How many characters of what the agent wrote do not show."""
        return count_hidden(_texts_in(self.arguments)) + count_hidden(self.reason)

    @cached_property
    def may_answer(self) -> bool:
        """Say whether the viewer may answer now."""
        return self.is_open and self.why_not is None

    @property
    def is_open(self) -> bool:
        """Say whether an answer is still waited for and there is time to give it."""
        return self.request.status == RequestStatus.PENDING and self.request.expires_at > clock.now()

    @cached_property
    def why_not(self) -> str | None:
        """Why the viewer may not decide; None when they may."""
        return may_decide(self.request, self.viewer)

    @cached_property
    def who_may(self) -> list[str]:
        """The people who may decide."""
        rule, asked = rule_of(self.request.policy_revision), self.request.call.requesters.all()
        people = get_user_model().objects.filter(is_active=True, groups__name__in=rule.groups).distinct()
        allowed = people if rule.allow_self_review else people.exclude(pk__in=[each.user_id for each in asked])
        return [name_of(person) for person in allowed.order_by("first_name", "username")]

    @property
    def is_irreversible(self) -> bool:
        """Say whether approving takes a second press."""
        return self.request.tool_version.reversibility == Reversibility.IRREVERSIBLE

    @property
    def needs_reason(self) -> bool:
        """Say whether a rejection needs a reason."""
        return self.is_irreversible or rule_of(self.request.policy_revision).reason_required

    @cached_property
    def answer(self) -> Review | None:
        """The review that counts, if there is one."""
        return last_review(self.request)

    @property
    def standing(self) -> str:
        """Where the request stands, in a sentence."""
        return status_sentence(self.request)

    @property
    def undo_seconds(self) -> int:
        """Seconds left in which the viewer may take their answer back; 0 when they may not."""
        request, review = self.request, self.answer
        if review is None or review.person_id != self.viewer.pk or request.effective_at is None or request.applied_at:
            return 0
        return max(0, int((request.effective_at - clock.now()).total_seconds()))

    @cached_property
    def precedent(self) -> list[tuple[ApprovalRequest, Review | None]]:
        """The last answers about the same tool with their reviews, for who may see them."""
        earlier = precedent_for(self.request) if sees_all(self.viewer) else []
        return [(request, last_review(request)) for request in earlier]


def brief(request: ApprovalRequest, viewer: "User") -> Briefing:
    """Return the briefing on a request that was loaded whole."""
    return Briefing(request, viewer)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _texts_in(value: Any) -> str:
    """Return every text and name inside a JSON value, joined."""
    if isinstance(value, Mapping):
        return "".join(f"{name}{_texts_in(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "".join(map(_texts_in, value))
    return value if isinstance(value, str) else ""
