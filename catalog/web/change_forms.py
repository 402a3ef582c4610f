"""Administrators' forms on a tool's page, carried out by `inventory.overrides`.

Each form changes one setting, named by its hidden field `what`; errors are displayed at their field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog.definitions.levels import MAX_GRANT_HOURS, MAX_GRANT_USES, SafetyLevel
from catalog.errors import ToolgateError
from catalog.inventory.overrides import MAX_WEIGHT, InvalidOverride, OverrideChange, apply_overrides
from catalog.inventory.sources import accept_version
from catalog.models import Tool
from catalog.rest.problems import problem_for
from catalog.ui.requests import parse_number


@dataclass(slots=True)
class RejectedChange:
    """A refused change: errors by field, and the input."""

    what: str
    status: int
    problems: Mapping[str, str] = field(default_factory=dict)
    entered: Mapping[str, str] = field(default_factory=dict)


def submit_change(tool: Tool, sent: QueryDict, by: User) -> list[OverrideChange] | RejectedChange:
    """Make the change of a submitted form; return the changed settings, or the errors."""
    entered = {name: value.replace("\r\n", "\n") for name, value in sent.dict().items() if isinstance(value, str)}
    what, reason = entered.get("what", ""), entered.get("reason", "").strip()
    try:
        if what == "version":
            number = parse_number(entered.get("accept_version", ""), most_digits=7) or 0
            accept_version(tool, number, by=by, reason=reason)
            return [OverrideChange("tool.accepted", tool.current_version and tool.current_version.number, number)]
        if what not in FORM_READERS:
            raise InvalidOverride("", _("The form is incomplete. Reload the page."))
        return apply_overrides(tool.name, FORM_READERS[what](entered), by=by, reason=reason)
    except ToolgateError as error:
        told = problem_for(error)
        errors = (told.errors if told else ()) or [{"path": "", "message": error.message}]
        problems = {_field_of(each["path"]): each["message"] for each in errors}
        return RejectedChange(what, told.status if told else 422, problems, entered)


def _field_of(path: str) -> str:
    """Return the field that displays an error; empty for the form itself."""
    field = path.removeprefix("grantable.").partition(".")[0]
    return field if field in FORM_FIELDS or field.startswith("weight-") else ""


FORM_FIELDS = (
    "accept_version",
    "safety_level",
    "reason",
    "description_override",
    "categories",
    "max_hours",
    "max_uses",
)


def describe_changes(changes: list[OverrideChange]) -> str:
    """Return a sentence about the changes."""
    if not changes:
        return _("Nothing changed.")
    labels = (str(CHANGE_LABELS[each.kind]) if each.kind in CHANGE_LABELS else _("Changed") for each in changes)
    return f"{', '.join(dict.fromkeys(labels))}."


CHANGE_LABELS = {
    "tool.accepted": gettext_lazy("Change accepted"),
    "tool.level_set": gettext_lazy("Safety level changed"),
    "tool.categories_set": gettext_lazy("Categories changed"),
    "tool.enabled": gettext_lazy("Enabled"),
    "tool.disabled": gettext_lazy("Disabled"),
    "tool.description_set": gettext_lazy("Description changed"),
    "tool.grantable_set": gettext_lazy("Grants changed"),
    "tool.implementation_set": gettext_lazy("Implementations changed"),
}


def _read_level(entered: Mapping[str, str]) -> dict[str, Any]:
    level = entered.get("safety_level", "")
    if level not in list(SafetyLevel):
        raise InvalidOverride("safety_level", _("Choose safe, cautious or dangerous."))
    return {"safety_level": level}


def _read_description(entered: Mapping[str, str]) -> dict[str, Any]:
    return {"description_override": "" if entered.get("do") == "authors" else entered.get("description_override", "")}


def _read_categories(entered: Mapping[str, str]) -> dict[str, Any]:
    if entered.get("do") == "authors":
        return {"categories": None}
    return {"categories": sorted({name.strip() for name in entered.get("categories", "").split(",")} - {""})}


def _read_enabled(entered: Mapping[str, str]) -> dict[str, Any]:
    if entered.get("enabled") not in ("yes", "no"):
        raise InvalidOverride("", _("The form is incomplete. Reload the page."))
    return {"enabled": entered["enabled"] == "yes"}


def _read_implementations(entered: Mapping[str, str]) -> dict[str, Any]:
    """Return weight and switch of each implementation; an unchecked box is not sent."""
    wanted = []
    for name, text in entered.items():
        word, _dash, number = name.partition("-")
        if word != "weight":
            continue
        if not _is_whole_number(number, 2**53) or not _is_whole_number(text.strip(), MAX_WEIGHT):
            raise InvalidOverride(
                name, _("A weight must be a whole number from 0 to %(most)s.") % {"most": f"{MAX_WEIGHT:,}"}
            )
        wanted.append({"id": int(number), "weight": int(text), "enabled": f"enabled-{number}" in entered})
    return {"implementations": wanted}


def _read_grantable(entered: Mapping[str, str]) -> dict[str, Any]:
    if entered.get("do") == "none":
        return {"grantable": None}
    limits = {}
    for name, most in (("max_hours", MAX_GRANT_HOURS), ("max_uses", MAX_GRANT_USES)):
        text = entered.get(name, "").strip()
        if not _is_whole_number(text, most):
            raise InvalidOverride(name, _("This must be a whole number from 1 to %(most)s.") % {"most": f"{most:,}"})
        limits[name] = int(text)
    return {"grantable": limits}


def _is_whole_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 16 and int(text) <= most


FORM_READERS: Mapping[str, Callable[[Mapping[str, str]], dict[str, Any]]] = {
    "level": _read_level,
    "description": _read_description,
    "categories": _read_categories,
    "enabled": _read_enabled,
    "implementations": _read_implementations,
    "grantable": _read_grantable,
}
