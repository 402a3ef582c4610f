"""Rules and envelopes: the rule that holds a proposal, and the rules under which an open envelope lets a call start.

`verdict_of` is the verdict of rules on any call. The gate and all that tell what it says or would say ask it.
"""

from collections.abc import Sequence
from datetime import datetime

from approvals.policies.combined_rules import combine
from approvals.policies.rulebook import Rule, Rulebook, TrialVerdict
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE, Item, read_proposal
from catalog.access.limits import refusal_of
from catalog.client_tools.facts import NOT_UNDERSTOOD
from catalog.core import clock
from catalog.core.canonical_json import canonical_text
from catalog.definitions.levels import Reversibility
from catalog.dispatch.pipeline import CallFacts, Deny, GateDecision, Hold
from catalog.errors import ParameterError
from catalog.inventory import snapshot
from catalog.inventory.snapshot import CallableTool

ALLOW, NEVER = "allow", "never"
UNHELD = "These calls run without approval. Leave the item out."


def coverage_objection(rule: Rule, reversibility: str) -> str:
    """Return the reason why no envelope lets a call start that this rule holds; empty if one may.

    `reversibility` is that of the call's tool.
    """
    if rule.envelope == NEVER:
        return f"The policy “{rule.policy}” lets no envelope cover its calls."
    if rule.envelope == ALLOW:
        return ""
    asked = [
        ("cannot be undone", reversibility == Reversibility.IRREVERSIBLE),
        ("need a signature with a passkey", rule.fresh_passkey),
        ("need a minimum time on screen", bool(rule.min_review_seconds)),
        ("need their target typed", rule.typed_target),
        ("need a fresh sign-in", bool(rule.fresh_sign_in_seconds)),
        ("are held because of what came before", rule.looks_back),
    ]
    reason = next((words for words, is_asked in asked if is_asked), "")
    return f"Its calls {reason}, and the policy “{rule.policy}” has no envelope: allow." if reason else ""


def verdict_of(facts: CallFacts, rulebook: Rulebook, at: datetime | None = None) -> GateDecision:
    """Return the verdict of these rules on a call, now or `at`. On a proposal of an envelope, its items decide."""
    own = rulebook.verdict(facts, at)
    return verdict_on_proposal(facts, own, rulebook) if facts.tool_name == PROPOSE_ENVELOPE else own


def trial_verdicts_of(facts: CallFacts, rulebook: Rulebook, at: datetime | None = None) -> list[TrialVerdict]:
    """Return a verdict for each rule on trial that would decide a call, as `Rulebook.trial_verdicts` does.

    A proposal is also decided by rules about the calls inside its items, if it would get another verdict with them.
    """
    deciding = rulebook.trial_verdicts(facts, at)
    if facts.tool_name != PROPOSE_ENVELOPE or not rulebook.trials:
        return deciding
    was, own = verdict_of(facts, rulebook, at), {each.rule.revision_id for each in deciding}
    judged = ((trial.clause.rule, verdict_of(facts, rulebook.with_enforced(trial), at)) for trial in rulebook.trials)
    return [TrialVerdict(rule, would, was) for rule, would in judged if rule.revision_id in own or would != was]


def verdict_on_proposal(facts: CallFacts, own: GateDecision, rulebook: Rulebook) -> GateDecision:
    """Return the verdict on a call that proposes an envelope, whose own verdict by the rules is `own`.

    It is held by the strictest of the rules that calls inside its items may meet, and denied if one of its items would
    let no call start. Calls that run without approval do so outside an envelope too: such an item is refused when it is
    proposed, but by a rule that became looser later only if nothing else is left.
    """
    if isinstance(own, Deny):
        return own
    try:
        proposal = read_proposal(facts.arguments)
    except (ParameterError, LookupError, TypeError, AttributeError) as error:
        message = error.message if isinstance(error, ParameterError) else "Its arguments are not complete yet."
        return Deny(message)
    rules = [own.terms] if isinstance(own, Hold) else []
    unheld: list[str] = []
    known: dict[str, Sequence[Rule] | str] = {}  # many items may differ in their counts alone
    for number, item in enumerate(proposal.items):
        key = canonical_text([item.tool, list(item.conditions)])
        if key not in known:
            known[key] = _rules_for_item(item, facts, rulebook)
        found = known[key]
        if found == UNHELD:
            unheld.append(f"items.{number} ({item.tool}): {found}")
        elif isinstance(found, str):
            return Deny(f"items.{number} ({item.tool}): {found}")
        else:
            rules += found
    if unheld and (not facts.is_asked_again or len(unheld) == len(proposal.items)):
        return Deny(unheld[0])
    return Hold(combine(list({rule.revision_id: rule for rule in rules}.values())))


def _rules_for_item(item: Item, facts: CallFacts, rulebook: Rulebook) -> Sequence[Rule] | str:
    """Return the rules under which an item lets calls start, or the reason why there are none."""
    target = snapshot.callable_tool(item.tool)
    if target is None or item.tool == PROPOSE_ENVELOPE:
        return "An envelope cannot cover calls of this tool. Leave the item out."
    call = _facts_of_item(target, facts)
    refusal = refusal_of(call)
    if refusal is not None:
        return refusal.message
    if not target.enabled or target.held:
        return "This tool is switched off, or its change waits for an administrator. Leave the item out."
    verdicts = rulebook.verdicts_within(call, clock.now(), item.rows)
    held: list[Rule] = [verdict.terms for verdict in verdicts if isinstance(verdict, Hold)]
    reversibility = str(target.tool.reversibility)
    covered = [rule for rule in held if not coverage_objection(rule, reversibility)]
    if covered:
        return covered
    if held:
        return f"{coverage_objection(held[0], reversibility)} Leave the item out: each of these calls waits for people."
    denied = next((verdict.message for verdict in verdicts if isinstance(verdict, Deny)), "")
    return f"A policy blocks these calls: {denied}" if denied else UNHELD


def _facts_of_item(callable_tool: CallableTool, facts: CallFacts) -> CallFacts:
    return CallFacts(
        tool_name=callable_tool.tool.name,
        safety_level=callable_tool.tool.safety_level,
        categories=callable_tool.tool.categories,
        arguments={},
        requested_by=facts.requested_by,
        plan_ref=facts.plan_ref,
        source=callable_tool.source,
        limits=facts.limits,
        find_requesters=facts.find_requesters,
        find_derived=(lambda: NOT_UNDERSTOOD) if callable_tool.tool.runs_in_client else None,
    )
