"""Back-test: replays past calls, as of their time, under current and changed rules. Bounded; never writes."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

from django.utils.translation import gettext, gettext_noop

from approvals.models import Policy, PolicyRevision, Review
from approvals.policies.rulebook import (
    Clause,
    Rulebook,
    build_rulebook,
    compile_clause,
    requesters_named,
    revisions_in_force,
)
from approvals.policies.simulator import effect_of
from approvals.states import ReviewVerdict
from catalog.client_tools.facts import facts_finder
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.arguments import stored_arguments, validator_of
from catalog.dispatch.pipeline import CallFacts, Hold
from catalog.models import Call, CallRequester, ToolVersion
from catalog.schemas import Validator

MAX_CALLS = 10_000
MAX_DAYS = 90
MAX_CHANGED = 200
MAX_SECONDS = 4.0
CHUNK = 500
EFFECT_WORDS = {
    "allow": gettext_noop("Runs without approval"),
    "hold": gettext_noop("Needs approval"),
    "deny": gettext_noop("Is blocked"),
}
REPLAYED_COLUMNS = (
    *("pk", "public_id", "tool_name", "version_id", "arguments", "defaults"),
    *("requested_by_id", "plan_ref", "created_at"),
    *("client_run__client", "client_run__client_tool", "client_run__cwd"),
)


@dataclass(frozen=True, slots=True)
class ChangedCall:
    """A call with a different verdict under the change; `review` is the reviewers' verdict, empty without a review."""

    call: str
    tool: str
    before: str
    after: str
    review: str = ""
    plan: str = ""

    @property
    def before_word(self) -> str:
        return gettext(EFFECT_WORDS[self.before])

    @property
    def after_word(self) -> str:
        return gettext(EFFECT_WORDS[self.after])

    @property
    def review_word(self) -> str:
        """Label of the review's verdict; empty if the call was not reviewed."""
        return str(ReviewVerdict(self.review).label) if self.review else ""


@dataclass(slots=True)
class BackTest:
    """Calls by effect (held, allowed, denied) under the rules with the change, and the calls whose effect differs.

    `rejected` counts allowed calls that reviewers had rejected; `other_people` calls held under both rules, but with
    other approvers. `next` is the cursor of the next page, None at the end.
    """

    counts: Counter[str] = field(default_factory=Counter)
    changed: list[ChangedCall] = field(default_factory=list)
    changes: int = 0
    matched: int = 0
    rejected: int = 0
    other_people: int = 0
    calls: int = 0
    next: str | None = None

    @property
    def older(self) -> str:
        """Id of the call after which the test continues with older calls; empty at the end."""
        return self.changed[-1].call if self.changes > len(self.changed) else self.next or ""


@dataclass(frozen=True, slots=True)
class ReplayedVersion:
    """A tool's version: its schema's validator, and the level, categories and source that rules match on."""

    validator: Validator | None
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rulebooks:
    """The rules without the change, the rules with it, and the changed rule alone."""

    before: Rulebook
    after: Rulebook
    changed: Clause


def rulebooks_for(revision: PolicyRevision, *, enabled: bool = True) -> Rulebooks:
    """Return the current rules, and the same rules with `revision` in place of its policy's current revision.

    `revision` may be a draft. If it is the current revision already, the first rules are those without it. It is tested
    as if it were enforced; other policies on trial are left out.
    """
    current, policy = revisions_in_force(), revision.policy
    others = [each for each in current if each.policy_id != policy.pk]
    is_in_force = revision.pk in {each.pk for each in current}
    with_it = [*others, *([revision] if enabled else [])]
    # A draft comes after policies with the same order number.
    with_it.sort(key=lambda each: (each.policy.order, each.policy.pk is None, each.policy.pk or 0))
    people = requesters_named([*current, revision])
    return Rulebooks(
        before=build_rulebook(others if is_in_force else current, people),
        after=build_rulebook(with_it, people, enforced=True),
        changed=compile_clause(revision, people.get(revision.requester, frozenset())),
    )


