"""Simulator: the verdict of the current rules on a hypothetical call, with the rules tried before. Never writes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Any

from django.contrib.auth.models import User

from approvals.models import Policy, PolicyRevision
from approvals.policies.envelope_rules import trial_verdicts_of, verdict_on_proposal
from approvals.policies.history import CallOrigin, History
from approvals.policies.rulebook import (
    Mismatch,
    TrialVerdict,
    build_rulebook,
    compile_clause,
    default_verdict,
    derived_of,
    enabled_revisions,
    forms_of,
    requesters_named,
    stricter,
)
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.policy_language.stages import Stage
from catalog.access.roles import find_active_user
from catalog.client_tools.facts import DerivedFacts, facts_finder
from catalog.core import clock
from catalog.core.canonical_json import normalize_numbers
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.arguments import CallArguments, prepare_arguments, stored_arguments, validator_of
from catalog.dispatch.pipeline import Allow, CallFacts, Deny, GateDecision, Hold
from catalog.errors import ParameterError, ToolError
from catalog.inventory import snapshot
from catalog.models import Source, Tool
from catalog.rest.problems import first_error_detail, problem_for
from catalog.schemas import ArgumentProblem, raise_for_problems, validate_tool_args

CANNOT_ALLOW_DANGEROUS = Mismatch("effect", "it matches, but policies cannot allow dangerous calls without approval")
EARLIEST, LATEST = 1970, 3000
BEFORE_POLICIES = "A call with these arguments is refused before any policy is evaluated"


class RefusedArguments(ParameterError):
    """The tool refuses the arguments, so no rule is evaluated; `details` has the errors that a call would get."""

    def __init__(self, error: ToolError) -> None:
        problem = problem_for(error)
        errors = list(problem.errors) if problem else []
        errors = errors or [{"path": "", "code": "invalid", "message": error.message}]
        super().__init__(
            f"{BEFORE_POLICIES}: {first_error_detail(errors)}", {"field": errors[0]["path"] or None, "errors": errors}
        )

    def user_message(self) -> str:
        """Return the message, which already names the field."""
        return self.message


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """A rule that was tried, and the reasons why it does not apply; no reasons if this rule decided the call."""

    policy: Policy
    revision: PolicyRevision
    reasons: tuple[Mismatch, ...]


@dataclass(frozen=True, slots=True)
class Simulation:
    """Verdict on a call, the deciding rule (None if no rule matches or several decide), and the rules tried before it.

    `person` and `arguments` are the call's, as the tool would get them.
    `derived` is what rules tell of a call that its client runs. `trials` are the verdicts of rules on trial that would
    decide the call if they were enforced.
    """

    verdict: GateDecision
    decided: RuleTrace | None
    passed: tuple[RuleTrace, ...]
    derived: DerivedFacts | None = None
    trials: tuple[TrialVerdict, ...] = ()
    person: User | None = None
    arguments: CallArguments | None = None

    @property
    def effect(self) -> str:
        return effect_of(self.verdict)

    @property
    def sentence(self) -> str:
        """Sentence of the deciding rule, of several rules together, or of the default verdict."""
        if self.decided is not None:
            return self.decided.revision.sentence
        if isinstance(self.verdict, Deny):
            return self.verdict.message
        if isinstance(self.verdict, Hold):
            return str(self.verdict.terms.sentence)
        return "No policy matches this call: it runs without approval."

    @property
    def stages(self) -> Sequence[Stage]:
        """The people who must approve the call; empty if it is not held."""
        return self.verdict.terms.stages if isinstance(self.verdict, Hold) else ()


def effect_of(verdict: GateDecision) -> str:
    """Return the effect of a verdict: allow, hold or deny."""
    if isinstance(verdict, Allow):
        return "allow"
    return "hold" if isinstance(verdict, Hold) else "deny"


def simulate(
    tool_name: str, arguments: Mapping[str, Any], requester: str = "", at: datetime | None = None, cwd: str = ""
) -> Simulation:
    """Evaluate the current rules on a call made now or `at`, and explain why rules do not apply.

    `cwd` is the working directory of a client that runs the tool itself. For rules that look back, the call is one that
    the requester makes without a token, in no plan; the calls counted are those that are stored.

    Raises ParameterError, and RefusedArguments for arguments that the tool refuses.
    """
    if at is not None and not EARLIEST <= at.year < LATEST:
        raise_for_problems([ArgumentProblem("at", "invalid", f"The year must be {EARLIEST} to {LATEST - 1}.")])
    tools = Tool.objects.select_related("current_version", "source").prefetch_related("categories")
    is_name = "\x00" not in tool_name
    tool = tools.filter(name=tool_name, current_version__isnull=False).first() if is_name else None
    if tool is None or tool.current_version is None:
        raise_for_problems([ArgumentProblem("tool", "unknown", "There is no tool with this name.")])
        raise AssertionError  # unreachable: raise_for_problems has raised
    person = find_active_user(requester) if requester else None
    if requester and person is None:
        raise_for_problems([ArgumentProblem("requester", "unknown", "There is no active user with this name.")])
    prepared = _prepared_arguments(tool, dict(arguments))
    facts = CallFacts(
        tool_name=tool.name,
        safety_level=SafetyLevel(tool.current_version.safety_level),
        categories=tuple(category.name for category in tool.categories.all()),
        arguments=prepared.passed,
        requested_by=person.pk if person else None,
        plan_ref="",
        source=tool.source.name,
        prepared=prepared,
        find_derived=facts_finder(tool.source.name, _client_tool(tool), prepared.passed, cwd),
        find_history=History(
            CallOrigin(requested_by=person.pk if person else None, tool_name=tool.name, forms=prepared.forms),
            at or clock.now(),
        ).answers,
    )
    revisions = enabled_revisions()
    in_force = [revision for revision in revisions if revision.mode == PolicyRevision.Mode.ENFORCE]
    found = replace(simulate_among(facts, in_force, at), person=person, arguments=prepared)
    if len(in_force) == len(revisions):
        return found
    book = build_rulebook(revisions, requesters_named(revisions))
    return replace(found, trials=tuple(trial_verdicts_of(facts, book, at)))


def _client_tool(tool: Tool) -> str:
    """Return the client's own name of a tool that it runs itself; empty for other tools."""
    if tool.source.kind != Source.Kind.CLIENT:
        return ""
    return str((tool.definition or {}).get("upstream") or tool.name)


