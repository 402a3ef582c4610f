"""Form that creates a grant from an approved request: its proposed values, their test on past calls, saving."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, cast

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext

from approvals.grants.proposals import (
    ArgumentProposal,
    CoverageHistory,
    GrantCondition,
    propose_grant,
    replay_history,
)
from approvals.grants.services import GrantTerms, create_grant, may_create_from
from approvals.models import ApprovalRequest, Grant
from approvals.policy_language.bounds import check_bounds, conditions_sentence
from approvals.policy_language.escapes import open_end
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.core.canonical_json import canonical_text, parse_json
from catalog.errors import Conflict, ParameterError, ToolgateError
from catalog.text.formats import format_moment
from catalog.ui.page_forms import CardSelect, CardText, FormError, PageForm

OPERATOR_LABELS = {
    "equals": gettext_lazy("equals"),
    "in": gettext_lazy("is one of (one per line)"),
    "starts_with": gettext_lazy("starts with"),
    "ends_with": gettext_lazy("ends with"),
    "contains": gettext_lazy("contains"),
    "matches": gettext_lazy("matches the pattern"),
    "less_than": gettext_lazy("is less than"),
    "greater_than": gettext_lazy("is greater than"),
    "exists": gettext_lazy("can be anything"),
}
TEXT_OPERATORS = ("equals", "in", "starts_with", "ends_with", "contains", "matches", "exists")
NUMBER_OPERATORS = ("equals", "in", "less_than", "greater_than", "exists")
OTHER_OPERATORS = ("equals", "exists")
SCOPE_LABELS = {
    "plan": gettext_lazy("This plan only"),
    "session": gettext_lazy("Session %(name)s"),
    "requester": gettext_lazy("All calls of %(name)s"),
}
SCOPE_CARDS = {
    "plan": CardText(gettext_lazy("Further steps of the plan of this request.")),
    "session": CardText(gettext_lazy("Calls that the agent makes in the same session.")),
    "requester": CardText(gettext_lazy("In every plan and session.")),
}
SCOPE_PHRASES = {
    "plan": gettext_noop("in plan %(name)s"),
    "session": gettext_noop("in session %(name)s"),
    "requester": gettext_noop("requested by %(name)s"),
}
FIELD_BY_PATH = {"expires_at": "hours", "max_uses": "uses", "scope_ref": "scope"}
CHOOSE_A_CONDITION = gettext_lazy("Choose a condition.")


class ArgumentForm(PageForm):
    use_required_attribute = False  # the server explains what is missing

    operator = forms.ChoiceField(
        error_messages={"required": CHOOSE_A_CONDITION, "invalid_choice": CHOOSE_A_CONDITION},
    )
    value = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"class": "grows mono", "rows": 1, "spellcheck": "false"}),
    )

    def __init__(self, data: Mapping[str, Any] | None, *, number: int, proposal: ArgumentProposal) -> None:
        super().__init__(data, initial=_initial(proposal), prefix=f"argument-{number}")
        self.part = proposal
        self.fields["operator"].label = _("Condition for %(path)s") % {"path": proposal.path}
        self.fields["value"].label = _("Value for %(path)s") % {"path": proposal.path}
        labels = [(each, OPERATOR_LABELS[each]) for each in self._operators()]
        cast("forms.ChoiceField", self.fields["operator"]).choices = [("", _("Choose…")), *labels]

    @property
    def seen(self) -> list[str]:
        """The argument's values in similar calls, as texts."""
        return [value_as_text(value) for value in self.part.seen]

    @property
    def condition(self) -> GrantCondition:
        row: GrantCondition = {"path": self.part.path, "operator": self.cleaned_data["operator"]}
        return row if row["operator"] == "exists" else row | {"value": self.cleaned_data["value"]}

    @property
    def warning(self) -> str:
        """Warning about a condition that also fits other hosts or addresses; empty if there is none."""
        if not self.is_bound:
            return open_end(self.part.row) if self.part.row is not None else ""
        return open_end(self.condition) if self.is_valid() else ""

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = self.cleaned_data
        operator, text = data.get("operator"), data.get("value", "").replace("\r\n", "\n")
        if operator == "in":
            data["value"] = [self._parse(line) for line in text.split("\n") if line.strip()]
        elif operator != "exists":
            data["value"] = self._parse(text)
        return data

    def _operators(self) -> Sequence[str]:
        """Return the operators for the argument's type; for a secret there is only `exists`."""
        value = self.part.value
        if isinstance(value, str):
            return TEXT_OPERATORS
        if isinstance(value, int | float) and not isinstance(value, bool):
            return NUMBER_OPERATORS
        return ("exists",) if isinstance(value, dict) and value else OTHER_OPERATORS

    def _parse(self, text: str) -> Any:
        if isinstance(self.part.value, str):
            return text
        try:
            return parse_json(text)
        except ToolgateError:
            message = _("This argument is not text. Write its value as JSON, such as 5 or true.")
            raise ValidationError({"value": message}) from None


def _initial(proposal: ArgumentProposal) -> dict[str, str]:
    if proposal.row is None:
        return {"operator": "", "value": value_as_text(proposal.value) if len(proposal.seen) == 1 else ""}
    return {"operator": proposal.row["operator"], "value": value_as_text(proposal.row.get("value", ""))}


