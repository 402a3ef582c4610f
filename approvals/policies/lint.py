"""Warnings about policies: names that match no tool, argument, group or person at present, and open-ended hosts.

Such terms are allowed, since the names may be added later, but are usually mistakes. Never writes. Warnings are keyed
by field of the editor: a field's name, `row-0` or `stage-0`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from django.contrib.auth.models import User

from approvals.models import PolicyRevision
from approvals.policy_language.derived import (
    COMMAND_EFFECTS,
    COMMAND_PROGRAMS,
    ONLY_EXACT,
    may_allow,
    unknown_effects,
)
from approvals.policy_language.escapes import open_end
from approvals.policy_language.history import read_recent, read_seen
from approvals.policy_language.terms import GROUP, TERMS
from catalog.access.passkeys import people_with_passkeys
from catalog.access.roles import ADMINISTRATOR, REVIEWER, in_any_group
from catalog.client_tools.commands import EFFECTS
from catalog.models import Category, Source, Tool, ToolVersion
from catalog.schemas.defaults import SchemaDefaults

WILDCARDS = str.maketrans("", "", "*?")
MATCHING_MISSING = frozenset({"missing", "exists", "not_equals", "not_in"})
"""Operators that need no warning about missing arguments: a missing argument satisfies them, or is what they test."""
NO_SUCH_TOOL = {
    "tool": "This matches no tool at present.",
    "category": "No tool is in this category at present.",
    "source": "No tool comes from this source at present.",
    "safety_level": "No tool has this safety level at present.",
}
MAX_SCHEMAS = 100
"""Maximum number of tools whose schemas are checked for argument names."""


@dataclass(frozen=True, slots=True)
class _ToolRow:
    """Properties of a callable tool that rules match on, named as in the facts of a call."""

    tool_name: str
    safety_level: str
    source: str
    version: int
    categories: Sequence[str]


def policy_warnings(columns: Mapping[str, Any]) -> dict[str, str]:
    """Return warnings about valid terms, by field."""
    warnings: dict[str, str] = {}
    effect, requester = columns["effect"], columns["requester"]
    if effect == PolicyRevision.Effect.ALLOW:
        ends = ((f"row-{number}", open_end(row)) for number, row in enumerate(columns["conditions"]))
        warnings |= {field: warning for field, warning in ends if warning}
        for number, row in enumerate(columns["conditions"]):
            if not may_allow(row["path"], row["operator"]):
                warnings[f"row-{number}"] = f"This row fits no call. {ONLY_EXACT}"
    for number, row in enumerate(columns["conditions"]):
        if row["path"] == COMMAND_EFFECTS and (unknown := unknown_effects(row.get("value"))):
            warnings[f"row-{number}"] = f"There is no effect {unknown[0]}.{suggest_name(unknown[0], EFFECTS)}"
    warnings |= _warnings_of_tools(columns)
    warnings |= _warnings_of_history(columns)
    active = User.objects.filter(is_active=True)
    if requester.startswith(GROUP):
        if not active.filter(groups__name=requester.removeprefix(GROUP)).exists():
            warnings["requester"] = "This group has no active members at present."
    elif requester and not active.filter(username=requester).exists():
        warnings["requester"] = "This account is disabled."
    for number, stage in enumerate(columns["stages"] if effect == PolicyRevision.Effect.HOLD else ()):
        group = stage["group"]
        # Administrators and superusers count as reviewers too.
        members = active.filter(in_any_group([group, ADMINISTRATOR] if group == REVIEWER else [group]))
        count = members.count()
        if columns.get("fresh_passkey") and not members.filter(pk__in=people_with_passkeys()).exists():
            warnings[f"stage-{number}"] = f"Nobody in {group} has a passkey at present, so nobody there can approve."
            continue
        if count < stage["count"]:
            has = f"has only {count} member{'' if count == 1 else 's'}" if count else "has no members"
            warning = f"{group} {has} at present: such a call would wait until it expires."
            warnings[f"stage-{number}"] = warning
    return warnings


def _warnings_of_history(columns: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield warnings about terms on what came before; the fields are named as in the editor."""
    recent, seen = read_recent(columns["recent"]), read_seen(columns["seen"])
    if seen is not None:
        found = {"category": "categories__name", "source": "source__name"}.get(seen.kind, "name")
        if not Tool.objects.filter(**{found: seen.name}).exists():
            model: Any = {"category": Category, "source": Source}.get(seen.kind, Tool)
            names = model.objects.values_list("name", flat=True)
            yield "seen_name", f"{NO_SUCH_TOOL[seen.kind]}{suggest_name(seen.name, list(names))}"
    if columns["effect"] == PolicyRevision.Effect.ALLOW and (recent is not None or seen is not None):
        field = "recent_argument" if recent is not None else "seen_name"
        yield field, "An agent can bring this about with its own calls, and then no one is asked."
    elif recent is not None and recent.path:
        yield from _warnings_of_counted_argument(columns, recent.path)


