"""Rules: the terms of policies in the form that decides calls, and the choice of the rule that applies to a call.

Rules are tried in order; the first one whose terms all match decides. Policies can only raise protection: no rule lets
a dangerous call run without approval. Reads only the facts of the call, the clock and the policies.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, reduce
from itertools import chain
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F

from approvals.models import ApprovalRequest, PolicyRevision
from approvals.policies.history import Finding, History, kept_history
from approvals.policy_language.conditions import Condition, Predicate, compile_conditions, condition_sentence
from approvals.policy_language.containment import is_within, may_meet
from approvals.policy_language.derived import DERIVED_FACTS
from approvals.policy_language.history import Recent, Seen, read_recent, read_seen
from approvals.policy_language.hours import Hours, read_hours
from approvals.policy_language.stages import Stage, stages_of
from approvals.policy_language.terms import GROUP, OPTIONS, TOOL_TERMS, requester_in_words
from catalog.calls import vault
from catalog.client_tools.facts import DerivedFacts, facts_finder
from catalog.core import clock
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.arguments import CallArguments, stored_arguments, validator_of
from catalog.dispatch.pipeline import Allow, CallFacts, Deny, GateDecision, Hold
from catalog.models import Call, ClientRun, Source
from catalog.ui.labels import format_timespan


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Reason why a policy does not apply to a call: the field that does not match, and a sentence."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """Terms that a call must match; an empty one matches anything. `people` are the users that `requester` names.

    `revision_id` is the key of the revision, under which a call's history has an answer to `recent` and `seen`.
    """

    tool: str
    category: str
    safety_level: str
    source: str
    requester: str
    people: frozenset[int]
    plan: str
    hours: Hours | None
    predicate: Predicate
    recent: Recent | None = None
    seen: Seen | None = None
    revision_id: int | None = None

    @property
    def looks_back(self) -> bool:
        """True if what came before a call determines whether the rule applies."""
        return self.recent is not None or self.seen is not None

    @property
    def depends_on_tool_only(self) -> bool:
        """True if the tool alone determines whether the rule applies."""
        return not (self.requester or self.plan or self.hours or self.predicate.rows or self.looks_back)

    def fits_requesters(self, facts: CallFacts, *, entirely: bool) -> bool:
        """Return True if the requester term matches one of the call's requesters, or all of them if `entirely`."""
        if not self.requester:
            return True
        people = facts.requesters
        return bool(people) and people <= self.people if entirely else not people.isdisjoint(self.people)

    def fits_arguments(self, facts: CallFacts, *, entirely: bool) -> bool:
        """Return True if the conditions hold with or without defaults; if `entirely`, both with and without."""
        derived = None if facts.find_derived is None else facts.find_derived()
        return self.predicate.fits_call(facts.argument_forms, derived, entirely=entirely)

    def fits_tool(self, facts: CallFacts) -> bool:
        values = ((term, getattr(self, term.name)) for term in TOOL_TERMS)
        return all(not value or term.fits(value, facts) for term, value in values)

    def fits_history(self, facts: CallFacts, *, entirely: bool) -> bool:
        """Return True if the terms about what came before match; without an answer, a rule that protects matches."""
        if not self.looks_back:
            return True
        if entirely and self.recent is not None and self.recent.path and self.recent.value_in(facts.arguments) is None:
            return False
        if facts.history is None:
            return not entirely
        finding = facts.history.get(self.revision_id)
        return finding is not None and bool(finding.fits)

    def fits_call(self, facts: CallFacts, at: datetime | None = None, *, entirely: bool) -> bool:
        """Return True if the terms about the call match: requester, plan, time, arguments and what came before.

        A rule that allows must match `entirely`: all requesters, and the arguments both with and without defaults. For
        a rule that holds or denies, one requester and one form of the arguments are enough.
        """
        if not self.fits_otherwise(facts, at, entirely=entirely):
            return False
        return self.fits_history(facts, entirely=entirely)

    def fits_otherwise(self, facts: CallFacts, at: datetime | None = None, *, entirely: bool) -> bool:
        """Return True if all terms about the call match that do not look back."""
        if not self.fits_without_arguments(facts, at, entirely=entirely):
            return False
        return not self.predicate.rows or self.fits_arguments(facts, entirely=entirely)

    def fits_without_arguments(self, facts: CallFacts, at: datetime | None = None, *, entirely: bool) -> bool:
        if self.plan and self.plan != facts.plan_ref:
            return False
        if self.hours is not None and not self.hours.cover(at or clock.now()):
            return False
        return not self.requester or self.fits_requesters(facts, entirely=entirely)

    def mismatches(self, facts: CallFacts, at: datetime, *, entirely: bool) -> list[Mismatch]:
        """Return the reasons why the rule does not apply to this call; empty if it does."""
        values = ((term, getattr(self, term.name)) for term in TOOL_TERMS)
        found = [
            Mismatch(term.name, term.mismatch.format(match=self, facts=facts))
            for term, value in values
            if value and not term.fits(value, facts)
        ]
        if not self.fits_requesters(facts, entirely=entirely):
            found.append(Mismatch("requester", f"the requester is not {requester_in_words(self.requester)}"))
        if self.plan not in ("", facts.plan_ref):
            found.append(Mismatch("plan", "it is for another plan"))
        if self.hours is not None and not self.hours.cover(at):
            found.append(Mismatch("hours", "the time is outside of its hours"))
        row = self.predicate.unfit(facts.argument_forms, derived_of(facts), entirely=entirely)
        if row is not None:
            derived = derived_of(facts)
            is_unclear = entirely and derived is not None and not derived.understood and row.path in DERIVED_FACTS
            why = ", since not every part of the call is understood" if is_unclear else ""
            found.append(
                Mismatch("arguments", f"a condition does not hold: {condition_sentence(row, entirely=entirely)}{why}")
            )
        if not found and not self.fits_history(facts, entirely=entirely):
            found.append(self._history_mismatch((facts.history or {}).get(self.revision_id)))
        return found

    def _history_mismatch(self, finding: Finding | None) -> Mismatch:
        if self.recent is None or finding is None or finding.count is None:
            words = self.seen.words if self.seen is not None else "of this kind"
            return Mismatch("seen" if self.seen is not None else "recent", f"no call {words} ended in the time before")
        words = f"{self.recent.by_words} within {format_timespan(self.recent.seconds)}"
        return Mismatch(
            "recent", f"it is number {finding.count:,} {words}, and the policy begins at {self.recent.count:,}"
        )


