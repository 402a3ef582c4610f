"""Sentences that describe the terms of a policy: matching calls and their treatment."""

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
    predicate = {"allow": _allow_sentence, "hold": _hold_sentence, "deny": _deny_sentence}[terms.effect](terms)
    return f"{calls_in_words(terms)} {predicate}" + ("" if predicate.endswith(".”") else ".")


def calls_in_words(terms: PolicyTerms) -> str:
    """Return a phrase for the calls that the terms match."""
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
        yield f"requested by {requester_in_words(terms.requester)}"
    if terms.plan:
        yield f"in the plan {terms.plan}"
    if terms.hours:
        yield f"during {terms.hours}{'' if terms.hours.count(' ') > 1 else ' UTC'}"
    if terms.conditions:
        yield f"where {compile_conditions(terms.conditions).sentence}"


def requester_in_words(requester: str) -> str:
    """Return a phrase for the requester term of a rule."""
    group = requester.removeprefix("group:")
    return f"a member of {group}" if group != requester else requester


def _allow_sentence(terms: PolicyTerms) -> str:
    if terms.safety_level == "dangerous":
        return "are left to the next policies, since dangerous calls always need approval"
    return "run without approval" + ("" if terms.safety_level else ", except dangerous ones")


def _deny_sentence(terms: PolicyTerms) -> str:
    message = terms.message.strip()
    if not message:
        return "are refused"
    excerpt = (
        message if len(message) <= MAX_MESSAGE_SHOWN else f"{message[:MAX_MESSAGE_SHOWN]}… ({len(message)} characters)"
    )
    return f"are refused: “{excerpt}”"


def _hold_sentence(terms: PolicyTerms) -> str:
    people = people_in_words(stages_of(terms.stages))
    seconds = terms.expires_seconds or settings.TOOLGATE_APPROVAL_TTL_SECONDS
    return f"need approval by {people} within {format_timespan(seconds)}{_expiry_sentence(terms)}"


def _expiry_sentence(terms: PolicyTerms) -> str:
    """Return the consequence of expiry, unless it is the default that the step fails."""
    if terms.on_expiry == "escalate" and terms.escalate_to:
        return f", then also by {terms.escalate_to}"
    return {"skip": ", otherwise the step is skipped", "cancel_plan": ", otherwise the plan is cancelled"}.get(
        terms.on_expiry, ""
    )


def expiry_consequence(on_expiry: str, escalate_to: str) -> str:
    """Return a phrase for what happens to a call when its request expires."""
    if on_expiry == "escalate" and escalate_to:
        return f"then {escalate_to} can answer too"
    return {"skip": "then its step is skipped", "cancel_plan": "then its plan is cancelled"}.get(
        on_expiry, "then it fails"
    )


def extra_terms_in_words(terms: Any) -> list[str]:
    """Return sentences on the further terms of a rule that holds calls; empty for other rules."""
    if terms.effect != "hold":
        return []
    sentences = [
        (terms.reason_required, "Rejections need a reason."),
        (terms.typed_target, "Reviewers must type the target's name to approve."),
        (
            terms.min_review_seconds,
            f"Reviewers must view the request for {format_timespan(terms.min_review_seconds)} before approving.",
        ),
        (
            terms.fresh_sign_in_seconds,
            f"Reviewers must have signed in within the last {format_timespan(terms.fresh_sign_in_seconds)}.",
        ),
        (
            terms.min_role_age_seconds,
            f"Reviewers must have been in the group for {format_timespan(terms.min_role_age_seconds)}.",
        ),
        (terms.allow_self_review, "Requesters may decide their own requests; this is shown on every request."),
        (not terms.editor_may_approve, "Reviewers who edit the arguments may not approve them."),
        (terms.batchable, "Several requests can be approved together."),
        (not terms.remind, "No reminders are sent."),
        (terms.notify, f"Further addresses notified: {len(terms.notify)}."),
    ]
    return [sentence for holds, sentence in sentences if holds]
