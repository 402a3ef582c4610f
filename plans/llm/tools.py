"""Selection of tools offered to a planner: those the requester may call, the most relevant as far as they fit."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from approvals.policies.gate import refuses
from catalog.definitions.binding import identifier_parameter
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts
from catalog.inventory import snapshot
from catalog.inventory.search import search_words
from catalog.inventory.snapshot import CallableTool
from catalog.tools.registry import PLANNER_CATEGORY
from plans.store.requesters import Requester

EXCLUDED_CATEGORIES = frozenset({PLANNER_CATEGORY, "planning"})
MOST_CHARACTERS = 40_000
LONGEST_DESCRIPTION = 1_200
LONGEST_SCHEMA = 6_000
LONGEST_REQUEST = 4_000
SHORTEST_WORD = 3
NAME_COUNTS = 4
"""Weight of a matching word in a tool's name, against 1 in its description."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The tools offered to a planner, one line of JSON each, and the number of callable tools left out."""

    lines: Sequence[str]
    left_out: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def tools_callable_by(by: Requester, *, without: frozenset[str] = EXCLUDED_CATEGORIES) -> Mapping[str, CallableTool]:
    """Return the tools that the requester may call now, by name: enabled, served and not refused by a policy.

    Tools in the categories `without` are left out.
    """
    found = snapshot.callable_tools().items()
    return {
        name: target for name, target in found if without.isdisjoint(target.tool.categories) and may_call(target, by)
    }


def select_tools(request: str, *, by: Requester, most: int = MOST_CHARACTERS) -> ToolOffer:
    """Return as many of the requester's tools as fit into `most` characters, sorted by name.

    If not all fit, the tools that share the most words with the request are kept.
    """
    tools = tools_callable_by(by)
    entries = {name: tool_line(target) for name, target in tools.items()}
    chosen: list[str] = []
    room = most
    for name in entries if sum(map(len, entries.values())) <= most else rank_tools(tools, request):
        if len(entries[name]) > room:
            continue
        room -= len(entries[name])
        chosen.append(name)
    return ToolOffer([entries[name] for name in sorted(chosen)], len(entries) - len(chosen))


def tool_line(callable_tool: CallableTool) -> str:
    """Return a tool as one line of JSON; its description cannot imitate another tool's line."""
    tool = callable_tool.tool
    entry: dict[str, Any] = {"name": tool.name, "level": str(tool.safety_level)}
    if tool.safety_level == SafetyLevel.DANGEROUS:
        entry["level"] += " (waits until a person approves)"
    if tool.requires_identifier:
        entry["requires_identifier"] = identifier_parameter(tool.input_schema, tool.identifier) or True
    if tool.categories:
        entry["categories"] = list(tool.categories)
    entry["description"] = tool.description[:LONGEST_DESCRIPTION]
    entry["arguments"] = short_schema(tool.input_schema)
    return json.dumps(entry, ensure_ascii=False, separators=(", ", ": "))


def short_schema(schema: Mapping[str, Any]) -> Any:
    """Return the schema of arguments, reduced to the parameters' names if it is too long."""
    if len(json.dumps(schema)) <= LONGEST_SCHEMA:
        return schema
    names = list(schema.get("properties", {}))[:100]
    return {"type": "object", "properties": {name[:64]: {} for name in names}, "required": schema.get("required", [])}


def may_call(callable_tool: CallableTool, by: Requester) -> bool:
    """Return whether a tool is enabled, served, without a held change, and not refused to the requester by a policy."""
    return callable_tool.is_ready and not refuses(facts_without_arguments(callable_tool, by))


def facts_without_arguments(callable_tool: CallableTool, by: Requester) -> CallFacts:
    """Return facts to evaluate policies for a tool without a call: the arguments are empty."""
    return CallFacts(
        tool_name=callable_tool.tool.name,
        safety_level=callable_tool.tool.safety_level,
        categories=callable_tool.tool.categories,
        arguments={},
        requested_by=by.user.pk,
        source=callable_tool.source,
        limits=by.limits,
    )


def rank_tools(tools: Mapping[str, CallableTool], request: str) -> list[str]:
    """Return the names of the tools, those that share the most words with the request first."""
    query = [word for word in search_words(request[:LONGEST_REQUEST]) if len(word) >= SHORTEST_WORD]

    def similarity(name: str) -> int:
        in_name, in_all = _words(name), _words(_searchable_text(tools[name]))
        return sum(NAME_COUNTS * _has_word(in_name, word) + _has_word(in_all, word) for word in query)

    return sorted(tools, key=lambda name: (-similarity(name), name))


def _searchable_text(callable_tool: CallableTool) -> str:
    """Return the tool's name, description and parameter names; the rest of a schema would match every request."""
    tool = callable_tool.tool
    parameters = list(tool.input_schema.get("properties", {}))[:100]
    return " ".join([tool.name, tool.description[:LONGEST_DESCRIPTION], *(name[:64] for name in parameters)])


def _has_word(words: frozenset[str], word: str) -> bool:
    return word in words or word.removesuffix("s") in words or f"{word}s" in words


@lru_cache(maxsize=4_096)
def _words(text: str) -> frozenset[str]:
    return frozenset(search_words(text))
