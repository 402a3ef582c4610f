"""Decision form of a request: its fields, the decision made from them, and the result that the page shows."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils.translation import gettext, gettext_noop

from approvals.models import ApprovalRequest
from approvals.policies.eligibility import check_may_decide
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.requests.queries import request_for
from approvals.reviews.confirmation import ApprovalSubject, Confirmation, check_confirmation
from approvals.reviews.decisions import UNSET, Decision, Unset, decide
from approvals.reviews.edits import Edit, narrow_to_hunks
from approvals.reviews.passkeys import PasskeySignature, approval_challenge, make_nonce
from approvals.states import FAIL, RequestStatus, ReviewVerdict
from approvals.stops.stopped_time import find_stop_of
from approvals.web.review.actions import ReviewActions
from approvals.web.review.detail import RequestDetail, detail_for, subject_of_edit
from approvals.web.review.edit_form import EditForm, validate_submission
from approvals.web.review.rendering import change_since_seen
from catalog.access.passkeys import signing_options
from catalog.access.roles import NotAllowed
from catalog.core.canonical_json import parse_json
from catalog.errors import Conflict, MalformedJSON, ParameterError, TooLarge, ToolgateError, field_error
from catalog.text.diff import TextDiff

FormOrigin = Literal["bar", "respond", "thread"]
WRITTEN_ANSWERS = ("reject", "request_changes", "reject:skip", "reject:cancel_plan")
"""Answers with a note; while the note is written, the decision bar shows this answer alone."""
HTTP_STATUS_BY_ERROR = {Conflict: 409, NotAllowed: 403, ParameterError: 422}


INVALID_HUNK = 10**9
"""Placeholder for an invalid hunk number; no hunk has this number, so it is refused."""


@dataclass(frozen=True, slots=True)
class DecisionForm:
    """Submitted values: the verdict, the digest that was displayed, the comment, and the second press.

    `hunks` is None if the form offered no choice. `saw_all` is True if the reviewer loaded the lines that the page had
    left out. `sent_from` is the form that shows the values again after a failure.
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
    saw_all: bool = False
    arguments: Mapping[str, Any] | None = None
    sent_from: FormOrigin = "bar"
    passkey: PasskeySignature | None = None

    @classmethod
    def read(cls, form: QueryDict) -> "DecisionForm":
        """Parse a submission; CRLF line ends become LF."""
        verdicts = form.getlist("verdict")
        verdict, _, effect = (verdicts[0] if len(verdicts) == 1 else "").partition(":")
        hunks = None
        if verdict == ReviewVerdict.APPROVE and form.get("choosing") == "1":
            texts = form.getlist("hunks")
            numbers = (int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None for text in texts)
            hunks = tuple(INVALID_HUNK if number is None else number for number in numbers)
        nonce, credential = form.get("passkey_nonce", ""), form.get("passkey", "")
        return cls(
            verdict,
            form.get("seen_digest", ""),
            _read_text(form, "comment"),
            form.get("confirmed") == "1",
            hunks,
            effect or FAIL,
            _read_text(form, "response"),
            form.get("response_as") == "json",
            Confirmation(form.get("typed", ""), form.get("since", "")),
            form.get("shown") == "all",
            sent_from="respond" if "response" in form else "bar",
            passkey=PasskeySignature(nonce, credential) if nonce and credential else None,
        )

    @property
    def intent(self) -> str:
        """The answer, such as `reject:skip`, if it was sent from the decision bar with a note; otherwise empty."""
        answer = self.verdict if self.effect == FAIL else f"{self.verdict}:{self.effect}"
        return answer if answer in WRITTEN_ANSWERS and self.sent_from == "bar" else ""

    @property
    def written(self) -> str:
        """All submitted text, which is shown again if someone else has closed the request meanwhile."""
        arguments = json.dumps(self.arguments, indent=2, ensure_ascii=False) if self.arguments else ""
        return "\n\n".join(text for text in (self.comment, self.response, arguments) if text.strip())

    def with_arguments(self, arguments: Mapping[str, Any]) -> "DecisionForm":
        return replace(self, arguments=arguments)

    def decision(self) -> Decision:
        """Return the decision. Raises ParameterError for an unknown verdict and for invalid JSON."""
        if self.verdict not in ReviewVerdict.values:
            raise field_error("verdict", "invalid", gettext("Choose a decision, such as approve or reject."))
        verdict = ReviewVerdict(self.verdict)
        if self.hunks == ():
            raise field_error("hunks", "required", gettext("Select the parts of the change to apply, or reject it."))
        return Decision(
            verdict=verdict,
            seen_digest=self.seen_digest,
            comment=self.comment,
            channel="page",
            hunks=self.hunks,
            arguments=self.arguments,
            response=self._response() if verdict == ReviewVerdict.RESPOND else UNSET,
            effect=self.effect,
            passkey=self.passkey,
        )

    def _response(self) -> Any:
        if not self.response.strip():
            message = gettext("Write the answer that the agent gets instead of the tool's result.")
            raise field_error("response", "required", message)
        if not self.as_json:
            return self.response
        try:
            return parse_json(self.response)
        except (MalformedJSON, TooLarge) as error:
            raise field_error("response", "json", error.message) from None


