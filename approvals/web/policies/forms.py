"""Forms of the policy pages: the editor with its rows of conditions and stages, and the simulator."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, cast

from django import forms
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.forms.formsets import BaseFormSet, formset_factory
from django.http import QueryDict
from django.urls import reverse_lazy
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from approvals.models import Policy, PolicyRevision
from approvals.policies.backtest import MAX_DAYS
from approvals.policies.term_checks import term_columns
from approvals.policy_language.conditions import MAX_CONDITIONS, MAX_PATH, MAX_VALUE, OPERATORS
from approvals.policy_language.history import ARGUMENT, MAX_SEEN_NAME
from approvals.policy_language.stages import MAX_STAGES
from approvals.policy_language.terms import MATCH, OPTIONS, TERM_COLUMNS, TERMS, Kind, Term
from approvals.policy_language.typed_conditions import read_condition, value_as_typed
from catalog.errors import ParameterError, ToolgateError
from catalog.models import Tool
from catalog.text.formats import current_reader
from catalog.ui.labels import SAFETY_BADGES
from catalog.ui.page_forms import CardSelect, CardText, FormError, PageBoundField, PageForm

MATCH_FIELDS = tuple(term.name for term in MATCH if term.kind in (Kind.TEXT, Kind.CHOICE))
TEXT_FIELDS = tuple(term.name for term in OPTIONS if term.kind in (Kind.TEXT, Kind.CHOICE))
FLAG_FIELDS = tuple(term.name for term in OPTIONS if term.kind is Kind.FLAG and not term.is_nullable)
KEPT_CHOICES = tuple(term.name for term in OPTIONS if term.kind is Kind.CHOICE and term.usual)
"""Choices that a form may lack, since it was opened before there was the field; the policy then keeps its own."""
UNITS = {term.name: term.unit for term in OPTIONS if term.kind is Kind.SECONDS}
"""Field and seconds per unit of each duration of a policy."""
MAX_ORDER = 999_999
MAX_MENU_CHOICES = 500
BACKTEST_DAYS = (1, 7, 30, MAX_DAYS)
DEFAULT_BACKTEST_DAYS = 30
OPERATOR_LABELS = {
    "equals": gettext_lazy("equals"),
    "not_equals": gettext_lazy("does not equal"),
    "in": gettext_lazy("is one of"),
    "not_in": gettext_lazy("is none of"),
    "starts_with": gettext_lazy("starts with"),
    "ends_with": gettext_lazy("ends with"),
    "contains": gettext_lazy("contains"),
    "matches": gettext_lazy("matches the pattern"),
    "less_than": gettext_lazy("is less than"),
    "greater_than": gettext_lazy("is greater than"),
    "exists": gettext_lazy("exists"),
    "missing": gettext_lazy("is missing"),
}
EFFECT_CARDS = {
    "hold": CardText(gettext_lazy("People decide each call before it runs.")),
    "deny": CardText(gettext_lazy("The agent gets your message as the answer.")),
    "allow": CardText(gettext_lazy("The next policy that matches decides those.")),
}
REVIEWER_FIELDS = (
    *("reason_required", "min_review_seconds", "fresh_sign_in_minutes", "min_role_age_days", "notify"),
    *("typed_target", "fresh_passkey", "envelope", "editor_may_approve", "allow_self_review", "batchable", "remind"),
)
BY_ARGUMENT = "argument"
RECENT_BY = [
    ("token", gettext_lazy("Calls through the same token")),
    ("requester", gettext_lazy("Calls by the same person")),
    ("tool", gettext_lazy("Calls of the same tool")),
    ("plan", gettext_lazy("Calls in the same plan")),
    (BY_ARGUMENT, gettext_lazy("Calls with the same argument")),
]
SEEN_WORDS = {
    "category": gettext_lazy("in the category"),
    "tool": gettext_lazy("of the tool"),
    "source": gettext_lazy("from the source"),
}
SEEN_KINDS = list(SEEN_WORDS.items())
PARTS = {
    ("stop_after", "seconds"): "stop_minutes",
    ("recent", "count"): "recent_count",
    ("recent", "seconds"): "recent_minutes",
    ("seen", "within"): "seen_minutes",
}
"""Fields of parts of a term that is a document."""
NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
REASON_REQUIRED_VALUES = {None: "", True: "yes", False: ""}


class DurationField(forms.CharField):
    """A duration that is typed in the unit of the form and becomes whole seconds in `cleaned_data`."""

    def __init__(self, *, unit_seconds: int, empty_seconds: int | None, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={"inputmode": "decimal", "maxlength": 12})
        super().__init__(required=False, widget=widget, **kwargs)
        self.unit_seconds, self.empty_seconds = unit_seconds, empty_seconds

    def clean(self, value: Any) -> Any:
        """Return the seconds; `empty_seconds` if the field is empty. Raises ValidationError."""
        text = super().clean(value)
        if not text:
            return self.empty_seconds
        if not NUMBER.fullmatch(text):
            raise ValidationError(_("Enter a number, such as 15 or 1.5."))
        return round(float(text) * self.unit_seconds)


class WarningBoundField(PageBoundField):
    """A field that may have a warning about a name that matches nothing at present."""

    form: "WarningForm"

    @property
    def warning_id(self) -> str:
        return f"warn-{self.html_name}"

    @property
    def warning(self) -> str:
        return self.form.warnings.get(self.name, "")

    @property
    def aria_describedby(self) -> str | None:
        described = super().aria_describedby
        return f"{self.warning_id} {described or ''}".strip() if self.name in self.form.warned_fields else described


class WarningForm(PageForm):
    bound_field_class = WarningBoundField
    warned_fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.warnings: dict[str, str] = {}
        for name in self.warned_fields:
            self.fields[name].template_name = "policies/_field.html"  # type: ignore[attr-defined] # not in the stubs


class RowForm(WarningForm):
    """One row of a list; a row whose main fields are empty is ignored."""

    main_fields: ClassVar[tuple[str, ...]] = ()
    row_label: Any = ""

    def has_changed(self) -> bool:
        """Return True if one of the main fields is filled in."""
        return any(self[name].value() for name in self.main_fields)

    @property
    def warned_field(self) -> Any:
        return self[self.warned_fields[0]]


class ConditionForm(RowForm):
    main_fields = ("path", "value")
    warned_fields = ("path",)
    row_label = gettext_lazy("Argument %(number)s")
    path = forms.CharField(
        required=False,
        widget=forms.TextInput(
            attrs={"class": "mono", "maxlength": MAX_PATH, "placeholder": "amount", "list": "derived-facts"}
        ),
    )
    operator = forms.ChoiceField(
        label=gettext_lazy("Comparison"),
        choices=[(each, OPERATOR_LABELS[each]) for each in OPERATORS],
        initial="equals",
    )
    value = forms.CharField(
        label=gettext_lazy("Value"),
        required=False,
        strip=False,
        widget=forms.TextInput(attrs={"class": "mono", "maxlength": MAX_VALUE, "placeholder": "1000"}),
    )

    def as_document(self) -> dict[str, Any]:
        """Return the condition; a value that is not valid JSON is used as text."""
        return read_condition(*(self.cleaned_data[name] for name in ("path", "operator", "value")))


class StageForm(RowForm):
    main_fields = ("group",)
    warned_fields = ("group",)
    row_label = gettext_lazy("Group %(number)s")
    count = forms.IntegerField(
        label=gettext_lazy("Number of approvals"),
        required=False,
        initial=1,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "maxlength": 2}),
    )
    group = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, groups: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        of_group = [(name, _("of %(group)s") % {"group": name}) for name in groups]
        _set_choices(self, "group", [("", _("(no group)")), *of_group])

    def as_document(self) -> dict[str, Any]:
        """Return the stage; a missing number is 0, which the service refuses."""
        return {"group": self.cleaned_data["group"], "count": self.cleaned_data["count"] or 0}


class RowFormSet(BaseFormSet):  # type: ignore[type-arg]
    """Rows of a list, labelled from 1; rows that are not filled in are ignored."""

    list_label: ClassVar[Any] = ""

    def add_fields(self, form: RowForm, index: int | None) -> None:
        super().add_fields(form, index)
        form.empty_permitted = True
        form.row_label = form.row_label % {"number": (index or 0) + 1}
        form.fields[form.main_fields[0]].label = form.row_label

    @property
    def filled(self) -> list[Any]:
        """The rows that are filled in, in the order of the document."""
        return [form for form in self.forms if form.has_changed()]

    def add_problem(self, path: Sequence[str], message: str) -> None:
        """Show a problem at its field; `path` starts with the row's number, and is empty for the whole list."""
        if not path:
            self.non_form_errors().append(message)
            return
        form = self.filled[int(path[0])]
        name = path[1] if len(path) > 1 and path[1] in form.fields else form.main_fields[0]
        form.add_error(name, message)

    @property
    def error_list(self) -> Iterator[FormError]:
        """Errors of the rows, each with the label of its row, then those of the list."""
        for form in self.forms:
            for field in form:
                yield from (FormError(field.id_for_label, form.row_label, str(message)) for message in field.errors)
        yield from (FormError(f"{self.prefix}-list", self.list_label, str(each)) for each in self.non_form_errors())


