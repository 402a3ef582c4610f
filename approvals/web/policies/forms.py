"""Form of the policy editor: fields from a stored policy or a submission, and the document they describe.

Durations are in the units of the form (minutes, days), values as typed. Errors are kept by field.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from approvals.models import Policy, PolicyRevision
from approvals.policies.terms import term_columns
from approvals.policy_language.conditions import MAX_CONDITIONS, OPERATORS
from approvals.policy_language.stages import MAX_STAGES
from catalog.core.canonical_json import canonical_text, parse_json
from catalog.errors import MalformedJSON, ParameterError, field_error
from catalog.ui.requests import parse_number

TEXT_FIELDS = ("tool", "category", "safety_level", "source", "requester", "plan", "hours")
CHOICE_FIELDS = ("effect", "on_expiry", "escalate_to")
FLAG_FIELDS = ("remind", "batchable", "allow_self_review", "editor_may_approve", "typed_target")
LITERAL_OPERATORS = frozenset({"starts_with", "ends_with", "matches"})
LIST_OPERATORS = frozenset({"in", "not_in"})
FIELDS_WITH_WARNINGS = ("tool", "category", "source", "safety_level", "requester", "plan")
ROW_KEY_FIELDS = {"row": "path", "stage": "group"}
LABELS = {
    "match.arguments": gettext_noop("Arguments"),
    "stages": gettext_noop("Who must agree"),
    "requester": gettext_noop("Asked for by"),
    "plan": gettext_noop("In the plan"),
    "hours": gettext_noop("During"),
    "effect": gettext_noop("Outcome"),
    "message": gettext_noop("What the agent is told"),
    "expires_minutes": gettext_noop("Minutes to answer"),
    "on_expiry": gettext_noop("When nobody answers"),
    "escalate_to": gettext_noop("Which other group"),
    "min_review_seconds": gettext_noop("Seconds on screen"),
    "fresh_sign_in_minutes": gettext_noop("Minutes since they signed in"),
    "min_role_age_days": gettext_noop("Days in the group"),
    "notify": gettext_noop("Also tell"),
}
"""Labels of fields whose label is not their name."""
UNITS = {
    "expires_seconds": ("expires_minutes", 60),
    "min_review_seconds": ("min_review_seconds", 1),
    "fresh_sign_in_seconds": ("fresh_sign_in_minutes", 60),
    "min_role_age_seconds": ("min_role_age_days", 86_400),
}
NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
REASON_REQUIRED_VALUES = {None: "", True: "yes", False: ""}


@dataclass(slots=True)
class PolicyForm:
    """Values of the fields by name, rows of conditions and stages, and problems by field.

    `warnings` are about terms that match nothing at present, by field, or by `row-0` and `stage-0` for rows.
    """

    fields: dict[str, str]
    rows: list[dict[str, str]]
    stages: list[dict[str, str]]
    problems: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)

    @property
    def warnings_by_field(self) -> dict[str, str]:
        """Warning of each place in the submitted form that may have one; most are empty."""
        beside = {name: self.warnings.get(name, "") for name in FIELDS_WITH_WARNINGS}
        for kind, rows in (("row", self.rows), ("stage", self.stages)):
            sent = {
                f"{kind}-{n}": "" for n in range(MAX_CONDITIONS) if f"{kind}-{n}-{ROW_KEY_FIELDS[kind]}" in self.fields
            }
            shown = {each["at"]: self.warnings.get(f"{kind}-{n}", "") for n, each in enumerate(rows) if "at" in each}
            beside |= sent | shown
        return beside

    @property
    def row_numbers(self) -> list[tuple[int, dict[str, str], str]]:
        """Conditions with their numbers and problems, followed by an empty row."""
        shown = [*self.rows, {"path": "", "operator": "equals", "value": ""}]
        return [(n, row, self._problem_of(f"match.arguments.{n}.")) for n, row in enumerate(shown[:MAX_CONDITIONS])]

    @property
    def stage_numbers(self) -> list[tuple[int, dict[str, str], str]]:
        """Stages with their numbers and problems, followed by an empty row."""
        shown = [*self.stages, {"group": "", "count": "1"}]
        return [(n, stage, self._problem_of(f"stages.{n}.")) for n, stage in enumerate(shown[:MAX_STAGES])]

    @property
    def told(self) -> list[str]:
        """All problems, each with the label of its field."""
        return [f"{_label_of(path)}: {message}" if path else message for path, message in self.problems.items()]

    @property
    def others(self) -> list[str]:
        """Problems that belong to no field of the form."""
        return [message for path, message in self.problems.items() if path == ""]

    def _problem_of(self, start: str) -> str:
        return " ".join(message for path, message in self.problems.items() if path.startswith(start))


def _label_of(path: str) -> str:
    """Return the label of a problem's field; rows and groups are numbered from 1."""
    number = next((int(part) + 1 for part in path.split(".") if part.isdecimal()), 0)
    for start, label in (("match.arguments", _("Argument")), ("stages", _("Group"))):
        if path.startswith(start):
            return f"{label} {number}" if number else _(LABELS[start])
    return _(LABELS.get(path, path.replace("_", " ").capitalize()))


