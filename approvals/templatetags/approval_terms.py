"""What the rules in force mean for people who read about a tool. One query; nothing is decided here."""

from django import template

from approvals.policy import Rule, current_rules, judge
from catalog.dispatch import Deny, Hold
from catalog.words import say_span

register = template.Library()
BY_ITSELF = {
    "safe": "It reads only, so every call runs by itself.",
    "cautious": "It changes something, so every call runs by itself and is kept in the audit log.",
}


@register.simple_tag
def level_terms(level: str) -> dict[str, str]:
    """Say what happens to calls of a safety level: `lead` and `rest`."""
    verdict = judge(current_rules(), level)
    if isinstance(verdict, Deny):
        return {"lead": "Every call is refused.", "rest": verdict.message}
    if isinstance(verdict, Hold) and isinstance(verdict.terms, Rule):
        return {"lead": "Every call waits for a person.", "rest": _terms(verdict.terms)}
    return {"lead": "Nobody is asked.", "rest": BY_ITSELF.get(level, "Every call runs by itself.")}


def _terms(rule: Rule) -> str:
    others = "" if rule.allow_self_review else " who did not ask for it"
    return (
        f"{rule.quorum} {' or '.join(rule.groups)}{others}, within {say_span(rule.expires_seconds)}. "
        "If nobody answers, the call does not run and the agent is told so."
    )
