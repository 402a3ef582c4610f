"""What a policy's terms mean, as one sentence in plain words: which calls, and what becomes of them."""

from collections.abc import Iterator
from typing import Any, Protocol

from django.conf import settings

from approvals.policy_language.conditions import compile_rows
from approvals.policy_language.stages import people_in_words, stages_of
from catalog.ui.labels import say_span

MOST_OF_MESSAGE = 120


class Terms(Protocol):
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


def sentence_of(terms: Terms) -> str:
    """Return the terms as one sentence."""
    said = {"allow": _allowed, "hold": _held, "deny": _refused}[terms.effect](terms)
    return f"{calls_in_words(terms)} {said}" + ("" if said.endswith(".”") else ".")


def calls_in_words(terms: Terms) -> str:
    """Say which calls the terms are about."""
    lead = f"{terms.safety_level.capitalize()} calls" if terms.safety_level else "Calls"
    parts = list(_parts(terms))
    return " ".join([lead, *parts]) if parts or terms.safety_level else "All calls"


def _parts(terms: Terms) -> Iterator[str]:
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
        yield f"where {compile_rows(terms.conditions).sentence}"


def requester_in_words(requester: str) -> str:
    """Say whom a rule's requester stands for."""
    group = requester.removeprefix("group:")
    return f"a member of {group}" if group != requester else requester


def _allowed(terms: Terms) -> str:
    if terms.safety_level == "dangerous":
        return "are left to the next rules: no policy lets dangerous calls run without people"
    return "run by themselves" + ("" if terms.safety_level else ", but for dangerous ones")


def _refused(terms: Terms) -> str:
    message = terms.message.strip()
    if not message:
        return "are refused"
    shown = message if len(message) <= MOST_OF_MESSAGE else f"{message[:MOST_OF_MESSAGE]}… ({len(message)} characters)"
    return f"are refused: “{shown}”"


def _held(terms: Terms) -> str:
    people = people_in_words(stages_of(terms.stages))
    seconds = terms.expires_seconds or settings.TOOLGATE_APPROVAL_TTL_SECONDS
    return f"wait for {people}, {say_span(seconds)} at most{_after(terms)}"


def _after(terms: Terms) -> str:
    """Say what happens when nobody answers, where it is not that the step fails."""
    if terms.on_expiry == "escalate" and terms.escalate_to:
        return f", then also for {terms.escalate_to}"
    return {"skip": ", then the step is skipped", "cancel_plan": ", then the plan is cancelled"}.get(
        terms.on_expiry, ""
    )


def after_expiry(on_expiry: str, escalate_to: str) -> str:
    """Say what becomes of a call when the time to answer is over."""
    if on_expiry == "escalate" and escalate_to:
        return f"then {escalate_to} may answer, too"
    return {"skip": "then its step is skipped", "cancel_plan": "then its plan is cancelled"}.get(
        on_expiry, "then it does not run"
    )


def frictions_of(terms: Any) -> list[str]:
    """Say what else the terms of a rule that holds ask of people, or let them; nothing of other rules."""
    if terms.effect != "hold":
        return []
    said = [
        (terms.reason_required, "Rejecting needs a reason."),
        (terms.typed_target, "Approving takes typing what the call is about."),
        (terms.min_review_seconds, f"On pages, it must be shown for {say_span(terms.min_review_seconds)} before."),
        (
            terms.fresh_sign_in_seconds,
            f"On pages, who approves has signed in within {say_span(terms.fresh_sign_in_seconds)}.",
        ),
        (
            terms.min_role_age_seconds,
            f"Only who has been in the group for {say_span(terms.min_role_age_seconds)} counts.",
        ),
        (terms.allow_self_review, "Who asked may decide it, too; every time, that is said."),
        (not terms.editor_may_approve, "Who changes what is asked does not approve it."),
        (terms.batchable, "Several may be approved at once."),
        (not terms.remind, "Nobody is reminded."),
        (terms.notify, f"{len(terms.notify)} more addresses are told."),
    ]
    return [sentence for holds, sentence in said if holds]