def form_from_policy(policy: Policy, revision: PolicyRevision) -> PolicyForm:
    """Return the form filled with a policy's terms; an unsaved policy has no id in it."""
    fields = {"name": policy.name, "order": str(policy.order), "message": revision.message}
    fields["policy"] = policy.public_id if policy.pk else ""
    fields |= {name: getattr(revision, name) for name in (*TEXT_FIELDS, *CHOICE_FIELDS)}
    fields |= {name: "yes" if getattr(revision, name) else "" for name in FLAG_FIELDS}
    fields |= {named: _seconds_in_units(getattr(revision, name), size) for name, (named, size) in UNITS.items()}
    fields |= {"reason_required": REASON_REQUIRED_VALUES[revision.reason_required]}
    fields |= {"notify": "\n".join(each["shown"] for each in revision.notify)}
    fields["revision"] = str(revision.number)
    rows = [{**row, "value": _value_as_typed(row["operator"], row.get("value", ""))} for row in revision.conditions]
    stages = [{"group": stage["group"], "count": str(stage["count"])} for stage in revision.stages]
    return PolicyForm(fields, rows, stages)


def parse_policy_form(sent: QueryDict) -> PolicyForm:
    """Return the submitted form without its empty rows."""
    fields = {name: value.replace("\r\n", "\n") for name, value in sent.dict().items() if isinstance(value, str)}
    rows = [_numbered_fields(fields, f"row-{n}-", ("path", "operator", "value")) for n in range(MAX_CONDITIONS)]
    stages = [_numbered_fields(fields, f"stage-{n}-", ("group", "count")) for n in range(MAX_STAGES)]
    return PolicyForm(fields, [row for row in rows if row["path"] or row["value"]], [s for s in stages if s["group"]])


def document_from_form(form: PolicyForm) -> dict[str, Any]:
    """Return the policy document of a form. Raises ParameterError with the fields that cannot be parsed."""
    fields = form.fields
    document: dict[str, Any] = {
        "name": fields.get("name", ""),
        "match": {name: fields.get(name, "").strip() for name in TEXT_FIELDS}
        | {"arguments": list(map(_parse_condition, form.rows))},
        "message": fields.get("message", "").strip(),
        "stages": [
            {"group": each["group"], "count": parse_number(each["count"], most_digits=5) or 0} for each in form.stages
        ],
        "notify": [line.strip() for line in fields.get("notify", "").split("\n") if line.strip()],
        "reason_required": True if fields.get("reason_required") == "yes" else None,
    }
    document |= {name: fields.get(name, "") for name in CHOICE_FIELDS}
    if document["on_expiry"] != PolicyRevision.OnExpiry.ESCALATE:
        document["escalate_to"] = ""
    document |= {name: fields.get(name) == "yes" for name in FLAG_FIELDS}
    return document | {
        name: _parse_seconds(fields.get(named, ""), size, named) for name, (named, size) in UNITS.items()
    }


def policy_of_form(form: PolicyForm) -> Policy | None:
    """Return the policy that a form edits; None for the form of a new policy."""
    public_id = form.fields.get("policy", "").replace("\x00", "")[:40]
    return Policy.objects.filter(public_id=public_id).select_related("revision").first() if public_id else None


def check_form(form: PolicyForm) -> tuple[PolicyForm, dict[str, Any]]:
    """Return the form with its problems and the columns of a draft, which are empty if there are problems.

    Notification addresses are not validated here; saving does that and keeps the stored ones.
    """
    try:
        document = document_from_form(form)
        notify = document.pop("notify")
        stored = policy_of_form(form)
        return form, term_columns(document, stored.revision if stored else None) | {"notify": notify}
    except ParameterError as error:
        return form_with_errors(form, error), {}


def form_with_errors(form: PolicyForm, error: ParameterError) -> PolicyForm:
    """Return the form with the problems of an error at their fields."""
    problems = {_field_for_path(each["path"]): each["message"] for each in error.details.get("errors", ())}
    return replace(form, problems=problems or {"": error.message})


def _field_for_path(path: str) -> str:
    """Return the field that shows a problem at this path of the document."""
    if path.startswith(("match.arguments", "stages")):
        return path
    if path.startswith("notify."):
        return "notify"
    name = path.removeprefix("match.")
    return UNITS[name][0] if name in UNITS else name


def _numbered_fields(fields: Mapping[str, str], start: str, names: Sequence[str]) -> dict[str, str]:
    return {name: fields.get(f"{start}{name}", "") for name in names} | {"at": start.removesuffix("-")}


def _parse_condition(row: Mapping[str, str]) -> dict[str, Any]:
    """Return one condition; a value that is not valid JSON is used as text."""
    path, operator, text = row["path"].strip(), row["operator"], row["value"]
    if operator in ("exists", "missing"):
        return {"path": path, "operator": operator}
    value = text if operator in LITERAL_OPERATORS else _json_or_text(text)
    if operator in LIST_OPERATORS and not isinstance(value, list):
        value = [_json_or_text(part.strip()) for part in text.split(",") if part.strip()]
    return {"path": path, "operator": operator, "value": value}


def _json_or_text(text: str) -> Any:
    try:
        return parse_json(text)
    except MalformedJSON:
        return text


def _value_as_typed(operator: str, value: Any) -> str:
    """Return a value as a person would type it, quoted only if it would otherwise be parsed as something else."""
    if operator in ("exists", "missing"):
        return ""
    if isinstance(value, str) and (operator in LITERAL_OPERATORS or _json_or_text(value) == value):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list) else canonical_text(value)


def _seconds_in_units(seconds: int | None, size: int) -> str:
    return "" if seconds is None else f"{seconds / size:.6f}".rstrip("0").rstrip(".")


def _parse_seconds(text: str, size: int, named: str) -> int | None:
    text = text.strip()
    if not text:
        return None if named == "expires_minutes" else 0
    if not NUMBER.fullmatch(text):
        raise field_error(named, "invalid", _("Enter a number, such as 15 or 1.5."))
    return round(float(text) * size)


OPERATOR_WORDS = [(each, each.replace("_", " ")) for each in OPERATORS]