def _warnings_of_counted_argument(columns: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    named = [name for name in NO_SUCH_TOOL if columns[name]]
    tools = [
        tool for tool in _tools(columns["category"]) if all(TERMS[name].fits(columns[name], tool) for name in named)
    ]
    if not tools or len(tools) > MAX_SCHEMAS:
        return
    schemas = ToolVersion.objects.filter(pk__in=[tool.version for tool in tools]).values_list("input_schema", flat=True)
    if any("properties" not in schema for schema in schemas):
        return
    names = {name for schema in schemas for name in schema["properties"]}
    name = path.partition(".")[0]
    if name not in names:
        missing = f"No matching tool has an argument {name}.{suggest_name(name, list(names))}"
        yield "recent_argument", f"{missing} All calls would be counted together."


def matched_levels(columns: Mapping[str, Any]) -> set[str]:
    """Return the safety levels of the tools that these terms match at present."""
    named = [name for name in NO_SUCH_TOOL if columns[name]]
    tools = _tools(columns["category"])
    return {tool.safety_level for tool in tools if all(TERMS[name].fits(columns[name], tool) for name in named)}


def suggest_name(name: str, known: Sequence[str]) -> str:
    """Return a question that suggests similar known names; empty if there are none."""
    found = get_close_matches(name[:128], known, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(found)}?" if found else ""


def _warnings_of_tools(columns: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not any(columns[name] for name in ("tool", "category", "source", "conditions")):
        return
    tools, named = _tools(columns["category"]), [name for name in NO_SUCH_TOOL if columns[name]]
    alone = {name: [tool for tool in tools if TERMS[name].fits(columns[name], tool)] for name in named}
    for name, fitting in alone.items():
        if fitting:
            continue
        suggestion = ""
        if name == "tool":
            suggestion = suggest_name(columns[name].translate(WILDCARDS), [tool.tool_name for tool in tools])
        elif name == "category":
            suggestion = suggest_name(columns[name], list(Category.objects.values_list("name", flat=True)))
        yield name, f"{NO_SUCH_TOOL[name]}{suggestion}"
    together = [tool for tool in tools if all(TERMS[name].fits(columns[name], tool) for name in named)]
    if not together and all(alone.values()):
        first = next(iter(alone), "tool")
        yield first, "Each of these fields matches a tool, but no tool matches all of them at present."
    elif together and len(together) <= MAX_SCHEMAS:
        yield from _warnings_of_rows(columns, together)


def _tools(category: str) -> list[_ToolRow]:
    """Return the callable tools. Their `categories` contain `category` or nothing; no other categories are loaded."""
    called = Tool.objects.filter(registered=True, current_version__isnull=False)
    rows = called.values_list("name", "current_version__safety_level", "source__name", "current_version_id", "pk")
    within = set(Category.objects.filter(name=category).values_list("tools__pk", flat=True)) if category else set()
    return [
        _ToolRow(name, level, source, version or 0, (category,) if pk in within else ())
        for name, level, source, version, pk in rows
    ]


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
        if row["path"] in (COMMAND_EFFECTS, COMMAND_PROGRAMS):  # no arguments
            continue
        if name not in names:
            yield f"row-{number}", f"No matching tool has an argument {name}.{suggest_name(name, list(names))}"
        elif columns["effect"] != PolicyRevision.Effect.ALLOW and row["operator"] not in MATCHING_MISSING:
            for tool, schema in sorted(schemas.items()):
                is_optional = name in schema["properties"] and name not in schema.get("required", ())
                if is_optional and (name,) in SchemaDefaults(schema).missing({}).undecided:
                    why = f"{tool} can be called without {name}, and no default is known."
                    remedy = f"add a policy with “{name} missing” if they should be treated alike."
                    yield f"row-{number}", f"{why} This row does not match such calls: {remedy}"
                    break
