"""The form that makes a grant out of an approved request: proposed, edited, held against history, sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from approvals.errors import GrantRefused
from approvals.grants.conditions import check_grant_rows, in_words
from approvals.grants.proposals import History, Part, Proposal, Row, held_against_history, propose
from approvals.grants.services import Terms, make, may_make_from
from approvals.models import ApprovalRequest, Grant
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, parse_json
from catalog.errors import ToolgateError
from catalog.rest.problems import problem_of

WORDS = {
    "": "Choose…",
    "equals": "is exactly",
    "in": "is one of (a line each)",
    "starts_with": "starts with",
    "ends_with": "ends with",
    "contains": "contains",
    "matches": "matches the pattern",
    "less_than": "is less than",
    "greater_than": "is more than",
    "exists": "may be anything",
}
OF_TEXTS = ("equals", "in", "starts_with", "ends_with", "contains", "matches", "exists")
OF_NUMBERS = ("equals", "in", "less_than", "greater_than", "exists")
OF_OTHERS = ("equals", "exists")
SCOPES = {"plan": "This plan only", "session": "The session {}", "requester": "Everything that {} asks for"}
FIELDS = {"expires_at": "hours", "max_uses": "uses", "scope": "scope", "scope_ref": "scope"}


@dataclass(slots=True)
class RowField:
    """One argument in the form."""

    number: int
    part: Part
    operator: str
    value: str
    problem: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it is a text in the request."""
        return isinstance(self.part.value, str)

    @property
    def operators(self) -> list[tuple[str, str]]:
        """What may be chosen, with words; a secret may only be anything."""
        known: Sequence[str] = OF_OTHERS
        if self.is_text:
            known = OF_TEXTS
        elif isinstance(self.part.value, int | float) and not isinstance(self.part.value, bool):
            known = OF_NUMBERS
        elif isinstance(self.part.value, dict) and self.part.value:
            known = ("exists",)
        return [(word, WORDS[word]) for word in ("", *known)]

    @property
    def seen(self) -> list[str]:
        """What it was in the calls like this, as texts."""
        return [text_of(value) for value in self.part.seen]

    def row(self) -> Row:
        """Return the row as it is written. Raises GrantRefused."""
        if self.operator not in dict(self.operators) or not self.operator:
            raise GrantRefused(f"arguments.{self.number}", "Choose what this may be.")
        if self.operator == "exists":
            return {"path": self.part.path, "operator": "exists"}
        return {"path": self.part.path, "operator": self.operator, "value": self._read()}

    def _read(self) -> Any:
        if self.operator == "in":
            return [self._one(line) for line in self.value.split("\n") if line.strip()]
        return self._one(self.value)

    def _one(self, text: str) -> Any:
        if self.is_text:
            return text
        try:
            return parse_json(text)
        except ToolgateError:
            message = "This is no text in the request: write it as JSON, such as 5 or true."
            raise GrantRefused(f"arguments.{self.number}", message) from None


def text_of(value: Any) -> str:
    """Return a value as the form shows it."""
    return value if isinstance(value, str) else canonical_text(value)


@dataclass(slots=True)
class GrantForm:
    """The form as it stands: what is proposed or was entered, what is wrong, what history says."""

    proposal: Proposal
    rows: list[RowField]
    scope: str
    hours: str
    uses: str
    problems: dict[str, str] = field(default_factory=dict)
    tested: History | None = None
    answered_with: int = 200

    @property
    def request(self) -> ApprovalRequest:
        """The request it is made out of."""
        return self.proposal.request

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """The scopes that may be chosen, with words, narrowest first."""
        return [(scope, SCOPES[scope].format(ref)) for scope, ref in self.proposal.scopes.items()]

    @property
    def in_words(self) -> str:
        """What calls it would be about; empty while something is to be chosen."""
        try:
            return in_words(self.checked())
        except ToolgateError:
            return ""

    def checked(self) -> list[Row]:
        """Return the rows in their plain form. Raises ParameterError naming the row."""
        return check_grant_rows([each.row() for each in self.rows])

    def note(self, error: ToolgateError) -> None:
        """Tell what is wrong at its field."""
        told = problem_of(error)
        self.answered_with = told.status if told else 422
        errors = (told.errors if told else ()) or [{"path": "", "message": error.message}]
        for each in errors:
            path, _, rest = str(each["path"]).partition(".")
            number = rest.partition(".")[0]
            if path == "arguments" and number.isdecimal() and int(number) < len(self.rows):
                self.rows[int(number)].problem = str(each["message"])
            else:
                self.problems[FIELDS.get(path, "")] = str(each["message"])


def proposed(request: ApprovalRequest, by: User) -> GrantForm:
    """Return the form with what is proposed. Raises NotAllowed for who may not make a grant out of this request."""
    why_not = may_make_from(request, by)
    if why_not is not None:
        raise NotAllowed(why_not)
    found = propose(request, by)
    rows = [_field(number, part, part.row) for number, part in enumerate(found.parts)]
    return GrantForm(found, rows, found.scope, str(found.hours), str(found.uses), tested=found.history)


def _field(number: int, part: Part, row: Row | None) -> RowField:
    if row is None:
        return RowField(number, part, "", text_of(part.value) if len(part.seen) == 1 else "")
    return RowField(number, part, row["operator"], text_of(row.get("value", "")))


def entered(request: ApprovalRequest, by: User, sent: Mapping[str, str]) -> GrantForm:
    """Return the form as it was sent, held against history. Raises NotAllowed."""
    form = proposed(request, by)
    for each in form.rows:
        each.operator = sent.get(f"operator-{each.number}", "")
        each.value = sent.get(f"value-{each.number}", "").replace("\r\n", "\n")
    form.scope, form.hours, form.uses = (sent.get(name, "").strip() for name in ("scope", "hours", "uses"))
    form.tested = None
    try:
        form.tested = held_against_history(request, form.checked(), form.scope)
    except ToolgateError as error:
        form.note(error)
    return form


def make_from(form: GrantForm, by: User) -> Grant | None:
    """Make the grant; None where something is wrong, which the form then says."""
    try:
        request, hours = form.request, _whole("hours", form.hours)
        terms = Terms(
            tool=request.tool_version.tool.name,
            rows=form.checked(),
            scope=form.scope,
            scope_ref=form.proposal.scopes.get(form.scope, ""),
            expires_at=clock.now() + timedelta(hours=hours),
            max_uses=_whole("uses", form.uses),
        )
        return make(terms, by=by, created_from=request)
    except ToolgateError as error:
        form.note(error)
        return None


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 7):
        field_name = "expires_at" if name == "hours" else "max_uses"
        raise GrantRefused(field_name, "This must be a whole number of at least 1.")
    return int(text)
