"""Outlook on the calls of a person: for each tool, if its calls may run at once, wait for people, or are refused.

It is computed from the limits, the rules and the grants of this moment, without arguments: a rule about arguments makes
a verdict possible, not certain. The gate decides each call; nothing here lets one start.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from django.contrib.auth.models import User

from approvals.policies.gate import rules_in_force
from approvals.policies.rulebook import Rulebook
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.policy_language.stages import people_in_words
from approvals.policy_language.terms import TERMS
from catalog.access.limits import Limits, refusal_of
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import Allow, CallFacts, GateDecision, Hold
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool
from catalog.tools.registry import PLANNER_CATEGORY

NOBODY: Set[int] = frozenset()


class Prospect(StrEnum):
    """The prospect of a tool's calls, whatever their arguments."""

    RUNS = "runs"
    """Every call runs at once."""
    MAY_RUN = "may_run"
    """Some calls may run at once, depending on arguments, plan or a grant; others wait or are refused."""
    WAITS = "waits"
    """No call runs before people agree."""
    REFUSED = "refused"
    """Every call is refused, so the tool is not offered."""


AT_ONCE = (Prospect.RUNS, Prospect.MAY_RUN)


@dataclass(frozen=True, slots=True)
class ToolOutlook:
    name: str
    level: str
    categories: tuple[str, ...]
    source: str
    prospect: Prospect
    people: str = ""
    """The people who must agree, such as "1 reviewer"; empty if no call is held."""


@dataclass(frozen=True, slots=True)
class OutlookGroup:
    """Tools with something in common: a level, a category, a source, or the people for whom they wait."""

    key: str
    tools: Sequence[ToolOutlook]

    @property
    def at_once(self) -> int:
        return sum(tool.prospect in AT_ONCE for tool in self.tools)

    @property
    def waiting(self) -> int:
        return len(self.tools) - self.at_once


@dataclass(frozen=True, slots=True)
class Outlook:
    """The tools that a person's agent would be offered, sorted by name, and those that the rules refuse."""

    tools: Sequence[ToolOutlook]
    refused: Sequence[ToolOutlook] = ()

    def with_prospect(self, *prospects: Prospect) -> list[ToolOutlook]:
        return [tool for tool in self.tools if tool.prospect in prospects]

    @property
    def at_once(self) -> list[ToolOutlook]:
        return self.with_prospect(*AT_ONCE)

    @property
    def may_run(self) -> list[ToolOutlook]:
        return self.with_prospect(Prospect.MAY_RUN)

    @property
    def waiting(self) -> list[OutlookGroup]:
        """The tools whose calls all wait, by the people for whom they wait."""
        return _grouped(self.with_prospect(Prospect.WAITS), lambda tool: (tool.people,))

    @property
    def by_level(self) -> list[OutlookGroup]:
        groups = {group.key: group for group in _grouped(self.tools, lambda tool: (tool.level,))}
        return [groups.get(level, OutlookGroup(level, ())) for level in SafetyLevel]

    @property
    def by_category(self) -> list[OutlookGroup]:
        """The tools by category; a tool with several is in each, one without is in the group with an empty key."""
        return _grouped(self.tools, lambda tool: tool.categories or ("",))

    @property
    def by_source(self) -> list[OutlookGroup]:
        return _grouped(self.tools, lambda tool: (tool.source,))


def _grouped(tools: Iterable[ToolOutlook], keys: Callable[[ToolOutlook], tuple[str, ...]]) -> list[OutlookGroup]:
    found: dict[str, list[ToolOutlook]] = defaultdict(list)
    for tool in tools:
        for key in keys(tool):
            found[key].append(tool)
    return [OutlookGroup(key, found[key]) for key in sorted(found)]


def outlook_for(person: User, limits: Limits | None = None, *, granted: Set[int] = NOBODY) -> Outlook:
    """Return the outlook on a person's calls through a token with these limits.

    `granted` are the keys of tools of which a grant lets some of the person's calls start. Tools and rules are read
    from memory, as the gate reads them.
    """
    prospects = Prospects(rules_in_force())
    offered: list[ToolOutlook] = []
    refused: list[ToolOutlook] = []
    for name, target in sorted(snapshot.callable_tools().items()):
        if not target.is_ready or PLANNER_CATEGORY in target.tool.categories or name == PROPOSE_ENVELOPE:
            continue
        facts = _facts(target, person, limits)
        if refusal_of(facts) is not None:
            continue
        prospect, people = prospects.find(facts)
        if prospect is Prospect.WAITS and target.tool_pk in granted and target.grant_limits is not None:
            prospect = Prospect.MAY_RUN
        entry = ToolOutlook(name, str(facts.safety_level), facts.categories, target.source, prospect, people)
        (refused if prospect is Prospect.REFUSED else offered).append(entry)
    return Outlook(offered, refused)


class Prospects:
    """Prospects by what rules see of a tool: thousands of tools share a few levels, categories and sources."""

    def __init__(self, rulebook: Rulebook) -> None:
        self._rulebook = rulebook
        self._patterns = list(dict.fromkeys(each.match.tool for each in rulebook.clauses if each.match.tool))
        self._known: dict[tuple[object, ...], tuple[Prospect, str]] = {}
        self._now = clock.now()

    def find(self, facts: CallFacts) -> tuple[Prospect, str]:
        """Return the prospect of a tool's calls, and the people who must agree to those that are held."""
        named = tuple(pattern for pattern in self._patterns if TERMS["tool"].fits(pattern, facts))
        key = (facts.safety_level, facts.categories, facts.source, named)
        if key not in self._known:
            self._known[key] = _prospect_of(self._rulebook.possible_verdicts(facts, self._now))
        return self._known[key]


def _prospect_of(verdicts: Sequence[GateDecision]) -> tuple[Prospect, str]:
    held = [verdict.terms for verdict in verdicts if isinstance(verdict, Hold)]
    people = " or ".join(dict.fromkeys(people_in_words(rule.stages) for rule in held))
    if all(isinstance(verdict, Allow) for verdict in verdicts):
        return Prospect.RUNS, ""
    if any(isinstance(verdict, Allow) for verdict in verdicts):
        return Prospect.MAY_RUN, people
    return (Prospect.WAITS, people) if held else (Prospect.REFUSED, "")


def _facts(callable_tool: CallableTool, person: User, limits: Limits | None) -> CallFacts:
    return CallFacts(
        tool_name=callable_tool.tool.name,
        safety_level=callable_tool.tool.safety_level,
        categories=callable_tool.tool.categories,
        arguments={},
        requested_by=person.pk,
        source=callable_tool.source,
        limits=limits,
    )