def derived_of(facts: CallFacts) -> DerivedFacts | None:
    """Return what a call does that its client runs; None for other calls."""
    return facts.find_derived() if facts.find_derived is not None else None


def compile_match(revision: PolicyRevision, people: frozenset[int] = frozenset()) -> Match:
    """Return the match terms of a revision. Raises ValueError for invalid hours."""
    return Match(
        **{name: getattr(revision, name) for name in (*(term.name for term in TOOL_TERMS), "requester", "plan")},
        people=people,
        hours=read_hours(revision.hours) if revision.hours else None,
        predicate=compile_conditions(revision.conditions),
        recent=read_recent(revision.recent),
        seen=read_seen(revision.seen),
        revision_id=revision.pk,
    )


def call_facts(call: Call, arguments: CallArguments | None = None, *, history: History | None = None) -> CallFacts:
    """Return the facts of a stored call for the gate, optionally with other arguments.

    Without a `history`, rules that look back and have not judged the call yet get the answer of the moment.
    """
    version, tool = call.version, call.version.tool
    if arguments is None:
        values = vault.load_available(call.arguments, call.plan_ref)
        arguments = stored_arguments(validator_of(version.input_schema), values, call.defaults)
    return CallFacts(
        tool_name=call.tool_name,
        safety_level=SafetyLevel(version.safety_level),
        categories=tuple(tool.categories.values_list("name", flat=True)),
        arguments=arguments.passed,
        requested_by=call.requested_by_id,
        plan_ref=call.plan_ref,
        source=tool.source.name,
        limits=call.token.limits if call.token is not None else None,
        prepared=arguments,
        find_requesters=cache(lambda: {each.user_id for each in call.requesters.all()}),
        find_derived=_derived_of_stored(call, arguments.passed),
        find_history=(history or kept_history(call, arguments, now=clock.now())).answers,
        is_asked_again=True,
    )


