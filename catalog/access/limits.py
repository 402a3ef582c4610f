"""Limits of a token: the tools that it may see and call, by level, category and source.

They are stored as JSON in the token's row: `max_level`, `categories`, `sources`. A missing key limits nothing, an empty
list leaves no tool, and null in place of the object stands for no limits. Limits only narrow: policies decide each call
that is within them.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from django.db.models import Q

from catalog.definitions.levels import SafetyLevel
from catalog.definitions.rules import MAX_CATEGORY
from catalog.dispatch.pipeline import CallFacts, Deny
from catalog.errors import field_error
from catalog.models import Source, Tool

Limits = Mapping[str, Any]
LEVELS = tuple(level.value for level in SafetyLevel)
KEYS = ("max_level", "categories", "sources")
MAX_NAMES = 200
"""Maximum number of categories, and of sources, in the limits of one token."""
MAX_SOURCE = Source._meta.get_field("name").max_length
OUTSIDE = "{tool} is outside the limits of this token: {reason}. The token's owner can {remedy}."
LENGTHS = {"categories": MAX_CATEGORY, "sources": MAX_SOURCE}


def read_limits(value: object) -> dict[str, Any] | None:
    """Return valid limits in the form in which they are stored; None for null and for {}, which limit nothing.

    Names of categories and sources need not exist yet. Raises ParameterError, whose path begins with `limits`.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise field_error("limits", "type", f"Send null, or an object with {', '.join(KEYS)}.")
    unknown = sorted(str(key)[:64] for key in value if key not in KEYS)
    if unknown:
        raise field_error(f"limits.{unknown[0]}", "unknown_field", f"Limits have only {', '.join(KEYS)}.")
    found: dict[str, Any] = {}
    if "max_level" in value:
        found["max_level"] = _read_level(value["max_level"])
    for key in ("categories", "sources"):
        if key in value:
            found[key] = _read_names(key, value[key])
    return found or None


def _read_level(value: object) -> str:
    if not isinstance(value, str) or value not in LEVELS:
        raise field_error("limits.max_level", "invalid_choice", f"This must be one of {', '.join(LEVELS)}.")
    return value


def _read_names(key: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple):
        raise field_error(f"limits.{key}", "type", "Send a list of names.")
    if len(value) > MAX_NAMES:
        raise field_error(f"limits.{key}", "max_length", f"At most {MAX_NAMES} names are accepted.")
    for place, name in enumerate(value):
        if not isinstance(name, str) or not name.strip() or "\0" in name or len(name) > (LENGTHS[key] or 0):
            message = f"This must be a name of 1 to {LENGTHS[key]} characters."
            raise field_error(f"limits.{key}.{place}", "invalid", message)
    return list(dict.fromkeys(value))


class Breach(NamedTuple):
    """A limit that a tool is outside of, and the change of the token's limits that would let it in."""

    reason: str
    remedy: str


def breaches_of(limits: Limits | None, *, level: str, categories: Collection[str], source: str | None) -> list[Breach]:
    """Return the limits that a tool with these properties is outside of; empty if it is within all of them."""
    if not limits:
        return []
    if not limits.keys() <= set(KEYS):
        return [Breach("the limits were written by another version of Toolgate", "change its limits")]
    found = []
    if "max_level" in limits and _rank(level) > _rank(limits["max_level"]):
        reason = f"it is {level}, and the token is for {_levels_up_to(limits['max_level'])} tools"
        found.append(Breach(reason, f"raise its highest level to {level}"))
    if "categories" in limits and not categories:
        reason = "it has no category, and the token is for certain categories"
        found.append(Breach(reason, "lift its limit to categories"))
    missing = sorted(set(categories).difference(limits.get("categories", categories)))
    if missing:
        names = ", ".join(f"the category {name}" for name in missing)
        found.append(Breach(f"the token is not for the category {missing[0]}", f"add {names} to its limits"))
    if "sources" in limits and source not in limits["sources"]:
        found.append(Breach(f"the token is not for the source {source}", f"add the source {source} to its limits"))
    return found


def refusal_of(facts: CallFacts) -> Deny | None:
    """Return the refusal of a call whose tool is outside the limits of its token; None if it is within them."""
    if not facts.limits:
        return None
    level, categories, source = facts.safety_level, facts.categories, facts.source
    message = outside_message(facts.limits, facts.tool_name, level=level, categories=categories, source=source)
    return Deny(message, by_limits=True) if message else None


def outside_message(
    limits: Limits | None, tool_name: str, *, level: str, categories: Collection[str], source: str | None
) -> str:
    """Return the refusal of a tool with these properties, with its remedy; empty if it is within the limits."""
    found = breaches_of(limits, level=level, categories=categories, source=source)
    if not found:
        return ""
    reason, remedy = "; ".join(each.reason for each in found), " and ".join(each.remedy for each in found)
    return OUTSIDE.format(tool=tool_name, reason=reason, remedy=remedy)


def tools_within(limits: Limits | None) -> Q:
    """Return the condition on rows of tools for those within the limits."""
    condition = Q()
    if not limits:
        return condition
    if not limits.keys() <= set(KEYS):
        return Q(pk__in=())
    if "max_level" in limits:
        condition &= Q(current_version__safety_level__in=LEVELS[: _rank(limits["max_level"]) + 1])
    if "categories" in limits:
        named = Q(category__name__in=limits["categories"])
        members = Tool.categories.through.objects.order_by()
        condition &= Q(pk__in=members.filter(named).values("tool_id"))
        condition &= ~Q(pk__in=members.exclude(named).values("tool_id"))
    if "sources" in limits:
        condition &= Q(source__name__in=limits["sources"])
    return condition


def _levels_up_to(level: str) -> str:
    return " and ".join(LEVELS[: _rank(level) + 1])


def _rank(level: str) -> int:
    """Return the place of a level in their order; an unknown one counts as dangerous."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS) - 1
