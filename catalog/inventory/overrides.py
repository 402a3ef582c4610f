"""Administrators' overrides of a tool. An override of a property that the fingerprint covers makes a new version."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from catalog import signals
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.definitions.grant_limits import DEFAULT_GRANT_HOURS, DEFAULT_GRANT_USES, grant_limits_error
from catalog.definitions.levels import SafetyLevel
from catalog.definitions.rules import MAX_CATEGORY
from catalog.errors import ToolError
from catalog.inventory import search, snapshot
from catalog.inventory.versions import (
    bump_revision,
    catalog_write_lock,
    drift_fact,
    effective_columns,
    publish_version,
    version_facts,
)
from catalog.models import Category, Implementation, Tool
from catalog.tools.registry import get_tool

MAX_DESCRIPTION_OVERRIDE = 1024
"""Characters; at least one provider refuses longer descriptions."""
MAX_CATEGORIES = 20
MAX_WEIGHT = 1000
MAX_REASON = 1000
INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs"})
"""Control characters, marks that change the writing direction, lone surrogates."""
OVERRIDE_COLUMNS = (
    "enabled",
    "level_override",
    "description_override",
    "categories_override",
    "grantable",
    "updated_at",
)


class InvalidOverride(ToolError):
    """An override with an invalid value. The message names the field and the accepted values."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, {"errors": [{"path": field, "code": "invalid", "message": message}]})


@dataclass(frozen=True, slots=True)
class OverrideChange:
    kind: str
    before: Any
    after: Any
    about: str = ""


def apply_overrides(name: str, values: Mapping[str, Any], *, by: User, reason: str = "") -> list[OverrideChange]:
    """Apply all overrides in `values`, or none if one is invalid; return what changed. The keys are those of SETTERS.

    Raises NotAllowed unless `by` is an administrator, Tool.DoesNotExist, and InvalidOverride naming the field.
    """
    if not can_override(by):
        raise NotAllowed("Only an administrator may change tools.")
    _validate_text("reason", reason, MAX_REASON)
    with catalog_write_lock():
        related = Tool.objects.select_related("current_version").prefetch_related("implementations", "categories")
        tool_row = related.get(name=name, current_version__isnull=False)
        changes = [change for key, value in values.items() for change in SETTERS[key](tool_row, value, reason)]
        drift: signals.Fact | None = None
        if changes:
            tool_row.save(update_fields=OVERRIDE_COLUMNS)
            if publish_version(tool_row, effective_columns(tool_row)):
                search.index_changed_tools()
                drift = drift_fact(tool_row)
            bump_revision()
        for change in changes:  # last: an audit entry locks the head of the log, which blocks other writers
            about = {"implementation": change.about} if change.about else {}
            why = {"reason": reason} if reason else {}
            facts: dict[str, Any] = {**version_facts(tool_row), **about, **why}
            signals.record_fact(change.kind, by=by, **facts, before=change.before, after=change.after)
        if drift is not None:
            signals.record_fact(drift.kind, **drift.data)
    snapshot.drop_snapshot()
    return changes


def can_override(user: User) -> bool:
    """Return whether the user may change tools: an administrator who does not act through an agent's token."""
    return has_role(user, ADMINISTRATOR) and agent_token_of(user) is None


def _validate_text(field: str, text: str, most: int) -> None:
    """Raise InvalidOverride for a text that is too long or has invisible characters other than line breaks."""
    if len(text) > most:
        raise InvalidOverride(field, f"Write at most {most:,} characters (now {len(text):,}).")
    if any(
        unicodedata.category(letter) in INVISIBLE_CATEGORIES for letter in text.replace("\r\n", "\n") if letter != "\n"
    ):
        raise InvalidOverride(field, "This contains an invisible character. Remove it.")


def _set_level(tool_row: Tool, level: str, reason: str) -> list[OverrideChange]:
    """Set the level. Lowering it needs a reason. An override equal to the declared level is removed."""
    version = tool_row.current_version
    stored = tool_row.level_override or tool_row.declared_level or (version.safety_level if version else "dangerous")
    before = SafetyLevel(stored)
    if SafetyLevel(level).rank < before.rank and not reason.strip():
        raise InvalidOverride("reason", f"Enter a reason for lowering the level of {tool_row.name} to {level}.")
    tool_row.level_override = "" if level == tool_row.declared_level else level
    return _change_if_different("tool.level_set", str(before), level)


