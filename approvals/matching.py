"""Which calls a rule is about: everything it names must fit. Reads nothing but the call's facts and the clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from approvals.models import PolicyRevision
from approvals.policy_language.conditions import Predicate, compile_rows, sentence_of
from approvals.policy_language.hours import Hours, read_hours
from approvals.policy_language.sentences import requester_in_words
from catalog.calls import vault
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts
from catalog.models import Call


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a policy says nothing about a call: the field of the policy that does not fit, and a sentence."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """What a rule names; empty for anything. `people` are the keys of those its requester stands for."""

    tool: str
    category: str
    safety_level: str
    source: str
    requester: str
    people: frozenset[int]
    plan: str
    hours: Hours | None
    predicate: Predicate

    @property
    def is_sure(self) -> bool:
        """Say whether the tool alone tells if the rule fits."""
        return not (self.requester or self.plan or self.hours or self.predicate.rows)

    def fits_tool(self, facts: CallFacts) -> bool:
        """Say whether the rule is about calls of this tool, whatever they are called with."""
        return (
            self.safety_level in ("", facts.safety_level)
            and (not self.tool or fnmatchcase(facts.tool_name, self.tool))
            and (not self.category or self.category in facts.categories)
            and self.source in ("", facts.source)
        )

    def fits_call(self, facts: CallFacts, at: datetime | None = None) -> bool:
        """Say whether the rest fits too: who asks, in which plan, when, with what."""
        return self.fits_without_arguments(facts, at) and self.predicate.matches(facts.arguments)

    def fits_without_arguments(self, facts: CallFacts, at: datetime | None = None) -> bool:
        """Say whether the rest but the arguments fits too."""
        return (
            (not self.requester or facts.requested_by in self.people)
            and self.plan in ("", facts.plan_ref)
            and (self.hours is None or self.hours.cover(at or clock.now()))
        )

    def misfits(self, facts: CallFacts, at: datetime) -> list[Misfit]:
        """Return why the rule is not about this call; nothing when it is."""
        return [*self._misfits_of_tool(facts), *self._misfits_of_call(facts, at)]

    def _misfits_of_tool(self, facts: CallFacts) -> Iterator[Misfit]:
        if self.safety_level not in ("", facts.safety_level):
            yield Misfit("safety_level", f"the call is {facts.safety_level}, not {self.safety_level}")
        if self.tool and not fnmatchcase(facts.tool_name, self.tool):
            yield Misfit("tool", f"{facts.tool_name} is not {self.tool}")
        if self.category and self.category not in facts.categories:
            yield Misfit("category", f"the tool is not in the category {self.category}")
        if self.source not in ("", facts.source):
            yield Misfit("source", f"the tool does not come from {self.source}")

    def _misfits_of_call(self, facts: CallFacts, at: datetime) -> Iterator[Misfit]:
        if self.requester and facts.requested_by not in self.people:
            yield Misfit("requester", f"who asks is not {requester_in_words(self.requester)}")
        if self.plan not in ("", facts.plan_ref):
            yield Misfit("plan", "it is for another plan")
        if self.hours is not None and not self.hours.cover(at):
            yield Misfit("hours", "it is outside its hours")
        row = self.predicate.failing(facts.arguments)
        if row is not None:
            yield Misfit("arguments", f"not every condition holds: {sentence_of(row)}")


def match_of(revision: PolicyRevision, people: frozenset[int] = frozenset()) -> Match:
    """Return what a revision names. Raises ValueError for hours that cannot be read."""
    return Match(
        tool=revision.tool,
        category=revision.category,
        safety_level=revision.safety_level,
        source=revision.source,
        requester=revision.requester,
        people=people,
        plan=revision.plan,
        hours=read_hours(revision.hours) if revision.hours else None,
        predicate=compile_rows(revision.conditions),
    )


def facts_of(call: Call, arguments: Mapping[str, Any] | None = None) -> CallFacts:
    """Return what is judged of a stored call, or of what it would be with other arguments."""
    version, tool = call.version, call.version.tool
    return CallFacts(
        tool_name=call.tool_name,
        safety_level=SafetyLevel(version.safety_level),
        categories=tuple(tool.categories.values_list("name", flat=True)),
        arguments=vault.opened(call.arguments, call.plan_ref) if arguments is None else arguments,
        requested_by=call.requested_by_id,
        plan_ref=call.plan_ref,
        source=tool.source.name,
    )