def scope_phrase(scope: str, name: str) -> str:
    """Return the phrase that says whose calls a grant covers."""
    return _(SCOPE_PHRASES[scope]) % {"name": name}


def value_as_text(value: Any) -> str:
    """Return a value as text for a form field: strings unchanged, anything else as JSON."""
    return value if isinstance(value, str) else canonical_text(value)


class GrantForm(PageForm):
    """Terms of a grant from a request, with an ArgumentForm per row. Raises NotAllowed if `by` may not create it."""

    scope = forms.ChoiceField(label=gettext_lazy("For"), widget=CardSelect(SCOPE_CARDS))

    def __init__(self, request: ApprovalRequest, by: User, data: Mapping[str, Any] | None = None) -> None:
        why_not = may_create_from(request, by)
        if why_not is not None:
            raise NotAllowed(why_not)
        self.request, self.proposal = request, propose_grant(request, by)
        found = self.proposal
        super().__init__(data, initial={"scope": found.scope, "hours": found.hours, "uses": found.uses})
        self.fields["hours"] = _limited_number(_("Hours"), found.limits.max_hours)
        self.fields["uses"] = _limited_number(_("Uses"), found.limits.max_uses)
        labels = [(scope, SCOPE_LABELS[scope] % {"name": ref}) for scope, ref in found.scopes.items()]
        cast("forms.ChoiceField", self.fields["scope"]).choices = labels
        self.rows = [ArgumentForm(data, number=number, proposal=part) for number, part in enumerate(found.parts)]

    def is_valid(self) -> bool:
        return all([super().is_valid(), *[row.is_valid() for row in self.rows]])

    @cached_property
    def conditions(self) -> list[GrantCondition]:
        """Conditions in canonical form; empty without arguments, or if a row has errors, which the row then shows."""
        if not self.is_bound:
            complete = all(part.row is not None for part in self.proposal.parts)
            return self.proposal.rows if complete else []
        if not all(row.is_valid() for row in self.rows):
            return []
        try:
            return check_bounds([row.condition for row in self.rows])
        except ParameterError as error:
            self.add_problems(error)
            return []

    @property
    def in_words(self) -> str:
        """Sentence that describes the covered calls; empty while the form is incomplete."""
        return conditions_sentence(self.conditions) if len(self.conditions) == len(self.rows) else ""

    @property
    def covers_any_arguments(self) -> bool:
        """True if no condition limits the values of the arguments."""
        return bool(self.in_words and self.rows) and all(row["operator"] == "exists" for row in self.conditions)

    @property
    def scope_in_words(self) -> str:
        """Phrase that says whose calls are covered; empty while the form has no scope."""
        scope = self["scope"].value()
        return scope_phrase(scope, self.proposal.scopes[scope]) if scope in self.proposal.scopes else ""

    @property
    def limits_in_words(self) -> str:
        """Sentence on the end of the grant if it is made now; empty while the form has errors."""
        if self.is_bound and not self.is_valid():
            return ""
        limits = self.cleaned_data if self.is_bound else self.initial
        hours, uses = limits["hours"], limits["uses"]
        until = clock.now() + timedelta(hours=hours)
        return ngettext("Until %(time)s, at most once.", "Until %(time)s, at most %(uses)s times.", uses) % {
            "time": format_moment(until),
            "uses": uses,
        }

    @property
    def error_list(self) -> list[FormError]:
        """The errors of the form, then those of the rows with the paths of their arguments."""
        rows = [
            FormError(field.id_for_label, row.part.path, str(message))
            for row in self.rows
            for field in row
            for message in field.errors
        ]
        return [*super().error_list, *rows]

    @cached_property
    def tested(self) -> CoverageHistory | None:
        """Comparison with past calls; None while the form is incomplete."""
        if not self.is_bound:
            return self.proposal.history
        if len(self.conditions) < len(self.rows) or "scope" in self.errors:
            return None
        return replay_history(self.request, self.conditions, self.cleaned_data["scope"])

    def save(self, by: User) -> Grant | None:
        """Create the grant and return it; return None after adding errors. Raises NotAllowed."""
        if not self.is_valid() or len(self.conditions) < len(self.rows):
            return None
        data = self.cleaned_data
        terms = GrantTerms(
            tool=self.request.tool_version.tool.name,
            rows=self.conditions,
            scope=data["scope"],
            scope_ref=self.proposal.scopes[data["scope"]],
            expires_at=clock.now() + timedelta(hours=data["hours"]),
            max_uses=data["uses"],
        )
        try:
            return create_grant(terms, by=by, source_request=self.request)
        except (ParameterError, Conflict) as error:
            self.add_problems(error)
            return None

    def add_problems(self, error: ToolgateError) -> None:
        details = error.details if isinstance(error, ParameterError) else {}
        for each in details.get("errors") or [{"path": "", "message": error.message}]:
            path = str(each["path"]).split(".")
            if path[0] == "arguments" and len(path) > 1:
                self.rows[int(path[1])].add_error("value", each["message"])
            else:
                name = FIELD_BY_PATH.get(path[0], path[0])
                self.add_error(name if name in self.fields else None, each["message"])


def _limited_number(label: str, most: int) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        min_value=1,
        max_value=most,
        help_text=_("At most %(most)s.") % {"most": most},
        widget=forms.NumberInput(attrs={"class": "input", "autocomplete": "off"}),
    )