def _set_categories(tool_row: Tool, names: Sequence[str] | None, reason: str) -> list[OverrideChange]:
    """Set the categories in place of those in the code; None restores the code's."""
    if names is not None and (len(set(names)) != len(names) or len(names) > MAX_CATEGORIES):
        raise InvalidOverride("categories", f"Enter at most {MAX_CATEGORIES} different categories.")
    for index, name in enumerate(names or ()):  # a page edits them as a comma-separated list on one line
        if not 0 < len(name) <= MAX_CATEGORY or name != name.strip() or not name.isprintable() or "," in name:
            message = f"A category has 1 to {MAX_CATEGORY} visible characters, no commas, and no spaces around it."
            raise InvalidOverride(f"categories.{index}", message)
    before, chosen_before = (
        sorted(category.name for category in tool_row.categories.all()),
        tool_row.categories_override,
    )
    tool_row.categories_override = chosen = None if names is None else sorted(names)
    loaded = get_tool(tool_row.name)  # if the code is not loaded, the next sync restores its categories
    wanted = chosen if chosen is not None else sorted(loaded.categories if loaded else before)
    tool_row.categories.set([Category.objects.get_or_create(name=name)[0] for name in wanted])
    changed = (before, chosen_before) != (wanted, chosen)
    return [OverrideChange("tool.categories_set", before, wanted)] if changed else []


def _set_enabled(tool_row: Tool, enabled: bool, reason: str) -> list[OverrideChange]:  # noqa: FBT001 - a setter takes its value
    before, tool_row.enabled = tool_row.enabled, enabled
    return _change_if_different("tool.enabled" if enabled else "tool.disabled", before, enabled)


def _set_description(tool_row: Tool, text: str | None, reason: str) -> list[OverrideChange]:
    """Replace the description for models. None, or the author's text, restores the author's description."""
    wanted = (text or "").strip()
    _validate_text("description_override", wanted, MAX_DESCRIPTION_OVERRIDE)
    if wanted and not tool_row.accepts_overrides:
        raise InvalidOverride(
            "description_override", f"The author of {tool_row.name} does not allow other descriptions."
        )
    before = tool_row.description_override
    tool_row.description_override = "" if wanted == tool_row.declared_description else wanted
    return _change_if_different("tool.description_set", before or None, tool_row.description_override or None)


def _set_implementations(tool_row: Tool, wanted: Sequence[Mapping[str, Any]], reason: str) -> list[OverrideChange]:
    """Set weights of implementations and switch them on or off. Running plans may get another implementation."""
    known = {each.pk: each for each in tool_row.implementations.all()}
    changes: list[OverrideChange] = []
    for index, values in enumerate(wanted):
        implementation = known.pop(values["id"], None)
        if implementation is None:
            message = f"{tool_row.name} has no implementation with this id, or it is listed twice."
            raise InvalidOverride(f"implementations.{index}.id", message)
        if not 0 <= values.get("weight", 0) <= MAX_WEIGHT:
            raise InvalidOverride(f"implementations.{index}.weight", f"A weight must be from 0 to {MAX_WEIGHT:,}.")
        before = {"weight": implementation.weight, "enabled": implementation.enabled}
        after = before | {name: value for name, value in values.items() if name in before}
        if after != before:
            Implementation.objects.filter(pk=implementation.pk).update(**after)
            changes.append(OverrideChange("tool.implementation_set", before, after, implementation.reference))
    return changes


def _set_grantable(tool_row: Tool, limits: Mapping[str, Any] | None, reason: str) -> list[OverrideChange]:
    """Set the limits of grants for the tool; None restores the default of its level (dangerous: no grants)."""
    wanted = (
        None if limits is None else {"max_hours": DEFAULT_GRANT_HOURS, "max_uses": DEFAULT_GRANT_USES} | dict(limits)
    )
    field, message = ("", "") if wanted is None else grant_limits_error(wanted)
    if field:
        raise InvalidOverride(f"grantable.{field}", message)
    before, tool_row.grantable = tool_row.grantable, wanted
    return _change_if_different("tool.grantable_set", before, wanted)


def _change_if_different(kind: str, before: Any, after: Any) -> list[OverrideChange]:
    return [OverrideChange(kind, before, after)] if before != after else []


Setter = Callable[[Tool, Any, str], list[OverrideChange]]
SETTERS: Mapping[str, Setter] = {
    "safety_level": _set_level,
    "categories": _set_categories,
    "enabled": _set_enabled,
    "description_override": _set_description,
    "implementations": _set_implementations,
    "grantable": _set_grantable,
}
