"""Form that creates a grant from an approved request: its proposed values, their check against history, saving."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils.translation import gettext, gettext_noop

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
    "": gettext_noop("Choose…"),
    "equals": gettext_noop("is exactly"),
    "in": gettext_noop("is one of (one per line)"),
    "starts_with": gettext_noop("starts with"),
    "ends_with": gettext_noop("ends with"),
    "contains": gettext_noop("contains"),
    "matches": gettext_noop("matches the pattern"),
    "less_than": gettext_noop("is less than"),
    "greater_than": gettext_noop("is greater than"),
    "exists": gettext_noop("can be anything"),
}
TEXT_OPERATORS = ("equals", "in", "starts_with", "ends_with", "contains", "matches", "exists")
NUMBER_OPERATORS = ("equals", "in", "less_than", "greater_than", "exists")
OTHER_OPERATORS = ("equals", "exists")
SCOPE_LABELS = {
    "plan": gettext_noop("This plan only"),
    "session": gettext_noop("Session %(name)s"),
    "requester": gettext_noop("All calls of %(name)s"),
}
FIELD_BY_PATH = {"expires_at": "hours", "max_uses": "uses", "scope": "scope", "scope_ref": "scope"}


@dataclass(slots=True)
class ConditionField:
    """Fields of one argument: the condition's operator and value."""

    number: int
    part: ArgumentProposal
    operator: str
    value: str
    problem: str = ""

    @property
    def is_text(self) -> bool:
        """True if the argument is a string in the request."""
        return isinstance(self.part.value, str)

    @property
    def operators(self) -> list[tuple[str, str]]:
        """Operators to choose from, with labels; for a secret only `exists`."""
        known: Sequence[str] = OTHER_OPERATORS
        if self.is_text:
            known = TEXT_OPERATORS
        elif isinstance(self.part.value, int | float) and not isinstance(self.part.value, bool):
            known = NUMBER_OPERATORS
        elif isinstance(self.part.value, dict) and self.part.value:
            known = ("exists",)
        return [(word, gettext(OPERATOR_LABELS[word])) for word in ("", *known)]

    @property
    def seen(self) -> list[str]:
        """The argument's values in similar calls, as texts."""
        return [value_as_text(value) for value in self.part.seen]

    def row(self) -> GrantCondition:
        """Return the condition as entered. Raises GrantRefused if a field is missing or invalid."""
        if self.operator not in dict(self.operators) or not self.operator:
            raise GrantRefused(f"arguments.{self.number}", gettext("Choose a condition."))
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
            message = gettext("This argument is not text. Write its value as JSON, such as 5 or true.")
            raise GrantRefused(f"arguments.{self.number}", message) from None


def value_as_text(value: Any) -> str:
    """Return a value as text for a form field: strings unchanged, anything else as JSON."""
    return value if isinstance(value, str) else canonical_text(value)


@dataclass(slots=True)
class GrantForm:
    """Proposed or submitted values with their errors; `tested` compares them with past calls."""

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
        """The request that the grant is created from."""
        return self.proposal.request

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """Scopes to choose from with their labels, narrowest first."""
        scopes = self.proposal.scopes.items()
        return [(scope, gettext(SCOPE_LABELS[scope]) % {"name": ref}) for scope, ref in scopes]

    @property
    def in_words(self) -> str:
        """Sentence that describes the covered calls; empty while the form is incomplete."""
        try:
            return conditions_sentence(self.checked())
        except ToolgateError:
            return ""

    def checked(self) -> list[GrantCondition]:
        """Return the conditions in canonical form. Raises ParameterError that names the row."""
        return check_grant_conditions([each.row() for each in self.rows])

    def note(self, error: ToolgateError) -> None:
        """Show an error at the field it is about."""
        problem = problem_for(error)
        self.answered_with = problem.status if problem else 422
        errors = (problem.errors if problem else ()) or [{"path": "", "message": error.message}]
        for each in errors:
            path, _, rest = str(each["path"]).partition(".")
            number = rest.partition(".")[0]
            if path == "arguments" and number.isdecimal() and int(number) < len(self.rows):
                self.rows[int(number)].problem = str(each["message"])
            else:
                self.problems[FIELD_BY_PATH.get(path, "")] = str(each["message"])


def initial_grant_form(request: ApprovalRequest, by: User) -> GrantForm:
    """Return the form with proposed values. Raises NotAllowed if `by` may not create a grant from this request."""
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
    """Return the submitted form with its comparison with past calls. Raises NotAllowed."""
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
    """Create the grant and return it; return None after adding errors to the form."""
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
        raise GrantRefused(field_name, gettext("Enter a whole number of at least 1."))
    return int(text)
