"""What administrators set about a tool: its level, its categories, what models read of it, and what code serves it.

Each change that a version covers makes a new version; each is one entry of the audit log, with before and after.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from catalog import signals
from catalog.access.roles import ADMINISTRATOR, NotAllowed, agent_token_of, has_role
from catalog.definitions.levels import USUAL_HOURS, USUAL_USES, SafetyLevel, objection_to
from catalog.definitions.tool import MAX_CATEGORY
from catalog.errors import ToolError
from catalog.inventory import search, snapshot
from catalog.inventory.versions import columns_under, drift_of, named, publish, tell_processes, writing_the_catalog
from catalog.models import Category, Implementation, Tool
from catalog.tools.registry import get_tool

MAX_DESCRIPTION = 1024
"""Characters; at least one provider refuses what is longer."""
MAX_CATEGORIES = 20
MAX_WEIGHT = 1000
MAX_REASON = 1000
UNSEEN = frozenset({"Cc", "Cf", "Cs"})
"""Control characters, marks that turn the direction of writing, halves of characters."""
SETTABLE = ("enabled", "level_override", "description_override", "categories_override", "grantable", "updated_at")


class ChangeRefused(ToolError):
    """A change that cannot be made as it was asked for: says which field, and what it takes."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, {"errors": [{"path": field, "code": "invalid", "message": message}]})


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different now, as the audit log keeps it."""

    kind: str
    before: Any
    after: Any
    about: str = ""


def change_tool(name: str, values: Mapping[str, Any], *, by: User, reason: str = "") -> list[Change]:
    """Set what `values` names (a key of SETTERS each), all of it or nothing; return what is different now.

    Raises NotAllowed unless `by` administers, Tool.DoesNotExist, and ChangeRefused naming the field.
    """
    if not may_change(by):
        raise NotAllowed("Only an administrator may change tools.")
    _judge_text("reason", reason, MAX_REASON)
    with writing_the_catalog():
        row = _row(name)
        changes = [change for key, value in values.items() for change in SETTERS[key](row, value, reason)]
        drift = _publish(row) if changes else None
        for change in changes:  # last: what the audit log keeps waits for its head, and others wait for this
            signals.record(change.kind, by=by, **_told(row, change, reason))
        if drift is not None:
            signals.record(drift.kind, **drift.data)
    snapshot.forget()
    return changes


def may_change(user: User) -> bool:
    """Say whether someone may change tools: administrators, never through an agent's token."""
    return has_role(user, ADMINISTRATOR) and agent_token_of(user) is None


def _judge_text(field: str, text: str, most: int) -> None:
    """Refuse a text that is too long, or that holds more than can be seen; lines may end."""
    if len(text) > most:
        raise ChangeRefused(field, f"Write at most {most:,} characters; these are {len(text):,}.")
    if any(unicodedata.category(letter) in UNSEEN for letter in text.replace("\r\n", "\n") if letter != "\n"):
        raise ChangeRefused(field, "This holds a character that cannot be seen; leave it out.")


def _row(name: str) -> Tool:
    related = Tool.objects.select_related("current_version").prefetch_related("implementations", "categories")
    return related.get(name=name, current_version__isnull=False)


def _publish(row: Tool) -> signals.Fact | None:
    """Write the row and its version; return that it drifted, when people are asked about an earlier one."""
    row.save(update_fields=SETTABLE)
    is_new = publish(row, columns_under(row))
    if is_new:
        search.index_changed()
    tell_processes()
    return drift_of(row) if is_new else None


def _told(row: Tool, change: Change, reason: str) -> dict[str, Any]:
    about = {"implementation": change.about} if change.about else {}
    why = {"reason": reason} if reason else {}
    return {**named(row), **about, **why, "before": change.before, "after": change.after}


def _set_level(row: Tool, level: str, reason: str) -> list[Change]:
    """Set the level; a lower one needs a reason. The author's own level is not set over itself."""
    before = _level_of(row)
    if SafetyLevel(level).rank < before.rank and not reason.strip():
        raise ChangeRefused("reason", f"Say why {row.name} is to be {level}: lowering its level needs a reason.")
    row.level_override = "" if level == row.declared_level else level
    return _differs("tool.level_set", str(before), level)


def _level_of(row: Tool) -> SafetyLevel:
    version = row.current_version
    return SafetyLevel(row.level_override or row.declared_level or (version.safety_level if version else "dangerous"))