def draft_of(columns: Mapping[str, Any], *, name: str, order: int, policy: Policy | None = None) -> PolicyRevision:
    """Return an unsaved revision with these terms, at the given position."""
    draft = Policy(pk=policy.pk if policy else None, name=name, order=order)
    return PolicyRevision(policy=draft, number=0, **columns)


def back_test(rulebooks: Rulebooks, *, days: int, before: str = "") -> BackTest:
    """Replay calls of the last days, newest first, up to MAX_CALLS and MAX_SECONDS; with `before`, only older calls."""
    found, ends = BackTest(), monotonic() + MAX_SECONDS
    since = clock.now() - timedelta(days=min(days, MAX_DAYS))
    for rows in _chunks(since, before):
        tools = _versions({row["version_id"] for row in rows})
        calls = [row["pk"] for row in rows]
        reviews = Review.objects.filter(request__call__in=calls, undone_at=None).order_by("pk")
        verdicts_given = dict(reviews.values_list("request__call_id", "verdict"))
        requesters = defaultdict[int, set[int]](set)  # recorded for calls that were held
        for call, person in CallRequester.objects.filter(call__in=calls).values_list("call_id", "user_id"):
            requesters[call].add(person)
        for row in rows:
            version, at = tools[row["version_id"]], row["created_at"]
            prepared = stored_arguments(version.validator, json.loads(row["arguments"]), row["defaults"])
            facts = CallFacts(
                tool_name=row["tool_name"],
                arguments=prepared.passed,
                requested_by=row["requested_by_id"],
                plan_ref=row["plan_ref"],
                prepared=prepared,
                find_requesters=partial(requesters.__getitem__, row["pk"]),
                find_derived=facts_finder(
                    row["client_run__client"] or "",
                    row["client_run__client_tool"] or "",
                    prepared.passed,
                    row["client_run__cwd"] or "",
                ),
                **version.facts,
            )
            old, new = rulebooks.before.verdict(facts, at), rulebooks.after.verdict(facts, at)
            effects, review = (effect_of(old), effect_of(new)), verdicts_given.get(row["pk"], "")
            found.calls += 1
            found.matched += rulebooks.changed.applies(facts, at)
            found.counts[effects[1]] += 1
            found.rejected += effects[1] == "allow" and review == ReviewVerdict.REJECT
            if isinstance(old, Hold) and isinstance(new, Hold):
                found.other_people += old.terms.stages != new.terms.stages
            if effects[0] != effects[1]:
                found.changes += 1
                if len(found.changed) < MAX_CHANGED:
                    change = ChangedCall(row["public_id"], row["tool_name"], *effects, review, row["plan_ref"])
                    found.changed.append(change)
        if found.calls >= MAX_CALLS or monotonic() > ends:
            found.next = rows[-1]["public_id"]
            break
    return found


def _chunks(since: datetime, before: str) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield calls in chunks, newest first, back to `since`. Primary keys are in the order of creation."""
    calls = Call.objects.order_by("-pk").values(*REPLAYED_COLUMNS)
    last = Call.objects.filter(public_id=before).values_list("pk", flat=True).first() if before else None
    while True:
        rows = list((calls.filter(pk__lt=last) if last is not None else calls)[:CHUNK])
        recent = [row for row in rows if row["created_at"] >= since]
        if recent:
            yield recent
        if len(recent) < CHUNK:
            return
        last = rows[-1]["pk"]


def _versions(versions: set[int]) -> dict[int, ReplayedVersion]:
    rows = ToolVersion.objects.filter(pk__in=versions).select_related("tool__source")
    rows = rows.defer(*(f"tool__source__{name}" for name in ("document", "secrets", "tool_settings")))
    return {
        row.pk: ReplayedVersion(
            validator_of(row.input_schema),
            {
                "safety_level": SafetyLevel(row.safety_level),
                "categories": tuple(category.name for category in row.tool.categories.all()),
                "source": row.tool.source.name,
            },
        )
        for row in rows.prefetch_related("tool__categories")
    }