def _derived_of_stored(call: Call, arguments: Mapping[str, Any]) -> Callable[[], DerivedFacts] | None:
    if call.version.tool.source.kind != Source.Kind.CLIENT:
        return None
    run = ClientRun.objects.filter(call=call).values_list("client_tool", "cwd").first()
    client_tool, cwd = run or (call.tool_name, "")
    return facts_finder(call.version.tool.source.name, client_tool, arguments, cwd)


Effect = PolicyRevision.Effect
MAX_CACHED_TOOLS = 2000
NO_REVIEWERS = "The policy “{policy}” has no approvers. An administrator must fix it."
NO_HOLDING_POLICY = (
    "Dangerous calls are blocked because no policy defines who approves them. "
    "An administrator must enable a policy that holds dangerous calls."
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Terms of one revision of a policy. A request refers to the revision that caused it."""

    revision_id: int
    policy: str
    number: int
    safety_level: str
    effect: str
    sentence: str
    stages: tuple[Stage, ...] = ()
    expires_seconds: int = 0
    allow_self_review: bool = False
    editor_may_approve: bool = False
    reason_required: bool = False
    min_role_age_seconds: int = 0
    message: str = ""
    on_expiry: str = "fail"
    escalate_to: str = ""
    remind: bool = True
    batchable: bool = False
    min_review_seconds: int = 0
    typed_target: bool = False
    fresh_passkey: bool = False
    envelope: str = "default"
    fresh_sign_in_seconds: int = 0
    escalated_to: str = ""
    stop_after: Mapping[str, int] | None = field(default=None, compare=False)
    notify: Sequence[Mapping[str, str]] = field(default=(), hash=False)
    """Addresses as they are stored with a revision."""
    looks_back: bool = False
    """True if the rule matches by what came before a call."""

    @property
    def quorum(self) -> int:
        """Number of distinct people who must approve."""
        return sum(stage.count for stage in self.stages)

    @property
    def groups(self) -> tuple[str, ...]:
        groups = [stage.group for stage in self.stages]
        return tuple(dict.fromkeys([*groups, self.escalated_to] if self.escalated_to else groups))

    def without_role_age(self) -> "Rule":
        return replace(self, min_role_age_seconds=0)


def rule_from_revision(revision: PolicyRevision) -> Rule:
    """Return the rule of a revision whose policy is loaded."""
    terms = {term.name: getattr(revision, term.name) for term in OPTIONS if term.name in Rule.__dataclass_fields__}
    terms["stages"] = stages_of(revision.stages)
    terms["expires_seconds"] = revision.expires_seconds or settings.TOOLGATE_APPROVAL_TTL_SECONDS
    terms["reason_required"] = bool(revision.reason_required)
    return Rule(
        revision_id=revision.pk,
        policy=revision.policy.name,
        number=revision.number,
        safety_level=revision.safety_level,
        sentence=revision.sentence,
        looks_back=revision.looks_back,
        **terms,
    )


def rule_for(request: ApprovalRequest) -> Rule:
    """Return the rule that holds a request; if the request was escalated, with the added group."""
    return replace(rule_from_revision(request.policy_revision), escalated_to=request.escalated_to)


@dataclass(frozen=True, slots=True)
class Clause:
    rule: Rule
    match: Match

    def applies(self, facts: CallFacts, at: datetime) -> bool:
        """Return True if the rule decides this call, made at this time, when no earlier rule does."""
        allows = self.rule.effect == Effect.ALLOW
        is_matched = self.match.fits_tool(facts) and self.match.fits_call(facts, at, entirely=allows)
        return is_matched and self.verdict(facts) is not None

    def verdict(self, facts: CallFacts) -> GateDecision | None:
        """Return the rule's verdict on calls of this tool; None if it would allow a dangerous call, which it cannot.

        A tool that its client runs is dangerous because nothing is known about it. A rule that names what commands do,
        or whole commands, may allow those of its calls that fit entirely.
        """
        rule, level = self.rule, facts.safety_level
        if rule.effect == Effect.ALLOW:
            may_allow = level != SafetyLevel.DANGEROUS or (
                facts.runs_in_client and self.match.predicate.names_commands_exactly
            )
            return Allow(rule) if may_allow else None
        if rule.effect == Effect.DENY:
            message = rule.message or f"The policy “{rule.policy}” blocks {level} calls."
            return Deny(message, rule.policy, rule.sentence, terms=rule)
        if rule.quorum < 1:
            return Deny(NO_REVIEWERS.format(policy=rule.policy), rule.policy, rule.sentence, terms=rule)
        return Hold(rule)


@dataclass(frozen=True, slots=True)
class ToolVerdicts:
    """Verdicts of the rules on a tool: `conditional` in order, then `otherwise` if no condition matches.

    `looking_back` are the rules that look back, at whatever place, with True for one that allows.
    """

    conditional: tuple[tuple[Match, GateDecision], ...]
    otherwise: GateDecision
    looking_back: tuple[tuple[Match, bool], ...] = ()

    def look_back(self, facts: CallFacts, at: datetime | None) -> CallFacts:
        """Return the facts with what came before the call, for those rules that match it otherwise."""
        if not self.looking_back or facts.find_history is None:
            return facts
        forms = forms_of(facts, (match for match, _ in self.looking_back))
        asking = [
            match
            for match, allows in self.looking_back
            if any(match.fits_otherwise(form, at, entirely=allows) for form in forms)
        ]
        return replace(facts, history=facts.find_history(asking) if asking else {})

    def first(self, facts: CallFacts, at: datetime | None) -> GateDecision:
        """Return the verdict of the first matching rule."""
        at = at or clock.now()
        for match, verdict in self.conditional:
            if match.fits_call(facts, at, entirely=isinstance(verdict, Allow)):
                return verdict
        return self.otherwise


@dataclass(frozen=True, slots=True)
class RuleOnTrial:
    """A rule on trial; `place` is the number of rules in force that are tried before it."""

    clause: Clause
    place: int


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """The verdict that a rule on trial would have given on a call, and the one that the rules in force give."""

    rule: Rule
    would: GateDecision
    was: GateDecision


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Ordered rules with cached verdicts per tool. Rules on trial decide nothing."""

    clauses: Sequence[Clause] = ()
    trials: Sequence[RuleOnTrial] = ()
    _known: dict[tuple[object, ...], ToolVerdicts] = field(default_factory=dict)
    _places: dict[int, int] = field(default_factory=dict)
    """The number of rules tried before each, by the key of its revision."""

    def __post_init__(self) -> None:
        self._places.update((clause.rule.revision_id, place) for place, clause in enumerate(self.clauses))

    @property
    def looks_back(self) -> bool:
        """True if one of the rules looks back at what came before a call."""
        return any(clause.match.looks_back for clause in (*self.clauses, *(trial.clause for trial in self.trials)))

    def can_look_back(self, facts: CallFacts) -> bool:
        """Return True if rules about this tool look back at what came before its calls."""
        return bool(self._known_verdicts_for(facts).looking_back)

    def verdict(self, facts: CallFacts, at: datetime | None = None) -> GateDecision:
        """Return the verdict of the first matching rule, now or `at`; an unknown safety level counts as dangerous.

        The call is also judged as requested: without defaults, and without editors of the step as requesters. If that
        gives another verdict, the stricter one is returned, so that defaults and editors never weaken protection.
        """
        verdicts = self._known_verdicts_for(facts)
        facts = verdicts.look_back(facts, at)
        if not verdicts.conditional:
            return verdicts.otherwise
        forms = forms_of(facts, (match for match, _ in verdicts.conditional))
        return reduce(stricter, [verdicts.first(form, at) for form in forms])

    def trial_verdicts(self, facts: CallFacts, at: datetime | None = None) -> list[TrialVerdict]:
        """Return a verdict for each rule on trial that would decide this call if it alone were enforced at its place.

        As in `verdict`, the stricter one counts of the call and the call as requested.
        """
        if not self.trials:
            return []
        at = at or clock.now()
        facts = self._known_verdicts_for(facts).look_back(facts, at)
        facts = facts if facts.safety_level in LEVELS else replace(facts, safety_level=SafetyLevel.DANGEROUS)
        trials = (trial.clause.match for trial in self.trials)
        forms = forms_of(facts, chain(trials, (match for match, _ in self._known_verdicts_for(facts).conditional)))
        found: list[TrialVerdict] = []
        decided: list[GateDecision] = []
        for trial in self.trials:
            fitting = [trial.clause.applies(form, at) for form in forms]
            would = trial.clause.verdict(facts) if any(fitting) else None
            if would is None:
                continue
            decided = decided or [self._known_verdicts_for(form).first(form, at) for form in forms]
            # The verdict without a rule comes after all rules.
            places = [
                len(self.clauses) if verdict.terms is None else self._places[verdict.terms.revision_id]
                for verdict in decided
            ]
            verdicts = [
                would if fits and trial.place <= place else verdict
                for fits, place, verdict in zip(fitting, places, decided, strict=True)
            ]
            if reduce(stricter, verdicts) is would:
                found.append(TrialVerdict(trial.clause.rule, would, reduce(stricter, decided)))
        return found

    def with_enforced(self, trial: RuleOnTrial) -> "Rulebook":
        """Return these rules with one of those on trial enforced at its place."""
        return Rulebook([*self.clauses[: trial.place], trial.clause, *self.clauses[trial.place :]])

    def refuses(self, facts: CallFacts) -> bool:
        """Return True if the call is denied now whatever its arguments; those in `facts` are ignored."""
        verdicts = self._known_verdicts_for(facts)
        for match, verdict in verdicts.conditional:
            is_denied = isinstance(verdict, Deny)
            fits = match.fits_without_arguments(facts, entirely=isinstance(verdict, Allow))
            if (match.predicate.rows or match.looks_back) and (is_denied or not fits):
                continue  # other calls of the tool may not match, or the rule is about other calls
            if fits:
                return is_denied
        return isinstance(verdicts.otherwise, Deny)

    def can_require_approval(self, facts: CallFacts, names: Collection[str]) -> bool:
        """Return True if a call of this tool can be held for some values, requester or time.

        `names` are the only arguments that the call can have: a rule about others does not fit.
        """
        verdicts = self._known_verdicts_for(facts)
        return isinstance(verdicts.otherwise, Hold) or any(
            isinstance(verdict, Hold) and match.predicate.needed_names.issubset(names)
            for match, verdict in verdicts.conditional
        )

    def possible_verdicts(
        self, facts: CallFacts, at: datetime, names: Collection[str] | None = None
    ) -> list[GateDecision]:
        """Return the verdicts that calls of this tool by this requester can get now, whatever their arguments.

        The arguments in `facts` are ignored. A rule for one plan counts, since such a call may belong to that plan.
        `names` are the only arguments that these calls can have, if that is known: a rule about others fits none.
        """
        found: list[GateDecision] = []
        verdicts = self.verdicts_for(facts)
        for match, verdict in verdicts.conditional:
            if names is not None and not match.predicate.needed_names.issubset(names):
                continue
            whole = replace(match, plan="")
            if not whole.fits_without_arguments(facts, at, entirely=isinstance(verdict, Allow)):
                continue
            found.append(verdict)
            if not (match.predicate.rows or match.plan or match.looks_back):
                return found
        return [*found, verdicts.otherwise]

    def verdicts_within(self, facts: CallFacts, at: datetime, conditions: Sequence[Condition]) -> list[GateDecision]:
        """Return the verdicts that calls can get whose arguments fit all of these conditions, from now on.

        The arguments in `facts` are ignored. A rule for some hours or one plan counts, since such a call may be made
        then or there. What cannot be proven of a condition is assumed to be possible.
        """
        found: list[GateDecision] = []
        verdicts = self._known_verdicts_for(facts)
        for match, verdict in verdicts.conditional:
            is_allowed = isinstance(verdict, Allow)
            terms = match.predicate.rows
            judged = [row for row in terms if not (facts.runs_in_client and row.path in DERIVED_FACTS)]
            if not (match.fits_requesters(facts, entirely=is_allowed) and may_meet(conditions, judged)):
                continue
            found.append(verdict)
            if (
                not (match.plan or match.hours or match.looks_back)
                and len(judged) == len(terms)
                and is_within(conditions, terms)
            ):
                return found
        return [*found, verdicts.otherwise]

    def _known_verdicts_for(self, facts: CallFacts) -> ToolVerdicts:
        key = (facts.tool_name, facts.safety_level, facts.categories, facts.source, facts.runs_in_client)
        verdicts = self._known.get(key)
        if verdicts is None:
            if len(self._known) >= MAX_CACHED_TOOLS:
                self._known.clear()
            verdicts = self._known[key] = self.verdicts_for(facts)
        return verdicts

    def verdicts_for(self, facts: CallFacts) -> ToolVerdicts:
        """Compute the verdicts of the rules on a tool."""
        known = facts.safety_level in LEVELS
        facts = facts if known else replace(facts, safety_level=SafetyLevel.DANGEROUS)
        conditional: list[tuple[Match, GateDecision]] = []
        looking_back: list[tuple[Match, bool]] = []
        otherwise: GateDecision | None = None
        for clause in self.clauses:
            if otherwise is not None and not clause.match.looks_back:
                continue  # after the rule that decides every call, calls are only counted
            verdict = clause.verdict(facts) if clause.match.fits_tool(facts) else None
            if verdict is None:
                continue
            if clause.match.looks_back:
                looking_back.append((clause.match, isinstance(verdict, Allow)))
            if otherwise is not None:
                continue
            if clause.match.depends_on_tool_only:
                otherwise = verdict
            else:
                conditional.append((clause.match, verdict))
        for trial in self.trials:  # they count calls like the others
            match = trial.clause.match
            verdict = trial.clause.verdict(facts) if match.looks_back and match.fits_tool(facts) else None
            if verdict is not None:
                looking_back.append((match, isinstance(verdict, Allow)))
        otherwise = otherwise or default_verdict(facts.safety_level)
        return ToolVerdicts(tuple(conditional), otherwise, tuple(looking_back))


def forms_of(facts: CallFacts, matches: Iterable[Match]) -> Sequence[CallFacts]:
    """Return the call and, if rules with these terms may judge it otherwise, the call as asked.

    That has no defaults, and not the editors of its step as requesters. The stricter verdict counts.
    """
    has_other_requesters = facts.find_requesters is not None and any(match.requester for match in matches)
    return (facts, facts.as_asked) if has_other_requesters or len(facts.argument_forms) > 1 else (facts,)


def stricter(one: GateDecision, other: GateDecision) -> GateDecision:
    """Return the stricter verdict: deny before hold before allow, and more approvals before fewer; `one` if equal."""

    def strictness(verdict: GateDecision) -> tuple[int, int]:
        if isinstance(verdict, Hold):
            return 1, verdict.terms.quorum
        return (2, 0) if isinstance(verdict, Deny) else (0, 0)

    return max(one, other, key=strictness)


LEVELS = frozenset(SafetyLevel)


def default_verdict(level: str) -> GateDecision:
    """Return the verdict for this safety level if no rule matches."""
    return Deny(NO_HOLDING_POLICY) if level == SafetyLevel.DANGEROUS else Allow()


def enabled_revisions() -> list[PolicyRevision]:
    """Return the current revisions of the enabled policies in order, also those on trial, with one query."""
    current = PolicyRevision.objects.filter(policy__enabled=True, policy__ended_at=None, policy__revision=F("pk"))
    return list(current.select_related("policy").order_by("policy__order", "policy_id"))


def revisions_in_force() -> list[PolicyRevision]:
    """Return the revisions that decide calls, in order, with one query."""
    return [revision for revision in enabled_revisions() if revision.mode == PolicyRevision.Mode.ENFORCE]


def build_rulebook(
    revisions: Iterable[PolicyRevision],
    people: Mapping[str, frozenset[int]],
    *,
    enforced: bool = False,
    known: "KnownClauses | None" = None,
) -> Rulebook:
    """Return these revisions as ordered rules; `people` maps each requester term to the primary keys of its users.

    Those on trial decide nothing, unless all are to be `enforced`. Clauses that are `known` are not compiled again.
    """
    compiled = (known or KnownClauses()).compile_clause
    clauses, trials = list[Clause](), list[RuleOnTrial]()
    for revision in revisions:
        clause = compiled(revision, people.get(revision.requester, frozenset()))
        if revision.mode == PolicyRevision.Mode.TRIAL and not enforced:
            trials.append(RuleOnTrial(clause, len(clauses)))
        else:
            clauses.append(clause)
    return Rulebook(clauses, trials)


def compile_clause(revision: PolicyRevision, people: frozenset[int] = frozenset()) -> Clause:
    """Return the clause of a revision. An invalid revision denies all calls of the tools it names (fail closed)."""
    try:
        return Clause(rule_from_revision(revision), compile_match(revision, people))
    except (ValueError, LookupError, TypeError):
        names: dict[str, Any] = {term.name: getattr(revision, term.name) for term in TOOL_TERMS}
        match = Match(**names, requester="", people=frozenset(), plan="", hours=None, predicate=compile_conditions([]))
        message = f"The policy “{revision.policy.name}” is invalid. An administrator must fix it."
        rule = Rule(
            revision_id=revision.pk,
            policy=revision.policy.name,
            number=revision.number,
            safety_level=revision.safety_level,
            effect=Effect.DENY,
            sentence=message,
            message=message,
        )
        return Clause(rule, match)


@dataclass(frozen=True, slots=True)
class KnownClauses:
    """Clauses of an earlier rulebook, `before`, and those of the one that is being built, by revision."""

    before: Mapping[int, tuple[object, Clause]] = field(default_factory=dict)
    now: dict[int, tuple[object, Clause]] = field(default_factory=dict)

    def compile_clause(self, revision: PolicyRevision, people: frozenset[int]) -> Clause:
        """Return the clause of a revision: the one from before if all that it was compiled from is the same."""
        columns = {name: value for name, value in vars(revision).items() if name != "_state"}
        origin = columns, revision.policy.name, people, settings.TOOLGATE_APPROVAL_TTL_SECONDS
        found = self.before.get(revision.pk)
        clause = found[1] if found is not None and found[0] == origin else compile_clause(revision, people)
        self.now[revision.pk] = origin, clause
        return clause


def requesters_named(revisions: Iterable[PolicyRevision]) -> dict[str, frozenset[int]]:
    """Return the primary keys of the users that each requester term names. Runs no query without such terms."""
    named = {revision.requester for revision in revisions if revision.requester}
    groups = {name.removeprefix(GROUP) for name in named if name.startswith(GROUP)}
    found: dict[str, set[int]] = {name: set() for name in named}
    if named - {f"{GROUP}{group}" for group in groups}:
        for username, pk in User.objects.filter(username__in=named).values_list("username", "pk"):
            found[username].add(pk)
    if groups:
        for group, pk in User.objects.filter(groups__name__in=groups).values_list("groups__name", "pk"):
            found.get(f"{GROUP}{group}", set()).add(pk)
    return {name: frozenset(keys) for name, keys in found.items()}
