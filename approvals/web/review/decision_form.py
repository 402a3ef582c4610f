"""Decision form of a request: its fields, the decision made from them, and the page after success or failure.

After a failure everything is still filled in, and the message stands at its field.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.http import QueryDict

from approvals.models import ApprovalRequest
from approvals.requests.queries import request_for
from approvals.reviews.confirmation import Given, Matter, see_that_it_counts
from approvals.reviews.decisions import UNSET, Decision, Unset, decide
from approvals.reviews.edits import Edit, narrowing_of
from approvals.states import FAIL, REJECTION_EFFECTS, RequestStatus, Verdict
from approvals.web.review.actions import Bar
from approvals.web.review.detail import Briefing, brief, matter_of
from approvals.web.review.edit_form import Editing, written
from approvals.web.review.rendering import seen_before
from catalog.access.roles import NotAllowed
from catalog.core.canonical_json import parse_json
from catalog.errors import Conflict, MalformedJSON, ParameterError, TooLarge, ToolgateError, field_error, nested_errors
from catalog.text.diff import Change

SentFrom = Literal["bar", "respond", "thread"]
STATUS = {Conflict: 409, NotAllowed: 403, ParameterError: 422}


@dataclass(frozen=True, slots=True)
class Answer:
    """What was entered: the verdict, the digest that was on the screen, the note, and whether it was said twice.

    `hunks` are those left checked, None where there was nothing to choose; an approval of none is a rejection.
    `response` is what is to be answered in the tool's place, as it was written; `as_json` says how to read it.
    `sent_from` names the form: what was written goes back into it when it was not recorded.
    """

    verdict: str
    seen_digest: str
    comment: str
    confirmed: bool
    hunks: tuple[int, ...] | None = None
    effect: str = FAIL
    response: str = ""
    as_json: bool = False
    given: Given = field(default_factory=Given)
    arguments: Mapping[str, Any] | None = None
    sent_from: SentFrom = "bar"

    @classmethod
    def read(cls, form: QueryDict) -> "Answer":
        """Read the form; browsers end lines with two characters, texts here with one."""
        verdict, _, effect = form.get("verdict", "").partition(":")
        hunks = _hunks(form) if verdict == Verdict.APPROVE and form.get("choosing") == "1" else None
        if hunks == ():
            verdict, hunks = Verdict.REJECT.value, None
        return cls(
            verdict,
            form.get("seen_digest", ""),
            _text(form, "comment"),
            form.get("confirmed") == "1",
            hunks,
            effect if effect in REJECTION_EFFECTS else FAIL,
            _text(form, "response"),
            form.get("response_as") == "json",
            Given(form.get("typed", ""), form.get("since", "")),
            sent_from="respond" if "response" in form else "bar",
        )

    @property
    def written(self) -> str:
        """All that was written, for a request that takes no answer any more."""
        arguments = json.dumps(self.arguments, indent=2, ensure_ascii=False) if self.arguments else ""
        return "\n\n".join(text for text in (self.comment, self.response, arguments) if text.strip())

    def with_arguments(self, arguments: Mapping[str, Any]) -> "Answer":
        """Return the answer that lets the call run with these arguments."""
        return replace(self, arguments=arguments)

    def decision(self) -> Decision:
        """Return the decision that was entered. Raises ParameterError for an unknown verdict, and for invalid JSON."""
        if self.verdict not in Verdict.values:
            raise field_error("verdict", "invalid", "Choose to approve or to reject.")
        verdict = Verdict(self.verdict)
        return Decision(
            verdict=verdict,
            seen_digest=self.seen_digest,
            comment=self.comment,
            channel="page",
            hunks=self.hunks,
            arguments=self.arguments,
            response=self._response() if verdict == Verdict.RESPOND else UNSET,
            effect=self.effect,
        )

    def _response(self) -> Any:
        if not self.response.strip():
            raise field_error("response", "required", "Write the answer that the agent gets in the tool's place.")
        if not self.as_json:
            return self.response
        try:
            return parse_json(self.response)
        except (MalformedJSON, TooLarge) as error:
            problem = {"path": "", "code": "json", "message": error.message}
            raise nested_errors("response", ParameterError(error.message, {"errors": [problem]})) from None


def _text(form: QueryDict, name: str) -> str:
    return form.get(name, "").replace("\r\n", "\n")


NO_HUNK = 10**9
"""Stands for a hunk that a page never offered; there is none of this number."""


def _hunks(form: QueryDict) -> tuple[int, ...]:
    numbers = form.getlist("hunks")
    return tuple(int(text) if text.isascii() and text.isdigit() and len(text) < 9 else NO_HUNK for text in numbers)


@dataclass(frozen=True, slots=True)
class Setback:
    """Why an answer was not recorded: the sentence, the field that it is about, and the answer as it was.

    `change` is what has changed meanwhile, where that is the reason.
    """

    kind: Literal["taken", "changed", "forbidden", "field", "again"]
    message: str = ""
    answer: Answer | None = None
    field: str = "comment"
    change: Change | None = None

    @classmethod
    def from_error(cls, error: ToolgateError, answer: Answer | None = None) -> "Setback":
        """Return the setback that an error means."""
        kinds: dict[int, Literal["taken", "forbidden", "field"]] = {409: "taken", 403: "forbidden", 422: "field"}
        return cls(kinds[status_of(error)], error.message, answer, _field_of(error))

    def of(self, request: ApprovalRequest) -> "Setback":
        """Return it with what happened told apart: another answer came first, or what is asked has changed."""
        stale = self.answer is not None and self.answer.seen_digest != request.digest
        return replace(self, kind="changed") if self.kind == "taken" and stale and _is_open(request) else self


def _is_open(request: ApprovalRequest) -> bool:
    return request.status == RequestStatus.PENDING


FIELDS = ("comment", "response", "typed", "sign_in", "review", "until", "to", "reason")


def _field_of(error: ToolgateError) -> str:
    """Return the field of the bar at which an error is told."""
    details = getattr(error, "details", None) or {}
    name = str(details.get("field") or "").partition(".")[0]
    name = {"text": "comment"}.get(name, name)
    return name if name in FIELDS else "comment"


def status_of(error: ToolgateError) -> int:
    """Return the HTTP status of an error that a decision may raise."""
    return next(status for kind, status in STATUS.items() if isinstance(error, kind))


SAID = {
    Verdict.APPROVE: "Approved. It starts",
    Verdict.REJECT: "Rejected. The requester will be notified",
    Verdict.RESPOND: "Answered in place of the tool. The requester will be notified",
    Verdict.REQUEST_CHANGES: "Changes requested. The requester will be notified",
}


def told(verdict: str, request: ApprovalRequest | None = None) -> str:
    """Say what happens now to a request that was answered; within the time to undo, its countdown follows."""
    if request is not None and _is_open(request):
        return "Your answer is recorded. It waits for the others who must agree."
    now = not settings.TOOLGATE_UNDO_SECONDS or verdict == Verdict.REQUEST_CHANGES
    return f"{SAID.get(Verdict(verdict), 'Done')} {'now.' if now else 'in'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an answer: the sentence that says so, or the setback and its HTTP status."""

    said: str = ""
    setback: Setback | None = None
    status: int = 200
    editing: Editing | None = None
    matter: Matter | None = None
    given: Given | None = None