class ConditionRows(RowFormSet):
    list_label = gettext_lazy("Arguments")


class StageRows(RowFormSet):
    list_label = gettext_lazy("Approvals")


ConditionFormSet = cast(
    "type[RowFormSet]",
    formset_factory(ConditionForm, ConditionRows, extra=1, max_num=MAX_CONDITIONS, absolute_max=MAX_CONDITIONS),
)
StageFormSet = cast(
    "type[RowFormSet]",
    formset_factory(StageForm, StageRows, extra=1, max_num=MAX_STAGES, absolute_max=MAX_STAGES),
)


def _term_field(term: Term) -> forms.Field:
    choices: list[tuple[str, Any]] = [(value, gettext_lazy(label)) for value, label in term.choices.items()]
    options: dict[str, Any] = {"label": gettext_lazy(term.label)}
    if term.hint:
        options["help_text"] = gettext_lazy(term.hint)
    if term.kind is Kind.SECONDS:
        return DurationField(unit_seconds=term.unit[1], empty_seconds=None if term.is_nullable else 0, **options)
    if term.kind is Kind.CHOICE and term in OPTIONS:
        widget = CardSelect(EFFECT_CARDS) if term.name == "effect" else forms.Select()
        return forms.ChoiceField(choices=choices, widget=widget, required=not term.usual, **options)
    options["required"] = False
    if term.name == "safety_level":
        choices = [("", gettext_lazy("Any")), *((level, badge.text) for level, badge in SAFETY_BADGES.items())]
    if choices or term.name == "escalate_to":  # the form adds the groups
        return forms.ChoiceField(choices=choices, **options)
    if term.kind is Kind.FLAG:
        return forms.BooleanField(**options)
    attrs: dict[str, Any] = {"class": "mono"} if term.is_code else {}
    attrs |= {"maxlength": term.longest} if term.longest else {}
    if term.name in ("message", "notify"):
        return forms.CharField(widget=forms.Textarea(attrs={"rows": 2, **attrs}), **options)
    attrs |= {"list": term.suggestions} if term.suggestions else {}
    attrs |= {"placeholder": gettext_lazy(term.placeholder)} if term.placeholder else {}
    return forms.CharField(widget=forms.TextInput(attrs=attrs), **options)


