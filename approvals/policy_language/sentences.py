"""What a policy's terms mean, as one sentence in plain words: which calls, and what becomes of them."""

from collections.abc import Iterator
from typing import Any, Protocol

from django.conf import settings

from approvals.policy_language.conditions import compile_conditions
from approvals.policy_language.stages import people_in_words, stages_of
from catalog.ui.labels import format_timespan

MAX_MESSAGE_SHOWN = 120


class PolicyTerms(Protocol):
    """The terms of a policy, as a revision stores them."""

    tool: Any
    category: Any
    safety_level: Any
    source: Any
    requester: Any
    plan: Any
    conditions: Any
    hours: Any
    effect: Any
    message: Any
    stages: Any
    expires_seconds: Any
    on_expiry: Any
    escalate_to: Any


def policy_sentence(terms: PolicyTerms) -> str:
    """Return the terms as one sentence."""
    said = {"allow": _allow_sentence, "hold": _hold_sentence, "deny": _deny_sentence}[terms.effect](terms)
    return f"{calls_in_words(terms)} {said}" + ("" if said.endswith(".”") else ".")


def calls_in_words(terms: PolicyTerms) -> str:
    """Say which calls the terms are about."""
    lead = f"{terms.safety_level.capitalize()} calls" if terms.safety_level else "Calls"
    parts = list(_match_phrases(terms))
    return " ".join([lead, *parts]) if parts or terms.safety_level else "All calls"


def _match_phrases(terms: PolicyTerms) -> Iterator[str]:
    if terms.tool:
        yield f"of {terms.tool}"
    if terms.category:
        yield f"in the category {terms.category}"
    if terms.source:
        yield f"from the source {terms.source}"
    if terms.requester:
        yield f"asked for by {requester_in_words(terms.requester)}"
    if terms.plan:
        yield f"in the plan {terms.plan}"
    if terms.hours:
        yield f"during {terms.hours}{'' if terms.hours.count(' ') > 1 else ' UTC'}"
    if terms.conditions:
        yield f"where {compile_conditions(terms.conditions).sentence}"


def requester_in_words(requester: str) -> str:
    """Say whom a rule's requester stands for."""
    group = requester.removeprefix("group:")
    return f"a member of {group}" if group != requester else requester


def _allow_sentence(terms: PolicyTerms) -> str:
    if terms.safety_level == "dangerous":
        return "are left to the next rules: no policy lets dangerous calls run without people"
    return "run by themselves" + ("" if terms.safety_level else ", but for dangerous ones")


def _deny_sentence(terms: PolicyTerms) -> str:
    message = terms.message.strip()
    if not message:
        return "are refused"
    shown = (
        message if len(message) <= MAX_MESSAGE_SHOWN else f"{message[:MAX_MESSAGE_SHOWN]}… ({len(message)} characters)"
    )
    return f"are refused: “{shown}”"


def _hold_sentence(terms: PolicyTerms) -> str:
    people = people_in_words(stages_of(terms.stages))
    seconds = terms.expires_seconds or settings.TOOLGATE_APPROVAL_TTL_SECONDS
    return f"wait for {people}, {format_timespan(seconds)} at most{_expiry_sentence(terms)}"


def _expiry_sentence(terms: PolicyTerms) -> str:
    """Say what happens when nobody answers, where it is not that the step fails."""
    if terms.on_expiry == "escalate" and terms.escalate_to:
        return f", then also for {terms.escalate_to}"
    return {"skip": ", then the step is skipped", "cancel_plan": ", then the plan is cancelled"}.get(
        terms.on_expiry, ""
    )


def expiry_consequence(on_expiry: str, escalate_to: str) -> str:
    """Say what becomes of a call when the time to answer is over."""
    if on_expiry == "escalate" and escalate_to:
        return f"then {escalate_to} may answer, too"
    return {"skip": "then its step is skipped", "cancel_plan": "then its plan is cancelled"}.get(
        on_expiry, "then it does not run"
    )


def extra_terms_in_words(terms: Any) -> list[str]:
    """Say what else the terms of a rule that holds ask of people, or let them; nothing of other rules."""
    if terms.effect != "hold":
        return []
    said = [
        (terms.reason_required, "Rejecting needs a reason."),
        (terms.typed_target, "Approving takes typing what the call is about."),
        (
            terms.min_review_seconds,
            f"On pages, it must be shown for {format_timespan(terms.min_review_seconds)} before.",
        ),
        (
            terms.fresh_sign_in_seconds,
            f"On pages, who approves has signed in within {format_timespan(terms.fresh_sign_in_seconds)}.",
        ),
        (
            terms.min_role_age_seconds,
            f"Only who has been in the group for {format_timespan(terms.min_role_age_seconds)} counts.",
        ),
        (terms.allow_self_review, "Who asked may decide it, too; every time, that is said."),
        (not terms.editor_may_approve, "Who changes what is asked does not approve it."),
        (terms.batchable, "Several may be approved at once."),
        (not terms.remind, "Nobody is reminded."),
        (terms.notify, f"{len(terms.notify)} more addresses are told."),
    ]
    return [sentence for holds, sentence in said if holds]