def simulate_among(facts: CallFacts, revisions: Iterable[PolicyRevision], at: datetime | None = None) -> Simulation:
    """Evaluate these rules on a call, in the order given. The verdict is the same as that of `verdict_of`."""
    revisions, at = list(revisions), at or clock.now()
    people = requesters_named(revisions)
    book = build_rulebook(revisions, people)
    facts = book.verdicts_for(facts).look_back(facts, at)
    forms = forms_of(facts, (clause.match for clause in book.clauses))
    simulations = [_first_match(form, revisions, people, at) for form in forms]
    verdict = reduce(stricter, [each.verdict for each in simulations])
    found = next(each for each in simulations if each.verdict is verdict)
    if facts.tool_name != PROPOSE_ENVELOPE:
        return found
    verdict = verdict_on_proposal(facts, found.verdict, book)
    if verdict is found.verdict:
        return found
    deciding = verdict.terms.revision_id if isinstance(verdict, Hold) else None
    decided = next((RuleTrace(each.policy, each, ()) for each in revisions if each.pk == deciding), None)
    return replace(found, verdict=verdict, decided=decided)


def _first_match(
    facts: CallFacts, revisions: Sequence[PolicyRevision], people: Mapping[str, frozenset[int]], at: datetime
) -> Simulation:
    passed: list[RuleTrace] = []
    for revision in revisions:
        clause = compile_clause(revision, people.get(revision.requester, frozenset()))
        allows = clause.rule.effect == PolicyRevision.Effect.ALLOW
        reasons = clause.match.mismatches(facts, at, entirely=allows)
        verdict = None if reasons else clause.verdict(facts)
        if verdict is not None:
            return Simulation(verdict, RuleTrace(revision.policy, revision, ()), tuple(passed), derived_of(facts))
        if not reasons and allows:
            reasons = [CANNOT_ALLOW_DANGEROUS]
        passed.append(RuleTrace(revision.policy, revision, tuple(reasons)))
    return Simulation(default_verdict(facts.safety_level), None, tuple(passed), derived_of(facts))


def _prepared_arguments(tool: Tool, arguments: dict[str, Any]) -> CallArguments:
    """Return the arguments as the tool would get them. Raises RefusedArguments."""
    loaded = snapshot.callable_tool(tool.name)
    try:
        if loaded is not None:
            return prepare_arguments(loaded.tool, arguments)
        # The tool's code is not loaded in this process, so validate against the stored schema.
        schema = tool.current_version.input_schema if tool.current_version else {}
        return stored_arguments(
            validator_of(schema), dict(normalize_numbers(validate_tool_args(schema, arguments))), None
        )
    except ToolError as error:
        raise RefusedArguments(error) from None