class PolicyForm(WarningForm):
    """The policy editor: terms of one policy, with formsets for `conditions` and `stages`."""

    warned_fields = ("tool", "category", "source", "safety_level", "requester", "plan", "recent_argument", "seen_name")
    field_order = (
        *("revision", "name", "order", "tool", "safety_level", "category", "source", "requester", "plan", "hours"),
        *("recent_count", "recent_minutes", "recent_by", "recent_argument", "seen_kind", "seen_name", "seen_minutes"),
        *("effect", "message", "stop_count", "stop_minutes", "mode", "expires_minutes", "on_expiry", "escalate_to"),
        *("reason_required", "min_review_seconds"),
        *("fresh_sign_in_minutes", "min_role_age_days", "notify", "typed_target", "fresh_passkey", "envelope"),
        *("editor_may_approve", "allow_self_review", "batchable", "remind", "days"),
    )
    revision = forms.IntegerField(required=False, widget=forms.HiddenInput)
    name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,  # the live check describes policies without a name; saving requires one
        widget=forms.TextInput(attrs={"maxlength": 128, "required": True}),
    )
    order = forms.IntegerField(
        label=gettext_lazy("Order"),
        required=False,
        min_value=0,
        max_value=MAX_ORDER,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "maxlength": 6}),
        help_text=gettext_lazy(
            "Lower numbers first; ties go to the older policy. Leave it empty to put a new policy first."
        ),
    )
    vars().update({UNITS.get(term.name, (term.name,))[0]: _term_field(term) for term in TERMS.values() if term.label})
    recent_count = forms.IntegerField(
        label=gettext_lazy("From this number of calls on"),
        required=False,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "maxlength": 6, "placeholder": "11"}),
        help_text=gettext_lazy("11 lets ten calls pass. Leave it empty to match every call."),
    )
    recent_minutes = DurationField(unit_seconds=60, empty_seconds=None, label=gettext_lazy("Within minutes"))
    recent_by = forms.ChoiceField(label=gettext_lazy("Counted together"), required=False, choices=RECENT_BY)
    recent_argument = forms.CharField(
        label=gettext_lazy("The argument by which calls are counted"),
        required=False,
        widget=forms.TextInput(attrs={"class": "mono", "maxlength": MAX_PATH, "placeholder": "to.0.address"}),
        help_text=gettext_lazy("Calls without a text, number or truth value there are counted together."),
    )
    seen_kind = forms.ChoiceField(label=gettext_lazy("After a call"), required=False, choices=SEEN_KINDS)
    seen_name = forms.CharField(
        label=gettext_lazy("Name of that category, tool or source"),
        required=False,
        widget=forms.TextInput(attrs={"maxlength": MAX_SEEN_NAME, "placeholder": "web"}),
        help_text=gettext_lazy("By the same token, session, plan or agent; without a token, by the same person."),
    )
    seen_minutes = DurationField(unit_seconds=60, empty_seconds=None, label=gettext_lazy("That ended within minutes"))
    stop_count = forms.IntegerField(
        label=gettext_lazy("Refused calls until a stop"),
        required=False,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "maxlength": 6}),
        help_text=gettext_lazy(
            "If more calls of one token, or of one person without a token, are refused, it is stopped. Empty: never."
        ),
    )
    stop_minutes = DurationField(unit_seconds=60, empty_seconds=None, label=gettext_lazy("Within minutes"))
    days = forms.TypedChoiceField(
        label=gettext_lazy("Days"),
        required=False,
        coerce=int,
        initial=DEFAULT_BACKTEST_DAYS,
        widget=forms.Select(attrs={"form": "policy-form"}),  # it stands beside the form
    )

    def __init__(self, data: QueryDict | None = None, *, policy: Policy | None = None) -> None:
        self.policy = policy
        self.stored = policy.revision if policy is not None else None
        shown = self.stored or _blank_revision()
        super().__init__(data, initial=_initial(policy, shown), auto_id="f-%s")
        groups = list(Group.objects.order_by("name").values_list("name", flat=True)[:MAX_MENU_CHOICES])
        _set_choices(self, "escalate_to", [("", _("None")), *((name, name) for name in groups)])
        _set_choices(self, "days", [(each, _days_label(each)) for each in BACKTEST_DAYS])
        rows, stages = (None, None) if data is not None else (_condition_rows(shown), shown.stages)
        self.conditions = ConditionFormSet(data, initial=rows, prefix="row", auto_id="f-%s")
        self.stages = StageFormSet(data, initial=stages, prefix="stage", auto_id="f-%s", form_kwargs={"groups": groups})

    def is_valid(self) -> bool:
        return all([super().is_valid(), self.conditions.is_valid(), self.stages.is_valid()])

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Columns of the policy that the form describes; empty if it has errors, which are added to their fields.

        Notification addresses are not validated here. Saving validates them and keeps those that are stored already.
        """
        if not self.is_bound:
            return {name: getattr(self.stored or _blank_revision(), name) for name in TERM_COLUMNS}
        if not self.is_valid():
            return {}
        document = self.document()
        notify = document.pop("notify")
        try:
            return term_columns(document, self.stored) | {"notify": notify}
        except ParameterError as error:
            self.add_problems(error)
            return {}

    def document(self) -> dict[str, Any]:
        """Return the policy document of a valid form, with an order only if one was entered."""
        data = self.cleaned_data
        match = {name: data[name] for name in MATCH_FIELDS}
        match |= {"recent": self._recent(), "seen": self._seen()}
        document = {
            "name": data["name"],
            "match": match | {"arguments": [row.as_document() for row in self.conditions.filled]},
            "stages": [row.as_document() for row in self.stages.filled],
            "notify": [line.strip() for line in data["notify"].splitlines() if line.strip()],
            "reason_required": True if data["reason_required"] == "yes" else None,
            "stop_after": None,
        }
        document |= {name: data[name].replace("\r\n", "\n") for name in TEXT_FIELDS}
        for name in KEPT_CHOICES:
            if not document[name]:
                del document[name]
        if document["on_expiry"] != PolicyRevision.OnExpiry.ESCALATE:
            document["escalate_to"] = ""
        stop_after = {"count": data["stop_count"], "seconds": data["stop_minutes"]}
        if data["effect"] == PolicyRevision.Effect.DENY and any(value is not None for value in stop_after.values()):
            document["stop_after"] = stop_after
        document |= {name: data[name] for name in FLAG_FIELDS}
        document |= {name: data[field] for name, (field, _size) in UNITS.items()}
        return document if data["order"] is None else document | {"order": data["order"]}

    def _recent(self) -> dict[str, Any] | None:
        data = self.cleaned_data
        if data["recent_count"] is None and data["recent_minutes"] is None:
            return None
        by = f"{ARGUMENT}{data['recent_argument']}" if data["recent_by"] == BY_ARGUMENT else data["recent_by"]
        return {"count": data["recent_count"], "seconds": data["recent_minutes"], "by": by}

    def _seen(self) -> dict[str, Any] | None:
        data = self.cleaned_data
        if not data["seen_name"] and data["seen_minutes"] is None:
            return None
        return {data["seen_kind"]: data["seen_name"], "within": data["seen_minutes"]}

    def add_problems(self, error: ToolgateError) -> None:
        details = error.details if isinstance(error, ParameterError) else {}
        for each in details.get("errors") or [{"path": "", "message": error.message}]:
            path = str(each["path"]).removeprefix("match.").split(".")
            rows = {"arguments": self.conditions, "stages": self.stages}.get(path[0])
            if rows is not None:
                rows.add_problem(path[1:], each["message"])
                continue
            name = UNITS[path[0]][0] if path[0] in UNITS else path[0]
            name = PARTS.get((name, path[-1]), name)
            if name == "recent":  # the path of the argument
                name = "recent_argument" if self.cleaned_data.get("recent_by") == BY_ARGUMENT else "recent_by"
            elif name in ("stop_after", "seen"):
                name = "stop_count" if name == "stop_after" else "seen_name"
            self.add_error(name if name in self.fields else None, each["message"])

    def show_warnings(self, warnings: Mapping[str, str]) -> None:
        """Show warnings at their fields. The keys for warnings about rows are `row-0` and `stage-0` (and so on)."""
        for place, text in warnings.items():
            kind, _sep, number = place.partition("-")
            rows = {"row": self.conditions, "stage": self.stages}.get(kind)
            if rows is None:
                self.warnings[place] = text
            else:
                form = rows.filled[int(number)]
                form.warnings[form.warned_fields[0]] = text

    @property
    def fields_with_warnings(self) -> list[Any]:
        rows = [row.warned_field for row in (*self.conditions.forms, *self.stages.forms)]
        return [*(self[name] for name in self.warned_fields), *rows]

    @property
    def error_list(self) -> list[FormError]:
        return [*super().error_list, *self.conditions.error_list, *self.stages.error_list]

    @property
    def problems(self) -> list[str]:
        """All errors, each with the label of its field."""
        return [f"{each.label}: {each.message}" if each.label else each.message for each in self.error_list]

    @property
    def narrows_further(self) -> bool:
        """True if one of the fields that the editor folds under the arguments is used, or has an error."""
        return self._is_used("category", "source", "requester", "plan", "hours")

    @property
    def looks_back(self) -> bool:
        """True if a field about what came before a call is used, or has an error."""
        return self._is_used("recent_count", "recent_minutes", "recent_argument", "seen_name", "seen_minutes")

    @property
    def has_reviewer_rules(self) -> bool:
        """True if a rule for reviewers differs from the default, or has an error."""
        return self._is_used(*REVIEWER_FIELDS)

    def _is_used(self, *names: str) -> bool:
        usual = _initial(None, _blank_revision())
        return any(self[name].errors or str(self[name].value() or "") != str(usual[name] or "") for name in names)


class DateTimeLocalInput(forms.DateTimeInput):
    input_type = "datetime-local"


class SimulatorForm(PageForm):
    """The tool, the requester and the time of a hypothetical call; an ArgumentsEditor has its arguments."""

    tool = forms.ChoiceField(
        label=gettext_lazy("Tool"),
        widget=forms.Select(
            {
                "hx-post": reverse_lazy("policy-simulator"),
                "hx-trigger": "change",
                "hx-target": "#simulator",
                "hx-swap": "outerHTML",
            }
        ),
    )
    requester = forms.CharField(
        label=gettext_lazy("Requester"),
        required=False,
        widget=forms.TextInput(attrs={"maxlength": 150}),
        help_text=gettext_lazy("A username. Leave empty for anyone."),
    )
    at = forms.CharField(
        label=gettext_lazy("Time, in your time zone"),
        required=False,
        widget=DateTimeLocalInput,
        help_text=gettext_lazy("Leave empty for now."),
    )
    cwd = forms.CharField(
        label=gettext_lazy("Working directory"),
        required=False,
        strip=False,
        widget=forms.TextInput(attrs={"class": "mono", "maxlength": MAX_VALUE, "placeholder": "/srv/project"}),
        help_text=gettext_lazy("As the client claims it. Paths are resolved against it."),
    )

    def __init__(self, data: QueryDict | None = None, *, initial: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, initial=dict(initial or {}), auto_id="s-%s")
        names = Tool.objects.filter(registered=True).values_list("name", flat=True)[:MAX_MENU_CHOICES]
        _set_choices(self, "tool", [("", _("Choose a tool")), *((name, name) for name in names)])

    def clean_at(self) -> datetime | None:
        """Return the time, in the reader's zone unless it has an offset; None if empty. Raises ValidationError."""
        text = self.cleaned_data["at"]
        try:
            moment = parse_datetime(text)
        except ValueError:  # well-formed, but not a valid date
            moment = None
        if text and moment is None:
            raise ValidationError(_("Enter a date and a time, such as 2030-01-31 18:30."))
        return moment.replace(tzinfo=moment.tzinfo or current_reader().zone) if moment else None