def _read_text(form: QueryDict, name: str) -> str:
    return form.get(name, "").replace("\r\n", "\n")


@dataclass(frozen=True, slots=True)
class DecisionError:
    """Failure of a submission; for kind `changed`, `change` compares the request with what the reviewer saw."""

    kind: Literal["taken", "changed", "forbidden", "field", "again"]
    message: str = ""
    answer: DecisionForm | None = None
    field: str = "comment"
    change: TextDiff | None = None

    @property
    def note(self) -> str:
        """The note of the decision bar, if that form was submitted."""
        return self.answer.comment if self.answer is not None and self.answer.sent_from == "bar" else ""

    @property
    def is_about_note(self) -> bool:
        """True if the note of the decision bar was refused."""
        sent_from_bar = self.answer is not None and self.answer.sent_from == "bar"
        return self.kind == "field" and self.field == "comment" and sent_from_bar

    @classmethod
    def from_error(cls, error: ToolgateError, form: DecisionForm | None = None) -> "DecisionError":
        kinds: dict[int, Literal["taken", "forbidden", "field"]] = {409: "taken", 403: "forbidden", 422: "field"}
        details = getattr(error, "details", None) or {}
        name = str(details.get("field") or "").partition(".")[0]
        field = name if name in ERROR_FIELDS else "comment"
        return cls(kinds[http_status_for(error)], error.message, form, field)

    def of(self, request: ApprovalRequest) -> "DecisionError":
        """Return this failure; its kind becomes `changed` if the request is still open but was edited meanwhile."""
        stale = self.answer is not None and self.answer.seen_digest != request.digest
        return replace(self, kind="changed") if self.kind == "taken" and stale and _is_open(request) else self


def _is_open(request: ApprovalRequest) -> bool:
    return request.status == RequestStatus.PENDING


ERROR_FIELDS = ("verdict", "hunks", "comment", "response", "typed", "sign_in", "review", "until", "to", "reason")


def http_status_for(error: ToolgateError) -> int:
    return next(status for kind, status in HTTP_STATUS_BY_ERROR.items() if isinstance(error, kind))


SUCCESS_MESSAGES = {
    ReviewVerdict.APPROVE: gettext_noop("Approved. The call starts now."),
    ReviewVerdict.REJECT: gettext_noop("Rejected. The requester is notified now."),
    ReviewVerdict.RESPOND: gettext_noop("Answered instead of the tool. The requester is notified now."),
    ReviewVerdict.REQUEST_CHANGES: gettext_noop("Changes requested. The requester is notified now."),
}
COUNTDOWN_MESSAGES = {
    ReviewVerdict.APPROVE: gettext_noop("Approved. The call starts in"),
    ReviewVerdict.REJECT: gettext_noop("Rejected. The requester is notified in"),
    ReviewVerdict.RESPOND: gettext_noop("Answered instead of the tool. The requester is notified in"),
}
"""Messages of decisions that can be undone; the page adds the seconds left."""
ENVELOPE_OPENS = {
    SUCCESS_MESSAGES[ReviewVerdict.APPROVE]: gettext_noop("Approved. The envelope opens now."),
    COUNTDOWN_MESSAGES[ReviewVerdict.APPROVE]: gettext_noop("Approved. The envelope opens in"),
}
"""Messages after the approval of a proposed envelope, in place of those of other calls."""
STARTS_LATER = {
    SUCCESS_MESSAGES[ReviewVerdict.APPROVE]: gettext_noop("Approved. The call starts when the stop is lifted."),
    COUNTDOWN_MESSAGES[ReviewVerdict.APPROVE]: gettext_noop(
        "Approved. The call starts when the stop is lifted. You can undo this for"
    ),
}
"""Messages after the approval of a call that a stop covers."""


def has_undo_window(verdict: str) -> bool:
    """Return True if decisions with this verdict can be undone for some seconds."""
    return bool(settings.TOOLGATE_UNDO_SECONDS) and verdict != ReviewVerdict.REQUEST_CHANGES


def success_message(verdict: str, request: ApprovalRequest) -> str:
    """Return the message after a decision. If the decision can be undone, the page appends the seconds left."""
    if _is_open(request):
        return gettext("Your approval is recorded. Approvals of others are still missing.")
    return countdown_message(verdict, request) if has_undo_window(verdict) else final_message(verdict, request)


def countdown_message(verdict: str, request: ApprovalRequest) -> str:
    """Return the message of a decision that can still be undone, to which the page appends the seconds left."""
    return _message(COUNTDOWN_MESSAGES[ReviewVerdict(verdict)], request)


def final_message(verdict: str, request: ApprovalRequest) -> str:
    """Return the message of a decision that takes effect now."""
    return _message(SUCCESS_MESSAGES[ReviewVerdict(verdict)], request)


