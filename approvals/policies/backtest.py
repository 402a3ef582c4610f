"""Back-test: replays past calls, as of their time, under current and changed rules. Bounded; never writes."""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from time import monotonic
from typing import Any

from django.utils.translation import gettext, gettext_noop

from approvals.models import Policy, PolicyRevision, Review
from approvals.policies.envelope_rules import verdict_of
from approvals.policies.history import CallingClient, CallOrigin, Finding, RuleTerms, calling_client, count_texts
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
from catalog.states import TERMINAL

MAX_CALLS = 10_000
MAX_DAYS = 90
MAX_CHANGED = 200
MAX_SECONDS = 4.0
MAX_CHARACTERS = 20_000_000
"""Length of the arguments of all calls that are kept at once, to be judged in order."""
CHUNK = 500
EFFECT_WORDS = {
    "allow": gettext_noop("Runs without approval"),
    "hold": gettext_noop("Needs approval"),
    "deny": gettext_noop("Is blocked"),
}
REPLAYED_COLUMNS = (
    *("pk", "public_id", "tool_name", "version_id", "arguments", "defaults"),
    *("requested_by_id", "token_id", "session", "plan_ref", "status", "created_at", "started_at", "finished_at"),
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
    """Replay calls of the last days, newest first, up to MAX_CALLS and MAX_SECONDS; with `before`, only older calls.

    For rules that look back, the calls are judged in the order in which they were made. The first of them finds nothing
    before it. Calls count as they were: started, or waiting.
    """
    chunks = _chunks(clock.now() - timedelta(days=min(days, MAX_DAYS)), before)
    if rulebooks.before.looks_back or rulebooks.after.looks_back:
        return _test_in_order(rulebooks, chunks)
    found, ends = BackTest(), monotonic() + MAX_SECONDS
    for rows in chunks:
        _judge(found, rulebooks, _read_chunk(rows))
        if found.calls >= MAX_CALLS or monotonic() > ends:
            found.next = rows[-1]["public_id"]
            break
    return found


def _test_in_order(rulebooks: Rulebooks, chunks: Iterator[Sequence[dict[str, Any]]]) -> BackTest:
    """Replay calls that must all be read before the first, the oldest, can be judged.

    The newest chunk is judged by itself, which shows how many calls can be judged in the time. Its result is returned
    if all that were then read take longer after all.
    """
    ends, size, seconds_each = monotonic() + MAX_SECONDS, 0, 0.0
    newest: BackTest | None = None
    replayed: list[_ReplayedCall] = []
    cursor: str | None = None
    for rows in chunks:
        replayed += _read_chunk(rows)
        size += sum(len(row["arguments"]) for row in rows)
        cursor = rows[-1]["public_id"]
        if newest is None:
            newest, began = BackTest(next=cursor), monotonic()
            _judge(newest, rulebooks, replayed)
            seconds_each = (monotonic() - began) / len(replayed)
        is_full = len(replayed) >= MAX_CALLS or size > MAX_CHARACTERS
        if is_full or monotonic() + seconds_each * (len(replayed) + CHUNK) > ends:
            break
    else:
        cursor = None
    if newest is None or newest.calls == len(replayed):
        return replace(newest or BackTest(), next=cursor)
    found = BackTest(next=cursor)
    return found if _judge(found, rulebooks, replayed, until=ends) else newest


@dataclass(slots=True)
class _ReplayedCall:
    """A stored call, the facts of which rules judge it, and its reviewers' verdict."""

    row: Mapping[str, Any]
    facts: CallFacts
    review: str


def _read_chunk(rows: Sequence[dict[str, Any]]) -> list[_ReplayedCall]:
    tools, calls = _versions({row["version_id"] for row in rows}), [row["pk"] for row in rows]
    reviews = Review.objects.filter(request__call__in=calls, undone_at=None).order_by("pk")
    verdicts_given = dict(reviews.values_list("request__call_id", "verdict"))
    requesters = defaultdict[int, set[int]](set)  # recorded for calls that were held
    for call, person in CallRequester.objects.filter(call__in=calls).values_list("call_id", "user_id"):
        requesters[call].add(person)
    read = []
    for row in rows:
        version = tools[row["version_id"]]
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
        read.append(_ReplayedCall(row, facts, verdicts_given.get(row["pk"], "")))
    return read


def _judge(
    test: BackTest, rulebooks: Rulebooks, replayed: Sequence[_ReplayedCall], *, until: float = float("inf")
) -> bool:
    """Judge calls, which are given newest first, in the order in which they were made; add them up newest first.

    Return False, with nothing added, if that takes longer than `until`.
    """
    history, judged = _ReplayedHistory(), []
    for call in reversed(replayed):
        if monotonic() > until:
            return False
        at, changed = call.row["created_at"], rulebooks.changed
        facts = replace(call.facts, find_history=history.of(call))
        old, new = verdict_of(facts, rulebooks.before, at), verdict_of(facts, rulebooks.after, at)
        if changed.match.looks_back:
            allows = changed.rule.effect == PolicyRevision.Effect.ALLOW
            asks = changed.match.fits_tool(facts) and changed.match.fits_otherwise(facts, at, entirely=allows)
            facts = replace(facts, history=history.of(call)([changed.match]) if asks else {})
        judged.append((call, old, new, changed.applies(facts, at)))
    test.calls += len(judged)
    for call, old, new, is_matched in reversed(judged):
        effects, review = (effect_of(old), effect_of(new)), call.review
        test.matched += is_matched
        test.counts[effects[1]] += 1
        test.rejected += effects[1] == "allow" and review == ReviewVerdict.REJECT
        if isinstance(old, Hold) and isinstance(new, Hold):
            test.other_people += old.terms.stages != new.terms.stages
        if effects[0] != effects[1]:
            test.changes += 1
            if len(test.changed) < MAX_CHANGED:
                names = call.row["public_id"], call.row["tool_name"]
                test.changed.append(ChangedCall(*names, *effects, review, call.row["plan_ref"]))
    return True


class _ReplayedHistory:
    """The history of each call of a replay: the calls replayed until then."""

    def __init__(self) -> None:
        self._times = defaultdict[tuple[int | None, str], deque[datetime]](deque)
        self._running: list[tuple[datetime, int, list[tuple[str, str, str]]]] = []
        self._ended: dict[tuple[str, str, str], datetime] = {}
        self._clients: dict[tuple[int, int | None], CallingClient] = {}
        self._call: _ReplayedCall | None = None
        self._answers: dict[int | None, Finding] = {}

    def of(self, call: _ReplayedCall) -> Callable[[Sequence[RuleTerms]], Mapping[int | None, Finding]]:
        """Return a function that judges this call, each rule once; calls come in the order in which they were made."""
        if call is not self._call:
            self._call, self._answers = call, {}
            while self._running and self._running[0][0] <= call.row["created_at"]:
                ended_at, _, kinds = heappop(self._running)
                self._ended |= dict.fromkeys(kinds, ended_at)
            self._begin(call)
        return partial(self._judge_call, call)

    def _judge_call(self, call: _ReplayedCall, rules: Sequence[RuleTerms]) -> Mapping[int | None, Finding]:
        for rule in rules:
            if rule.revision_id not in self._answers:
                self._answers[rule.revision_id] = self._finding(call, rule)
        return self._answers

    def _finding(self, call: _ReplayedCall, rule: RuleTerms) -> Finding:
        at, seen, recent = call.row["created_at"], rule.seen, rule.recent
        if seen is not None:
            earliest = at - timedelta(seconds=seen.within)
            ends = (self._ended.get((scope, seen.kind, seen.name)) for scope in self._scopes(call, asks=True))
            if not any(end is not None and end > earliest for end in ends):
                return Finding(rule.revision_id, fits=False)
        if recent is None:
            return Finding(rule.revision_id, fits=True)
        # All connections of a client have the same texts, in another order.
        text = min(count_texts(recent, self._origin(call), lambda: self._client(call)))
        times = self._times[rule.revision_id, text]
        while times and times[0] <= at - timedelta(seconds=recent.seconds):
            times.popleft()
        count = len(times) + 1
        if call.row["started_at"] is not None or call.row["status"] not in TERMINAL:
            times.append(at)
        return Finding(rule.revision_id, count >= recent.count, count)

    def _begin(self, call: _ReplayedCall) -> None:
        row, facts = call.row, call.facts
        ended_at = row["started_at"] if row["client_run__client"] else row["finished_at"]
        if row["started_at"] is None or ended_at is None:
            return
        kinds = [("tool", facts.tool_name), ("source", facts.source or "")]
        kinds += [("category", name) for name in facts.categories]
        found = [(scope, *kind) for scope in self._scopes(call) for kind in kinds]
        heappush(self._running, (ended_at, row["pk"], found))

    def _scopes(self, call: _ReplayedCall, *, asks: bool = False) -> list[str]:
        """Return what a call shares with others: token, session and plan; and the person, if it has no token."""
        row = call.row
        scopes = [f"plan {row['plan_ref']}"] if row["plan_ref"] else []
        if row["token_id"] is None or not asks:
            scopes.append(f"person {row['requested_by_id']}")
        if row["session"]:
            scopes.append(f"session {row['requested_by_id']} {row['session']}")
        return [*scopes, min(self._client(call).texts)] if row["token_id"] is not None else scopes

    def _origin(self, call: _ReplayedCall) -> CallOrigin:
        row = call.row
        return CallOrigin(
            requested_by=row["requested_by_id"],
            token_id=row["token_id"],
            plan_ref=row["plan_ref"],
            tool_name=row["tool_name"],
            forms=call.facts.argument_forms,
        )

    def _client(self, call: _ReplayedCall) -> CallingClient:
        key = call.row["requested_by_id"], call.row["token_id"]
        if key not in self._clients:
            self._clients[key] = calling_client(self._origin(call))
        return self._clients[key]


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
