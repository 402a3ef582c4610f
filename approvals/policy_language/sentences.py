"""Sentences that describe the terms of a policy: matching calls and their treatment."""

from typing import Any

from django.conf import settings

from approvals.policy_language.conditions import compile_conditions, condition_sentence
from approvals.policy_language.history import read_recent, read_seen, recent_in_words, seen_in_words
from approvals.policy_language.stages import people_in_words, stages_of
from approvals.policy_language.terms import MATCH, OPTIONS, Kind, requester_in_words
from catalog.ui.labels import format_timespan

MAX_MESSAGE_SHOWN = 120
ON_TRIAL = "On trial: it decides no call, and what it would have done is recorded."


def policy_sentence(terms: Any) -> str:
    """Return the terms, as a revision stores them, as one sentence. Raises LookupError for an unknown effect."""
    calls = calls_in_words(terms)
    if terms.effect == "allow":
        if compile_conditions(terms.conditions).names_commands_exactly:
            return f"{calls} run without approval; dangerous ones only in a client that runs them itself."
        if terms.safety_level == "dangerous":
            return f"{calls} are left to the next policies, since dangerous calls always need approval."
        return f"{calls} run without approval{'' if terms.safety_level else ', except dangerous ones'}."
    if terms.effect == "hold":
        within = format_timespan(terms.expires_seconds or settings.TOOLGATE_APPROVAL_TTL_SECONDS)
        outcomes = {"skip": ", otherwise the step is skipped", "cancel_plan": ", otherwise the plan is cancelled"}
        outcome = outcomes.get(terms.on_expiry, "")
        if terms.on_expiry == "escalate" and terms.escalate_to:
            outcome = f", then also by {terms.escalate_to}"
        return f"{calls} need approval by {people_in_words(stages_of(terms.stages))} within {within}{outcome}."
    if terms.effect != "deny":
        raise LookupError(terms.effect)
    message = terms.message.strip()
    if len(message) > MAX_MESSAGE_SHOWN:
        message = f"{message[:MAX_MESSAGE_SHOWN]}… ({len(message)} characters)"
    blocked = f"{calls} are blocked: “{message}”" if message else f"{calls} are blocked"
    return blocked if blocked.endswith(".”") else f"{blocked}."


def calls_in_words(terms: Any) -> str:
    parts = []
    for term in MATCH:
        value = getattr(terms, term.column)
        if not value or not term.phrase:
            continue
        if term.name == "requester":
            value = requester_in_words(value)
        elif term.name == "hours" and value.count(" ") < 2:
            value = f"{value} UTC"
        elif term.kind is Kind.RECENT and (recent := read_recent(value)):
            value = recent_in_words(recent)
        elif term.kind is Kind.SEEN and (seen := read_seen(value)):
            value = seen_in_words(seen)
        parts.append(term.phrase.format(value))
    if terms.conditions:
        rows, entirely = compile_conditions(terms.conditions).rows, terms.effect == "allow"
        parts.append(f"where {' and '.join(condition_sentence(row, entirely=entirely) for row in rows)}")
    lead = f"{terms.safety_level.capitalize()} calls" if terms.safety_level else "Calls"
    return " ".join([lead, *parts]) if parts or terms.safety_level else "All calls"


def expiry_consequence(on_expiry: str, escalate_to: str) -> str:
    if on_expiry == "escalate" and escalate_to:
        return f"then {escalate_to} can answer too"
    return {"skip": "then its step is skipped", "cancel_plan": "then its plan is cancelled"}.get(
        on_expiry, "then it fails"
    )


def extra_terms_in_words(terms: Any) -> list[str]:
    """Return sentences on the further terms of a rule: its trial, its stop, and the requirements on reviewers."""
    sentences = [ON_TRIAL] if terms.mode == "trial" else []
    if terms.stop_after:
        count = terms.stop_after["count"]
        calls, within = "call" if count == 1 else "calls", format_timespan(terms.stop_after["seconds"])
        lead = "Once it is enforced, more" if terms.mode == "trial" else "More"
        sentences.append(f"{lead} than {count:,} refused {calls} in {within} stop the token.")
    for term in sorted((term for term in OPTIONS if term.extra), key=lambda term: term.place):
        value = getattr(terms, term.name)
        is_choice = term.kind is Kind.CHOICE
        if terms.effect == "hold" and (value if is_choice else bool(value)) != term.usual:
            number = len(value) if term.kind is Kind.ADDRESSES else value
            words = term.choices[value].lower() if is_choice else number
            sentences.append(term.extra.format(format_timespan(value) if term.kind is Kind.SECONDS else words))
    return sentences
