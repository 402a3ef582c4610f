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
from approvals.reviews.confirmation import ApprovalSubject, Confirmation, check_confirmation
from approvals.reviews.decisions import UNSET, Decision, Unset, decide
from approvals.reviews.edits import Edit, narrow_to_hunks
from approvals.states import FAIL, REJECTION_EFFECTS, RequestStatus, ReviewVerdict
from approvals.web.review.actions import ReviewActions
from approvals.web.review.detail import RequestDetail, detail_for, subject_of_edit
from approvals.web.review.edit_form import EditForm, validate_submission
from approvals.web.review.rendering import change_since_seen
from catalog.access.roles import NotAllowed
from catalog.core.canonical_json import parse_json
from catalog.errors import Conflict, MalformedJSON, ParameterError, TooLarge, ToolgateError, field_error
from catalog.text.diff import TextDiff

FormOrigin = Literal["bar", "respond", "thread"]
HTTP_STATUS_BY_ERROR = {Conflict: 409, NotAllowed: 403, ParameterError: 422}


@dataclass(frozen=True, slots=True)
class DecisionForm:
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
    confirmation: Confirmation = field(default_factory=Confirmation)
    arguments: Mapping[str, Any] | None = None
    sent_from: FormOrigin = "bar"

    @classmethod
    def read(cls, form: QueryDict) -> "DecisionForm":
        """Read the form; browsers end lines with two characters, texts here with one."""
        verdict, _, effect = form.get("verdict", "").partition(":")
        hunks = _read_hunks(form) if verdict == ReviewVerdict.APPROVE and form.get("choosing") == "1" else None
        if hunks == ():
            verdict, hunks = ReviewVerdict.REJECT.value, None
        return cls(
            verdict,
            form.get("seen_digest", ""),
            _read_text(form, "comment"),
            form.get("confirmed") == "1",
            hunks,
            effect if effect in REJECTION_EFFECTS else FAIL,
            _read_text(form, "response"),
            form.get("response_as") == "json",
            Confirmation(form.get("typed", ""), form.get("since", "")),
            sent_from="respond" if "response" in form else "bar",
        )

    @property
    def written(self) -> str:
        """All that was written, for a request that takes no answer any more."""
        arguments = json.dumps(self.arguments, indent=2, ensure_ascii=False) if self.arguments else ""
        return "\n\n".join(text for text in (self.comment, self.response, arguments) if text.strip())

    def with_arguments(self, arguments: Mapping[str, Any]) -> "DecisionForm":
        """Return the answer that lets the call run with these arguments."""
        return replace(self, arguments=arguments)

    def decision(self) -> Decision:
        """Return the decision that was entered. Raises ParameterError for an unknown verdict, and for invalid JSON."""
        if self.verdict not in ReviewVerdict.values:
            raise field_error("verdict", "invalid", "Choose to approve or to reject.")
        verdict = ReviewVerdict(self.verdict)
        return Decision(
            verdict=verdict,
            seen_digest=self.seen_digest,
            comment=self.comment,
            channel="page",
            hunks=self.hunks,
            arguments=self.arguments,
            response=self._response() if verdict == ReviewVerdict.RESPOND else UNSET,
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
            raise field_error("response", "json", error.message) from None


def _read_text(form: QueryDict, name: str) -> str:
    return form.get(name, "").replace("\r\n", "\n")


INVALID_HUNK = 10**9
"""Stands for a hunk that a page never offered; there is none of this number."""


def _read_hunks(form: QueryDict) -> tuple[int, ...]:
    numbers = form.getlist("hunks")
    return tuple(int(text) if text.isascii() and text.isdigit() and len(text) < 9 else INVALID_HUNK for text in numbers)


@dataclass(frozen=True, slots=True)
class DecisionError:
    """Why an answer was not recorded: the sentence, the field that it is about, and the answer as it was.

    `change` is what has changed meanwhile, where that is the reason.
    """

    kind: Literal["taken", "changed", "forbidden", "field", "again"]
    message: str = ""
    answer: DecisionForm | None = None
    field: str = "comment"
    change: TextDiff | None = None

    @property
    def is_about_note(self) -> bool:
        """Say whether the note of the decision bar was refused."""
        sent_from_bar = self.answer is not None and self.answer.sent_from == "bar"
        return self.kind == "field" and self.field == "comment" and sent_from_bar

    @classmethod
    def from_error(cls, error: ToolgateError, answer: DecisionForm | None = None) -> "DecisionError":
        """Return the setback that an error means."""
        kinds: dict[int, Literal["taken", "forbidden", "field"]] = {409: "taken", 403: "forbidden", 422: "field"}
        return cls(kinds[http_status_for(error)], error.message, answer, _field_for_error(error))

    def of(self, request: ApprovalRequest) -> "DecisionError":
        """Return it with what happened told apart: another answer came first, or what is asked has changed."""
        stale = self.answer is not None and self.answer.seen_digest != request.digest
        return replace(self, kind="changed") if self.kind == "taken" and stale and _is_open(request) else self


def _is_open(request: ApprovalRequest) -> bool:
    return request.status == RequestStatus.PENDING


ERROR_FIELDS = ("comment", "response", "typed", "sign_in", "review", "until", "to", "reason")


def _field_for_error(error: ToolgateError) -> str:
    """Return the field of the bar at which an error is told."""
    details = getattr(error, "details", None) or {}
    name = str(details.get("field") or "").partition(".")[0]
    name = {"text": "comment"}.get(name, name)
    return name if name in ERROR_FIELDS else "comment"


def http_status_for(error: ToolgateError) -> int:
    """Return the HTTP status of an error that a decision may raise."""
    return next(status for kind, status in HTTP_STATUS_BY_ERROR.items() if isinstance(error, kind))


SUCCESS_MESSAGES = {
    ReviewVerdict.APPROVE: "Approved. It starts",
    ReviewVerdict.REJECT: "Rejected. The requester will be notified",
    ReviewVerdict.RESPOND: "Answered in place of the tool. The requester will be notified",
    ReviewVerdict.REQUEST_CHANGES: "Changes requested. The requester will be notified",
}


def success_message(verdict: str, request: ApprovalRequest | None = None) -> str:
    """Say what happens now to a request that was answered; within the time to undo, its countdown follows."""
    if request is not None and _is_open(request):
        return "Your answer is recorded. It waits for the others who must agree."
    now = not settings.TOOLGATE_UNDO_SECONDS or verdict == ReviewVerdict.REQUEST_CHANGES
    return f"{SUCCESS_MESSAGES.get(ReviewVerdict(verdict), 'Done')} {'now.' if now else 'in'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionResult:
    """What became of an answer: the sentence that says so, or the setback and its HTTP status."""

    said: str = ""
    setback: DecisionError | None = None
    status: int = 200
    editing: EditForm | None = None
    subject: ApprovalSubject | None = None
    confirmation: Confirmation | None = None


def submit_decision(held: ApprovalRequest, by: User, form: QueryDict) -> DecisionResult:
    """Record the decision that a form sent. The edit that it makes, if any, is worked out once, here."""
    answer, editing = DecisionForm.read(form), None
    if _is_edit(answer, form):
        editing, error = validate_submission(held, by, form)
        if error is not None:
            return _failure_result(held, by, error, answer, form)
        if editing.changes:
            answer = answer.with_arguments(editing.arguments())
    subject = None
    try:
        edit = _edit_for_answer(held, answer, editing)
        if isinstance(edit, Edit):
            subject = subject_of_edit(held, edit)
        if answer.verdict == ReviewVerdict.APPROVE:
            briefing = detail_for(held, by)
            if briefing.second_press and not answer.confirmed:
                again = DecisionError("again", answer=answer)
                return DecisionResult(setback=again, editing=editing, subject=subject, confirmation=answer.confirmation)
            check_confirmation(held, by, subject or briefing.subject, answer.confirmation)
        request = decide(held, by=by, decision=answer.decision(), edit=edit)
    except ToolgateError as error:
        return replace(_failure_result(held, by, error, answer, form), subject=subject)
    return DecisionResult(said=success_message(answer.verdict, request))


def edit_check_result(editing: EditForm, form: QueryDict) -> DecisionResult:
    """Return what a check of edited arguments leads to: nothing is recorded, what was typed stays."""
    subject = subject_of_edit(editing.request, editing.edit) if editing.edit else None
    return DecisionResult(
        editing=editing,
        status=editing.answered_with,
        subject=subject,
        confirmation=DecisionForm.read(form).confirmation,
    )


def detail_after_decision(briefing: RequestDetail, outcome: DecisionResult) -> RequestDetail:
    """Return a briefing that says what the rule asks of what was made of the request, with what was typed already."""
    return briefing if outcome.confirmation is None else briefing.after(outcome.confirmation, outcome.subject)


def _edit_for_answer(held: ApprovalRequest, answer: DecisionForm, editing: EditForm | None) -> Edit | Unset | None:
    """Return the edit that an answer makes of the request; None for none, and UNSET for what `decide` must refuse.

    Raises what `decide` raises.
    """
    if answer.arguments is not None and editing is not None:
        return editing.edit
    if answer.hunks is None:
        return None
    return narrow_to_hunks(held, answer.hunks) if answer.seen_digest == held.digest else UNSET


def _failure_result(
    held: ApprovalRequest, by: User, error: ToolgateError, answer: DecisionForm, form: QueryDict
) -> DecisionResult:
    now = request_for(by, held.public_id)
    setback = DecisionError.from_error(error, answer).of(now)
    if setback.kind == "changed":
        setback = replace(setback, change=change_since_seen(now, answer.seen_digest))
    editing = None
    if _is_edit(answer, form) and setback.kind in ("field", "changed") and ReviewActions(now, by).may_answer:
        editing, _ = validate_submission(now, by, form)  # compared with what is asked now
    return DecisionResult(
        setback=setback, status=http_status_for(error), editing=editing, confirmation=answer.confirmation
    )


def _is_edit(answer: DecisionForm, form: QueryDict) -> bool:
    return "mode" in form and answer.verdict == ReviewVerdict.APPROVE
