"""An answer from a page, from its form to what the page shows then: done, or why not, all still filled in."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from django.http import QueryDict

from approvals.answers import Answer, Setback, status_of, told
from approvals.briefing import Briefing, brief, matter_of
from approvals.drifting import seen_before
from approvals.editing import Editing, written
from approvals.models import ApprovalRequest
from approvals.requests.queries import request_for
from approvals.reviews.confirmation import Given, Matter
from approvals.reviews.edits import narrowing_of
from approvals.states import Verdict
from catalog.errors import ToolgateError

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an answer: the sentence that says so, or the setback and its HTTP status."""

    said: str = ""
    setback: Setback | None = None
    status: int = 200
    editing: Editing | None = None
    matter: Matter | None = None
    given: Given | None = None


def attempt(held: ApprovalRequest, by: "User", form: QueryDict) -> Outcome:
    """Record an answer as a form sent it."""
    answer, editing = Answer.read(form), None
    if _is_edit(answer, form):
        editing, error = written(held, by, form)
        if error is not None:
            return _failed(held, by, error, answer, form)
        if editing.changes and editing.edit is not None:
            answer = answer.with_arguments(editing.arguments())
    matter = None
    try:
        matter = _edited(held, answer, editing)
        briefing = brief(held, by)
        if answer.needs_confirming(briefing):
            again = Setback("again", answer=answer)
            return Outcome(setback=again, editing=editing, matter=matter, given=answer.given)
        request = answer.send(held, by, matter or briefing.matter)
    except ToolgateError as error:
        return replace(_failed(held, by, error, answer, form), matter=matter)
    return Outcome(said=told(answer.verdict, request))


def checked(editing: Editing, form: QueryDict) -> Outcome:
    """Return what a check of edited arguments leads to: nothing is recorded, what was typed stays."""
    matter = matter_of(editing.request, editing.edit) if editing.edit else None
    return Outcome(editing=editing, status=editing.answered_with, matter=matter, given=Answer.read(form).given)


def rebriefed(briefing: Briefing, outcome: Outcome) -> Briefing:
    """Let a briefing say what the rule asks of what was made of the request, with what was typed already."""
    if outcome.given is not None:
        briefing.given, briefing.edited = outcome.given, outcome.matter
    return briefing


def _edited(held: ApprovalRequest, answer: Answer, editing: Editing | None) -> Matter | None:
    """Return what an answer makes of what was asked; None when it leaves that as it is. Raises what `decide` does."""
    if answer.arguments is not None and editing is not None and editing.edit is not None:
        return matter_of(held, editing.edit)
    made = narrowing_of(held, answer.hunks) if answer.hunks and answer.seen_digest == held.digest else None
    return matter_of(held, made) if made else None


def _failed(held: ApprovalRequest, by: "User", error: ToolgateError, answer: Answer, form: QueryDict) -> Outcome:
    now = request_for(by, held.public_id)
    setback = Setback.from_error(error, answer).of(now)
    if setback.kind == "changed":
        setback = replace(setback, change=seen_before(now, answer.seen_digest))
    editing = None
    if _is_edit(answer, form) and setback.kind in ("field", "changed") and brief(now, by).may_answer:
        editing, _ = written(now, by, form)  # compared with what is asked now
    return Outcome(setback=setback, status=status_of(error), editing=editing, given=answer.given)


def _is_edit(answer: Answer, form: QueryDict) -> bool:
    return "mode" in form and answer.verdict == Verdict.APPROVE