def _message(text: str, request: ApprovalRequest) -> str:
    if request.call.tool_name == PROPOSE_ENVELOPE:
        text = ENVELOPE_OPENS.get(text, text)
    elif text in STARTS_LATER and find_stop_of(request.call) is not None:
        text = STARTS_LATER[text]
    return gettext(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionResult:
    """Result of a submission: the success message, which may be `undoable`, or the failure and HTTP status."""

    message: str = ""
    undoable: bool = False
    setback: DecisionError | None = None
    status: int = 200
    editing: EditForm | None = None
    subject: ApprovalSubject | None = None
    confirmation: Confirmation | None = None

    @classmethod
    def refused(cls, error: ToolgateError, form: DecisionForm | None = None) -> "DecisionResult":
        return cls(setback=DecisionError.from_error(error, form), status=http_status_for(error))


def submit_decision(request: ApprovalRequest, by: User, sent: QueryDict) -> DecisionResult:
    """Record the submitted decision. An edit that it contains is computed only once, here."""
    form, editing = DecisionForm.read(sent), None
    if _is_edit(form, sent):
        editing, error = validate_submission(request, by, sent)
        if error is not None:
            return _failure_result(request, by, error, form, sent)
        if editing.changes:
            form = form.with_arguments(editing.arguments())
    subject = None
    try:
        edit = _edit_for_answer(request, form, editing)
        if isinstance(edit, Edit):
            subject = subject_of_edit(request, edit)
        if form.verdict == ReviewVerdict.APPROVE:
            detail = detail_for(request, by)
            if editing is not None and editing.changes:
                reason = detail.second_press_for(editing.unshown_lines)
            else:
                reason = detail.second_press_when_shown if form.saw_all else detail.second_press
            if reason and not form.confirmed:
                again = DecisionError("again", reason, form)
                return DecisionResult(setback=again, editing=editing, subject=subject, confirmation=form.confirmation)
            check_confirmation(request, by, subject or detail.subject, form.confirmation)
        decided = decide(request, by=by, decision=form.decision(), edit=edit)
    except ToolgateError as error:
        return replace(_failure_result(request, by, error, form, sent), subject=subject)
    undoable = has_undo_window(form.verdict) and not _is_open(decided)
    return DecisionResult(message=success_message(form.verdict, decided), undoable=undoable)


def signing_request(request: ApprovalRequest, by: User, sent: QueryDict) -> dict[str, Any]:
    """Return a nonce and the options with which the browser has the submitted decision signed by a passkey.

    Raises the same exceptions as `decide` for an edit that is not valid.
    """
    check_may_decide(request, by)
    form, editing = DecisionForm.read(sent), None
    if _is_edit(form, sent):
        editing, error = validate_submission(request, by, sent)
        if error is not None:
            raise error
        if editing.changes:
            form = form.with_arguments(editing.arguments())
    decision, edit, nonce = form.decision(), _edit_for_answer(request, form, editing), make_nonce(by)
    if isinstance(edit, Unset):
        raise Conflict(gettext("The request has changed."))
    response = None if decision.response is UNSET else decision.response
    challenge = approval_challenge(request, nonce, verdict=decision.verdict, edit=edit, response=response)
    return {"nonce": nonce, "options": signing_options(by, challenge)}


def edit_check_result(edit_form: EditForm, sent: QueryDict) -> DecisionResult:
    """Return the result of checking edited arguments: nothing is recorded and the input is kept."""
    subject = subject_of_edit(edit_form.request, edit_form.edit) if edit_form.edit else None
    return DecisionResult(
        editing=edit_form,
        status=edit_form.answered_with,
        subject=subject,
        confirmation=DecisionForm.read(sent).confirmation,
    )


def detail_after_decision(detail: RequestDetail, result: DecisionResult) -> RequestDetail:
    """Return the detail with the submitted confirmation, and with the requirements for the submitted edit."""
    return detail if result.confirmation is None else detail.after(result.confirmation, result.subject)


def _edit_for_answer(request: ApprovalRequest, form: DecisionForm, edit_form: EditForm | None) -> Edit | Unset | None:
    """Return the edit in a submission; UNSET if its digest is old. Raises the same exceptions as `decide`."""
    if form.arguments is not None and edit_form is not None:
        return edit_form.edit
    if form.hunks is None:
        return None
    return narrow_to_hunks(request, form.hunks) if form.seen_digest == request.digest else UNSET


def _failure_result(
    request: ApprovalRequest, by: User, error: ToolgateError, form: DecisionForm, sent: QueryDict
) -> DecisionResult:
    now = request_for(by, request.public_id)
    setback = DecisionError.from_error(error, form).of(now)
    if setback.kind == "changed":
        setback = replace(setback, change=change_since_seen(now, form.seen_digest))
    editing = None
    if _is_edit(form, sent) and setback.kind in ("field", "changed") and ReviewActions(now, by).may_answer:
        editing, _ = validate_submission(now, by, sent)  # compare the input with the request's current state
    return DecisionResult(
        setback=setback, status=http_status_for(error), editing=editing, confirmation=form.confirmation
    )


def _is_edit(form: DecisionForm, sent: QueryDict) -> bool:
    return "mode" in sent and form.verdict == ReviewVerdict.APPROVE
