"""Template tags of approvals: what policies mean for a tool, ages of previews, figures of the insights.

Nothing is decided here.
"""

from datetime import datetime

from django import template

from approvals.models import ApprovalRequest
from approvals.notifications.messages import KINDS
from approvals.policies.rulebook import Rule, answers_about
from approvals.policy_language.stages import people_in_words
from approvals.requests.queries import current_round
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts, Deny, Hold, Verdict
from catalog.models import Tool, ToolVersion
from catalog.ui.labels import say_duration, say_span

register = template.Library()
BY_ITSELF = {
    "safe": "It reads only, so every call runs by itself.",
    "cautious": "It changes something, so every call runs by itself and is kept in the audit log.",
}
DEPENDS = "{count} polic{ies} with higher priority may decide otherwise, depending on the arguments."


@register.filter
def notice_kind(kind: str) -> str:
    """Say what a notice is about."""
    return KINDS.get(kind, kind)


@register.simple_tag
def tool_terms(tool: Tool, version: ToolVersion) -> dict[str, str]:
    """Say what happens to calls of a tool: `lead`, `rest`, and in `depends` whether some policies look at the call."""
    facts = CallFacts(
        tool_name=tool.name,
        safety_level=SafetyLevel(version.safety_level),
        categories=tuple(category.name for category in tool.categories.all()),
        arguments={},
        source=tool.source.name,
    )
    answers = answers_about(facts)
    count = len(answers.conditional)
    depends = DEPENDS.format(count=count, ies="y" if count == 1 else "ies") if count else ""
    return _said(answers.otherwise, version.safety_level) | {"depends": depends}


def _said(verdict: Verdict, level: str) -> dict[str, str]:
    if isinstance(verdict, Deny):
        return {"lead": "Every call is refused.", "rest": verdict.message}
    if isinstance(verdict, Hold) and isinstance(verdict.terms, Rule):
        return {"lead": "Every call waits for a person.", "rest": _terms(verdict.terms)}
    return {"lead": "Runs without approval.", "rest": BY_ITSELF.get(level, "Every call runs by itself.")}


def _terms(rule: Rule) -> str:
    others = "" if rule.allow_self_review else " who did not ask for it"
    return (
        f"{people_in_words(rule.stages)}{others}, within {say_span(rule.expires_seconds)}. "
        "If nobody answers, the call does not run and the agent is told so."
    )


NOTHING = "\N{EN DASH}"


@register.filter
def percent(share: float | None) -> str:
    """Say a share: 96 %; an en dash of nothing. All is said only of all, nothing only of nothing."""
    if share is None:
        return NOTHING
    return f"{share if share in (0, 1) else min(0.99, max(0.01, share)):.0%}".replace("%", " %")


@register.filter
def seconds(span: float | None) -> str:
    """Say a span: 12 s, 4 min 09 s; an en dash of nothing."""
    return NOTHING if span is None else say_duration(span * 1000)


@register.filter
def previewed_at(held: ApprovalRequest) -> datetime:
    """Return when the tool said what the call would do: its target may have changed since, and is looked at again."""
    return current_round(held).created_at