def attempt(held: ApprovalRequest, by: User, form: QueryDict) -> Outcome:
    """Record the decision that a form sent. The edit that it makes, if any, is worked out once, here."""
    answer, editing = Answer.read(form), None
    if _is_edit(answer, form):
        editing, error = written(held, by, form)
        if error is not None:
            return _failed(held, by, error, answer, form)
        if editing.changes:
            answer = answer.with_arguments(editing.arguments())
    matter = None
    try:
        edit = _edit_of(held, answer, editing)
        if isinstance(edit, Edit):
            matter = matter_of(held, edit)
        if answer.verdict == Verdict.APPROVE:
            briefing = brief(held, by)
            if briefing.second_press and not answer.confirmed:
                again = Setback("again", answer=answer)
                return Outcome(setback=again, editing=editing, matter=matter, given=answer.given)
            see_that_it_counts(held, by, matter or briefing.matter, answer.given)
        request = decide(held, by=by, decision=answer.decision(), edit=edit)
    except ToolgateError as error:
        return replace(_failed(held, by, error, answer, form), matter=matter)
    return Outcome(said=told(answer.verdict, request))


def checked(editing: Editing, form: QueryDict) -> Outcome:
    """Return what a check of edited arguments leads to: nothing is recorded, what was typed stays."""
    matter = matter_of(editing.request, editing.edit) if editing.edit else None
    return Outcome(editing=editing, status=editing.answered_with, matter=matter, given=Answer.read(form).given)


def rebriefed(briefing: Briefing, outcome: Outcome) -> Briefing:
    """Return a briefing that says what the rule asks of what was made of the request, with what was typed already."""
    return briefing if outcome.given is None else briefing.after(outcome.given, outcome.matter)


def _edit_of(held: ApprovalRequest, answer: Answer, editing: Editing | None) -> Edit | Unset | None:
    """Return the edit that an answer makes of the request; None for none, and UNSET for what `decide` must refuse.

    Raises what `decide` raises.
    """
    if answer.arguments is not None and editing is not None:
        return editing.edit
    if answer.hunks is None:
        return None
    return narrowing_of(held, answer.hunks) if answer.seen_digest == held.digest else UNSET


def _failed(held: ApprovalRequest, by: User, error: ToolgateError, answer: Answer, form: QueryDict) -> Outcome:
    now = request_for(by, held.public_id)
    setback = Setback.from_error(error, answer).of(now)
    if setback.kind == "changed":
        setback = replace(setback, change=seen_before(now, answer.seen_digest))
    editing = None
    if _is_edit(answer, form) and setback.kind in ("field", "changed") and Bar(now, by).may_answer:
        editing, _ = written(now, by, form)  # compared with what is asked now
    return Outcome(setback=setback, status=status_of(error), editing=editing, given=answer.given)


def _is_edit(answer: Answer, form: QueryDict) -> bool:
    return "mode" in form and answer.verdict == Verdict.APPROVE
