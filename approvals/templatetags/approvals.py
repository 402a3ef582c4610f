"""Template tags of approvals: what policies mean for a tool, ages of previews, figures of the insights.

Nothing is decided here.
"""

from collections.abc import Iterable
from datetime import datetime

from django import template
from django.utils.html import format_html, format_html_join

from approvals.models import ApprovalRequest
from approvals.notifications.messages import KIND_LABELS
from approvals.policies.rulebook import Rule, verdicts_for_tool
from approvals.policy_language.stages import Stage, people_in_words
from approvals.requests.queries import current_round
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts, Deny, GateDecision, Hold
from catalog.models import Tool, ToolVersion
from catalog.templatetags.toolgate import icon, revealed
from catalog.text.safety import EncodedRun
from catalog.ui.labels import format_duration, format_timespan

register = template.Library()
RUNS_WITHOUT_APPROVAL = {
    "safe": "It reads only, so every call runs by itself.",
    "cautious": "It changes something, so every call runs by itself and is kept in the audit log.",
}
CONDITIONAL_POLICIES = "{count} polic{ies} with higher priority may decide otherwise, depending on the arguments."


@register.filter
def notice_kind(kind: str) -> str:
    """Say what a notice is about."""
    return KIND_LABELS.get(kind, kind)


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
    answers = verdicts_for_tool(facts)
    count = len(answers.conditional)
    depends = CONDITIONAL_POLICIES.format(count=count, ies="y" if count == 1 else "ies") if count else ""
    return _verdict_sentences(answers.otherwise, version.safety_level) | {"depends": depends}


def _verdict_sentences(verdict: GateDecision, level: str) -> dict[str, str]:
    if isinstance(verdict, Deny):
        return {"lead": "Every call is refused.", "rest": verdict.message}
    if isinstance(verdict, Hold) and isinstance(verdict.terms, Rule):
        return {"lead": "Every call waits for a person.", "rest": _rule_sentence(verdict.terms)}
    return {"lead": "Runs without approval.", "rest": RUNS_WITHOUT_APPROVAL.get(level, "Every call runs by itself.")}


def _rule_sentence(rule: Rule) -> str:
    others = "" if rule.allow_self_review else " who did not ask for it"
    return (
        f"{people_in_words(rule.stages)}{others}, within {format_timespan(rule.expires_seconds)}. "
        "If nobody answers, the call does not run and the agent is told so."
    )


NO_VALUE = "\N{EN DASH}"


@register.filter
def rounded_percent(share: float | None) -> str:
    """Say a share: 96 %; an en dash of nothing. All is said only of all, nothing only of nothing."""
    if share is None:
        return NO_VALUE
    return f"{share if share in (0, 1) else min(0.99, max(0.01, share)):.0%}".replace("%", " %")


@register.filter
def seconds(span: float | None) -> str:
    """Say a span: 12 s, 4 min 09 s; an en dash of nothing."""
    return NO_VALUE if span is None else format_duration(span * 1000)


@register.filter
def previewed_at(held: ApprovalRequest) -> datetime:
    """Return when the tool said what the call would do: its target may have changed since, and is looked at again."""
    return current_round(held).created_at


@register.filter
def sentences(stages: Iterable[Stage]) -> str:
    """Return what each stage of a rule still needs, in one list."""
    return ", ".join(stage.sentence for stage in stages)


@register.filter
def call_title(title: tuple[str, str, str]) -> str:
    """Return the title of a call: what it does, its target as code, and the rest of the sentence."""
    before, target, after = title
    code = format_html('<code class="given">{}</code>', revealed(target)) if target else ""
    return format_html("{}{}{}", revealed(before), code, revealed(after))


@register.filter
def with_secrets_marked(pieces: Iterable[tuple[str, str]]) -> str:
    """Return the text of an argument with a label in place of each secret; adds no white space, which would show."""
    return format_html_join("", "{}{}", ((revealed(text), _secret_label(secret)) for text, secret in pieces))


def _secret_label(name: str) -> str:
    if not name:
        return ""
    return format_html('<span class="was kept">{}secret {}</span>', icon("lock", "i-s"), revealed(name))


@register.filter
def opaque_notes(runs: Iterable[EncodedRun]) -> str:
    """Return a note for each unreadable part of an argument, with the text decoded from it."""
    return format_html_join("", "{}", ((_opaque_note(run),) for run in runs))


def _opaque_note(run: EncodedRun) -> str:
    kind = "what nobody can read" if run.kind == "random" else run.kind
    decoded = (
        format_html(', which hold the text <span class="verbatim given">{}</span>', revealed(run.decoded))
        if run.decoded
        else "; what is in them cannot be told"
    )
    return format_html(
        '<span class="opaque">{}Opaque: {} characters of {}{}</span>',
        icon("cautious", "i-s t-warn"),
        run.length,
        kind,
        decoded,
    )
