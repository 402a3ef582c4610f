"""Warnings about policies: names that match no tool, argument, group or person at present, and hosts without an end.

They are allowed, since the names may be added later, but are usually mistakes. Never writes. Warnings are keyed by
field of the editor: a field's name, `row-0` or `stage-0`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Q

from approvals.models import PolicyRevision
from approvals.policies.rulebook import GROUP
from approvals.policy_language.escapes import open_end
from catalog.access.roles import ADMINISTRATOR, REVIEWER
from catalog.models import Category, Tool, ToolVersion
from catalog.schemas.defaults import SchemaDefaults

WILDCARDS = str.maketrans("", "", "*?")
MATCHING_MISSING = frozenset({"missing", "exists", "not_equals", "not_in"})
"""Operators for which a missing argument is considered: it satisfies them, or they are about it."""
MAX_SCHEMAS = 100
"""Maximum number of tools whose schemas are checked for argument names."""


@dataclass(frozen=True, slots=True)
class _ToolRow:
    """Properties of a callable tool that rules match on."""

    pk: int
    name: str
    level: str
    source: str
    version: int


def policy_warnings(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return warnings about valid terms, by field."""
    return dict(
        [
            *(_warnings_of_ends(columns["conditions"]) if columns["effect"] == PolicyRevision.Effect.ALLOW else ()),
            *_warnings_of_tools(columns),
            *_warnings_of_people(columns),
            *(_warnings_of_stages(columns) if columns["effect"] == PolicyRevision.Effect.HOLD else ()),
        ]
    )


def matched_levels(columns: Mapping[str, Any]) -> set[str]:
    """Return the safety levels of the tools that these terms match at present."""
    tests = _tool_filters(columns).values()
    return {tool.level for tool in _tools() if all(fits(tool) for fits in tests)}


def suggest_name(name: str, known: Sequence[str]) -> str:
    """Return a question that suggests similar known names; empty if there are none."""
    found = get_close_matches(name[:128], known, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(found)}?" if found else ""


def _warnings_of_tools(columns: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not any(columns[name] for name in ("tool", "category", "source", "conditions")):
        return
    tools = _tools()
    alone = {name: [tool for tool in tools if fits(tool)] for name, fits in _tool_filters(columns).items()}
    for name, fitting in alone.items():
        if not fitting:
            yield name, _no_tool_warning(name, columns[name], tools)
    together = [tool for tool in tools if all(tool in fitting for fitting in alone.values())]
    if not together and all(alone.values()):
        first = next(iter(alone), "tool")
        yield first, "Each of these fields matches a tool, but no tool matches all of them at present."
    elif together and len(together) <= MAX_SCHEMAS:
        yield from _warnings_of_rows(columns, together)


def _tools() -> list[_ToolRow]:
    called = Tool.objects.filter(registered=True, current_version__isnull=False)
    columns = ("pk", "name", "current_version__safety_level", "source__name", "current_version_id")
    return [_ToolRow(*row) for row in called.values_list(*columns)]


def _tool_filters(columns: Mapping[str, Any]) -> dict[str, Callable[[_ToolRow], bool]]:
    """Return a predicate on tools for each field that is filled in."""
    named, category = columns["tool"], columns["category"]
    within = set(Category.objects.filter(name=category).values_list("tools__pk", flat=True)) if category else set()
    tests: dict[str, Callable[[_ToolRow], bool]] = {
        "tool": lambda tool: fnmatchcase(tool.name, named),
        "category": lambda tool: tool.pk in within,
        "source": lambda tool: tool.source == columns["source"],
        "safety_level": lambda tool: tool.level == columns["safety_level"],
    }
    return {name: test for name, test in tests.items() if columns[name]}


def _no_tool_warning(field: str, value: str, tools: Sequence[_ToolRow]) -> str:
    if field == "tool":
        return (
            f"This matches no tool at present.{suggest_name(value.translate(WILDCARDS), [tool.name for tool in tools])}"
        )
    if field == "category":
        known = list(Category.objects.values_list("name", flat=True))
        return f"No tool is in this category at present.{suggest_name(value, known)}"
    if field == "source":
        return "No tool comes from this source at present."
    return "No tool has this safety level at present."


def _warnings_of_rows(columns: Mapping[str, Any], tools: Sequence[_ToolRow]) -> Iterator[tuple[str, str]]:
    if not columns["conditions"]:
        return
    versions = ToolVersion.objects.filter(pk__in=[tool.version for tool in tools])
    schemas = dict(versions.values_list("tool__name", "input_schema"))
    if any("properties" not in schema for schema in schemas.values()):  # the schema does not list all argument names
        return
    names = {name for schema in schemas.values() for name in schema["properties"]}
    for number, row in enumerate(columns["conditions"]):
        name = row["path"].partition(".")[0]
        if name not in names:
            yield f"row-{number}", f"No matching tool has an argument {name}.{suggest_name(name, list(names))}"
        elif columns["effect"] != PolicyRevision.Effect.ALLOW and row["operator"] not in MATCHING_MISSING:
            tool = next((tool for tool, schema in sorted(schemas.items()) if _may_be_missing(name, schema)), "")
            if tool:
                yield (
                    f"row-{number}",
                    f"{tool} can be called without {name}, and no default is known. This row does not match such calls:"
                    f" add a policy with “{name} missing” if they should be treated alike.",
                )


def _may_be_missing(name: str, schema: dict[str, Any]) -> bool:
    """Return whether an argument is optional, and has no default in the schema."""
    if name not in schema["properties"] or name in schema.get("required", ()):
        return False
    return (name,) in SchemaDefaults(schema).missing({}).undecided


def _warnings_of_ends(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(rows):
        warning = open_end(row)
        if warning:
            yield f"row-{number}", warning


def _warnings_of_people(columns: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    requester = columns["requester"]
    if requester.startswith(GROUP):
        if not User.objects.filter(groups__name=requester.removeprefix(GROUP), is_active=True).exists():
            yield "requester", "This group has no active members at present."
    elif requester and not User.objects.filter(username=requester, is_active=True).exists():
        yield "requester", "This account is disabled."


def _warnings_of_stages(columns: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for number, stage in enumerate(columns["stages"]):
        count = _people_in(stage["group"])
        if count < stage["count"]:
            has = f"has only {count} member{'' if count == 1 else 's'}" if count else "has no members"
            yield f"stage-{number}", f"{stage['group']} {has} at present: such a call would wait until it expires."


def _people_in(group: str) -> int:
    """Return the number of active users who count for a group; administrators and superusers count as reviewers too."""
    groups = Group.objects.filter(name__in=[group, ADMINISTRATOR] if group == REVIEWER else [group])
    counted = Q(groups__in=groups)
    if group in (REVIEWER, ADMINISTRATOR):
        counted |= Q(is_superuser=True)
    return User.objects.filter(counted, is_active=True).distinct().count()