def _set_choices(form: forms.Form, name: str, choices: Sequence[tuple[Any, str]]) -> None:
    cast("forms.ChoiceField", form.fields[name]).choices = choices


def _days_label(count: int) -> str:
    return ngettext("%(count)s day", "%(count)s days", count) % {"count": count}


def _blank_revision() -> PolicyRevision:
    stages = [{"group": "reviewer", "count": 1}]
    return PolicyRevision(effect=PolicyRevision.Effect.HOLD, stages=stages, number=0)


def _initial(policy: Policy | None, revision: PolicyRevision) -> dict[str, Any]:
    names = (*MATCH_FIELDS, *TEXT_FIELDS, *FLAG_FIELDS)
    stop_after, recent, seen = revision.stop_after or {}, revision.recent or {}, revision.seen or {}
    by = str(recent.get("by", "token"))
    kind = next((kind for kind in SEEN_WORDS if kind in seen), "category")
    return {
        **{name: getattr(revision, name) for name in names},
        **{field: _in_units(getattr(revision, name), size) for name, (field, size) in UNITS.items()},
        "name": policy.name if policy is not None else "",
        "order": policy.order if policy is not None else None,
        "revision": revision.number,
        "reason_required": REASON_REQUIRED_VALUES[revision.reason_required],
        "notify": "\n".join(each["shown"] for each in revision.notify),
        "stop_count": stop_after.get("count"),
        "stop_minutes": _in_units(stop_after.get("seconds"), 60),
        "recent_count": recent.get("count"),
        "recent_minutes": _in_units(recent.get("seconds"), 60),
        "recent_by": BY_ARGUMENT if by.startswith(ARGUMENT) else by,
        "recent_argument": by.removeprefix(ARGUMENT) if by.startswith(ARGUMENT) else "",
        "seen_kind": kind,
        "seen_name": seen.get(kind, ""),
        "seen_minutes": _in_units(seen.get("within"), 60),
    }


def _condition_rows(revision: PolicyRevision) -> list[dict[str, Any]]:
    return [{**row, "value": value_as_typed(row["operator"], row.get("value", ""))} for row in revision.conditions]


def _in_units(seconds: int | None, size: int) -> str:
    """Return seconds in a unit of `size` seconds, with the fewest decimals that parse to the same seconds."""
    if seconds is None:
        return ""
    texts = (f"{seconds / size:.{decimals}f}" for decimals in range(7))
    return next(text for text in texts if round(float(text) * size) == seconds)