def _set_categories(row: Tool, names: Sequence[str] | None, reason: str) -> list[Change]:
    """Put the tool into these categories, which stay whatever its code says; None: into its author's again."""
    _judge_categories(names or ())
    before, chosen_before = sorted(category.name for category in row.categories.all()), row.categories_override
    row.categories_override = chosen = None if names is None else sorted(names)
    loaded = get_tool(row.name)  # where the code is not loaded, the next sync brings its categories back
    wanted = chosen if chosen is not None else sorted(loaded.categories if loaded else before)
    row.categories.set([Category.objects.get_or_create(name=name)[0] for name in wanted])
    changed = (before, chosen_before) != (wanted, chosen)
    return [Change("tool.categories_set", before, wanted)] if changed else []


def _judge_categories(names: Sequence[str]) -> None:
    """Refuse what the page could not show on one line, with commas between the names, and read again as the same."""
    if len(set(names)) != len(names) or len(names) > MAX_CATEGORIES:
        raise ChangeRefused("categories", f"Name at most {MAX_CATEGORIES} categories, each once.")
    for index, name in enumerate(names):
        if not 0 < len(name) <= MAX_CATEGORY or name != name.strip() or not name.isprintable() or "," in name:
            message = f"A category is 1 to {MAX_CATEGORY} visible characters without commas, and no blanks around them."
            raise ChangeRefused(f"categories.{index}", message)


def _set_enabled(row: Tool, enabled: bool, reason: str) -> list[Change]:  # noqa: FBT001 - a setter takes its value
    """Let the tool be called, or not."""
    before, row.enabled = row.enabled, enabled
    return _differs("tool.enabled" if enabled else "tool.disabled", before, enabled)


def _set_description(row: Tool, text: str | None, reason: str) -> list[Change]:
    """Let models read this text instead of the author's; nothing, or the author's own text, takes it away."""
    wanted = (text or "").strip()
    _judge_text("description_override", wanted, MAX_DESCRIPTION)
    if wanted and not row.accepts_overrides:
        raise ChangeRefused("description_override", f"The author of {row.name} lets nobody else describe it.")
    before = row.description_override
    row.description_override = "" if wanted == row.declared_description else wanted
    return _differs("tool.description_set", before or None, row.description_override or None)


def _set_implementations(row: Tool, wanted: Sequence[Mapping[str, Any]], reason: str) -> list[Change]:
    """Set weights and switches; plans that are under way may get another implementation by that."""
    known = {each.pk: each for each in row.implementations.all()}
    changes: list[Change] = []
    for index, values in enumerate(wanted):
        implementation = known.pop(values["id"], None)
        if implementation is None:
            message = f"{row.name} has no implementation with this id, or it is named twice."
            raise ChangeRefused(f"implementations.{index}.id", message)
        if not 0 <= values.get("weight", 0) <= MAX_WEIGHT:
            raise ChangeRefused(f"implementations.{index}.weight", f"A weight is 0 to {MAX_WEIGHT:,}.")
        changes += _set_implementation(implementation, values)
    return changes


def _set_implementation(implementation: Implementation, values: Mapping[str, Any]) -> list[Change]:
    before = {"weight": implementation.weight, "enabled": implementation.enabled}
    after = before | {name: value for name, value in values.items() if name in before}
    if after == before:
        return []
    Implementation.objects.filter(pk=implementation.pk).update(**after)
    return [Change("tool.implementation_set", before, after, implementation.reference)]


def _set_grantable(row: Tool, limits: Mapping[str, Any] | None, reason: str) -> list[Change]:
    """Let grants be made for the tool, within these limits; None: as its level says, for dangerous tools not at all."""
    wanted = None if limits is None else {"max_hours": USUAL_HOURS, "max_uses": USUAL_USES} | dict(limits)
    field, message = ("", "") if wanted is None else objection_to(wanted)
    if field:
        raise ChangeRefused(f"grantable.{field}", message)
    before, row.grantable = row.grantable, wanted
    return _differs("tool.grantable_set", before, wanted)


def _differs(kind: str, before: Any, after: Any) -> list[Change]:
    return [Change(kind, before, after)] if before != after else []


Setter = Callable[[Tool, Any, str], list[Change]]
SETTERS: Mapping[str, Setter] = {
    "safety_level": _set_level,
    "categories": _set_categories,
    "enabled": _set_enabled,
    "description_override": _set_description,
    "implementations": _set_implementations,
    "grantable": _set_grantable,
}
