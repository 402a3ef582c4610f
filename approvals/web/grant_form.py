"""The form that makes a grant out of an approved request: proposed, edited, held against history, sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from approvals.errors import GrantRefused
from approvals.grants.conditions import check_grant_conditions, conditions_sentence
from approvals.grants.proposals import (
    ArgumentProposal,
    CoverageHistory,
    GrantCondition,
    Proposal,
    propose_grant,
    replay_history,
)
from approvals.grants.services import GrantTerms, create_grant, may_create_from
from approvals.models import ApprovalRequest, Grant
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, parse_json
from catalog.errors import ToolgateError
from catalog.rest.problems import problem_for

OPERATOR_LABELS = {
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
TEXT_OPERATORS = ("equals", "in", "starts_with", "ends_with", "contains", "matches", "exists")
NUMBER_OPERATORS = ("equals", "in", "less_than", "greater_than", "exists")
OTHER_OPERATORS = ("equals", "exists")
SCOPE_LABELS = {"plan": "This plan only", "session": "The session {}", "requester": "Everything that {} asks for"}
FIELD_BY_PATH = {"expires_at": "hours", "max_uses": "uses", "scope": "scope", "scope_ref": "scope"}


@dataclass(slots=True)
class ConditionField:
    """One argument in the form."""

    number: int
    part: ArgumentProposal
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
        known: Sequence[str] = OTHER_OPERATORS
        if self.is_text:
            known = TEXT_OPERATORS
        elif isinstance(self.part.value, int | float) and not isinstance(self.part.value, bool):
            known = NUMBER_OPERATORS
        elif isinstance(self.part.value, dict) and self.part.value:
            known = ("exists",)
        return [(word, OPERATOR_LABELS[word]) for word in ("", *known)]

    @property
    def seen(self) -> list[str]:
        """What it was in the calls like this, as texts."""
        return [value_as_text(value) for value in self.part.seen]

    def row(self) -> GrantCondition:
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


def value_as_text(value: Any) -> str:
    """Return a value as the form shows it."""
    return value if isinstance(value, str) else canonical_text(value)


@dataclass(slots=True)
class GrantForm:
    """The form as it stands: what is proposed or was entered, what is wrong, what history says."""

    proposal: Proposal
    rows: list[ConditionField]
    scope: str
    hours: str
    uses: str
    problems: dict[str, str] = field(default_factory=dict)
    tested: CoverageHistory | None = None
    answered_with: int = 200

    @property
    def request(self) -> ApprovalRequest:
        """The request it is made out of."""
        return self.proposal.request

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """The scopes that may be chosen, with words, narrowest first."""
        return [(scope, SCOPE_LABELS[scope].format(ref)) for scope, ref in self.proposal.scopes.items()]

    @property
    def in_words(self) -> str:
        """What calls it would be about; empty while something is to be chosen."""
        try:
            return conditions_sentence(self.checked())
        except ToolgateError:
            return ""

    def checked(self) -> list[GrantCondition]:
        """Return the rows in their plain form. Raises ParameterError naming the row."""
        return check_grant_conditions([each.row() for each in self.rows])

    def note(self, error: ToolgateError) -> None:
        """Tell what is wrong at its field."""
        told = problem_for(error)
        self.answered_with = told.status if told else 422
        errors = (told.errors if told else ()) or [{"path": "", "message": error.message}]
        for each in errors:
            path, _, rest = str(each["path"]).partition(".")
            number = rest.partition(".")[0]
            if path == "arguments" and number.isdecimal() and int(number) < len(self.rows):
                self.rows[int(number)].problem = str(each["message"])
            else:
                self.problems[FIELD_BY_PATH.get(path, "")] = str(each["message"])


def initial_grant_form(request: ApprovalRequest, by: User) -> GrantForm:
    """Return the form with what is proposed. Raises NotAllowed for who may not make a grant out of this request."""
    why_not = may_create_from(request, by)
    if why_not is not None:
        raise NotAllowed(why_not)
    found = propose_grant(request, by)
    rows = [_condition_field(number, part, part.row) for number, part in enumerate(found.parts)]
    return GrantForm(found, rows, found.scope, str(found.hours), str(found.uses), tested=found.history)


def _condition_field(number: int, part: ArgumentProposal, row: GrantCondition | None) -> ConditionField:
    if row is None:
        return ConditionField(number, part, "", value_as_text(part.value) if len(part.seen) == 1 else "")
    return ConditionField(number, part, row["operator"], value_as_text(row.get("value", "")))


def bind_grant_form(request: ApprovalRequest, by: User, sent: Mapping[str, str]) -> GrantForm:
    """Return the form as it was sent, held against history. Raises NotAllowed."""
    form = initial_grant_form(request, by)
    for each in form.rows:
        each.operator = sent.get(f"operator-{each.number}", "")
        each.value = sent.get(f"value-{each.number}", "").replace("\r\n", "\n")
    form.scope, form.hours, form.uses = (sent.get(name, "").strip() for name in ("scope", "hours", "uses"))
    form.tested = None
    try:
        form.tested = replay_history(request, form.checked(), form.scope)
    except ToolgateError as error:
        form.note(error)
    return form


def submit_grant_form(form: GrantForm, by: User) -> Grant | None:
    """Make the grant; None where something is wrong, which the form then says."""
    try:
        request, hours = form.request, _whole_number("hours", form.hours)
        terms = GrantTerms(
            tool=request.tool_version.tool.name,
            rows=form.checked(),
            scope=form.scope,
            scope_ref=form.proposal.scopes.get(form.scope, ""),
            expires_at=clock.now() + timedelta(hours=hours),
            max_uses=_whole_number("uses", form.uses),
        )
        return create_grant(terms, by=by, created_from=request)
    except ToolgateError as error:
        form.note(error)
        return None


def _whole_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 7):
        field_name = "expires_at" if name == "hours" else "max_uses"
        raise GrantRefused(field_name, "This must be a whole number of at least 1.")
    return int(text)
