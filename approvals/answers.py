"""A decision as a page sends it: the fields of the form, and what the person is told about what became of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from django.conf import settings
from django.http import QueryDict

from approvals import decisions
from approvals.decisions import Decision
from approvals.models import ApprovalRequest
from approvals.states import Verdict
from catalog.access import NotAllowed
from catalog.definitions import Reversibility
from catalog.errors import Conflict, ParameterError, ToolgateError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

STATUS = {Conflict: 409, NotAllowed: 403, ParameterError: 422}


@dataclass(frozen=True, slots=True)
class Answer:
    """What was entered: the verdict, the digest that was on the screen, the note, and whether it was said twice.

    `hunks` are those left checked, None where there was nothing to choose; an approval of none is a rejection.
    """

    verdict: str
    seen_digest: str
    comment: str
    confirmed: bool
    hunks: tuple[int, ...] | None = None

    @classmethod
    def read(cls, form: QueryDict) -> "Answer":
        """Read the form; browsers end lines with two characters, texts here with one."""
        comment = form.get("comment", "").replace("\r\n", "\n")
        verdict = form.get("verdict", "")
        hunks = _hunks(form) if verdict == Verdict.APPROVE and form.get("choosing") == "1" else None
        if hunks == ():
            verdict, hunks = Verdict.REJECT.value, None
        return cls(verdict, form.get("seen_digest", ""), comment, form.get("confirmed") == "1", hunks)

    def needs_confirming(self, request: ApprovalRequest) -> bool:
        """Say whether what cannot be undone was approved only once."""
        irreversible = request.tool_version.reversibility == Reversibility.IRREVERSIBLE
        return irreversible and self.verdict == Verdict.APPROVE and not self.confirmed

    def send(self, request: ApprovalRequest, by: "User") -> ApprovalRequest:
        """Record the answer. Raises what `decide` raises, and ParameterError for a verdict that there is not."""
        if self.verdict not in Verdict.values:
            problem = {"path": "verdict", "code": "invalid", "message": "Choose to approve or to reject."}
            raise ParameterError(problem["message"], {"field": "verdict", "errors": [problem]})
        decision = Decision(Verdict(self.verdict), self.seen_digest, self.comment, "page", self.hunks)
        return decisions.decide(request, by=by, decision=decision)


NO_HUNK = 10**9
"""Stands for a hunk that a page never offered; there is none of this number."""


def _hunks(form: QueryDict) -> tuple[int, ...]:
    numbers = form.getlist("hunks")
    return tuple(int(text) if text.isascii() and text.isdigit() and len(text) < 9 else NO_HUNK for text in numbers)


@dataclass(frozen=True, slots=True)
class Setback:
    """Why an answer was not recorded: the sentence, whether it is about the note, and the answer as it was."""

    kind: Literal["taken", "forbidden", "field", "again"]
    message: str = ""
    answer: Answer | None = None

    @classmethod
    def from_error(cls, error: ToolgateError, answer: Answer | None = None) -> "Setback":
        """Return the setback that an error means."""
        kinds: dict[int, Literal["taken", "forbidden", "field"]] = {409: "taken", 403: "forbidden", 422: "field"}
        return cls(kinds[status_of(error)], error.message, answer)


def status_of(error: ToolgateError) -> int:
    """Return the HTTP status of an error that a decision may raise."""
    return next(status for kind, status in STATUS.items() if isinstance(error, kind))


def told(verdict: str) -> str:
    """Say what happens now to a request that was answered; within the time to undo, its countdown follows."""
    when = "in" if settings.TOOLGATE_UNDO_SECONDS else "now."
    return f"Approved. It starts {when}" if verdict == Verdict.APPROVE else f"Rejected. Who asked is told {when}"
