"""Template tags of approvals: effect of the policies on a tool, ages of previews, figures of the insights."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext

from approvals.models import ApprovalRequest
from approvals.notifications.messages import KIND_LABELS
from approvals.policies.gate import rules_in_force
from approvals.policies.rulebook import Rule
from approvals.policy_language.envelopes import PROPOSE_ENVELOPE
from approvals.policy_language.stages import Stage, people_in_words
from approvals.requests.queries import current_round
from catalog.client_tools.facts import NOT_UNDERSTOOD
from catalog.definitions.levels import SafetyLevel
from catalog.dispatch.pipeline import CallFacts, Deny, GateDecision, Hold
from catalog.models import Source, Tool, ToolVersion
from catalog.templatetags.toolgate import icon, revealed
from catalog.text.deceptive_text import EncodedRun
from catalog.ui.labels import Badge, format_seconds, format_share, format_timespan

register = template.Library()
EFFECT_BADGES = {
    "hold": Badge(gettext_lazy("Needs approval"), "hand", "human"),
    "deny": Badge(gettext_lazy("Blocks"), "stop", "danger"),
    "allow": Badge(gettext_lazy("Allows"), "ok", "ok"),
}
RUNS_WITHOUT_APPROVAL = {
    "safe": gettext_noop("The tool only reads data, so calls run at once."),
    "cautious": gettext_noop("Calls run at once and are recorded in the audit log."),
}


@register.filter
def notice_kind(kind: str) -> str:
    return _(KIND_LABELS.get(kind, kind))


@register.simple_tag
def policy_effect(effect: str) -> str:
    """Render the effect of a policy as a pill with icon and hue."""
    word = EFFECT_BADGES[effect]
    return format_html('<span class="status {}">{}{}</span>', word.hue, icon(word.icon), word.label)


@register.simple_tag
def tool_terms(tool: Tool, version: ToolVersion) -> dict[str, str]:
    """Return sentences on what happens to a tool's calls: `lead`, `rest`, and `depends` about conditional policies."""
    facts = CallFacts(
        tool_name=tool.name,
        safety_level=SafetyLevel(version.safety_level),
        categories=tuple(category.name for category in tool.categories.all()),
        arguments={},
        source=tool.source.name,
        find_derived=(lambda: NOT_UNDERSTOOD) if tool.source.kind == Source.Kind.CLIENT else None,
    )
    verdicts = rules_in_force().verdicts_for(facts)
    count = len(verdicts.conditional)
    depends = ngettext(
        "%(count)s policy with higher priority may decide otherwise, depending on the arguments.",
        "%(count)s policies with higher priority may decide otherwise, depending on the arguments.",
        count,
    ) % {"count": count}
    found = _verdict_sentences(verdicts.otherwise, version.safety_level)
    if tool.name == PROPOSE_ENVELOPE and not isinstance(verdicts.otherwise, Deny):
        people = _("By the people whom the policies on the calls of its items ask for.")
        found = {"lead": _("Every call needs approval."), "rest": people}
    return found | {"depends": depends if count else ""}


def _verdict_sentences(verdict: GateDecision, level: str) -> dict[str, str]:
    if isinstance(verdict, Deny):
        return {"lead": _("Every call is blocked."), "rest": verdict.message}
    if isinstance(verdict, Hold) and isinstance(verdict.terms, Rule):
        words = {
            "people": people_in_words(verdict.terms.stages),
            "time": format_timespan(verdict.terms.expires_seconds),
        }
        if verdict.terms.allow_self_review:
            sentence = _("By %(people)s within %(time)s.") % words
        else:
            sentence = _("By %(people)s other than the requester, within %(time)s.") % words
        return {
            "lead": _("Every call needs approval."),
            "rest": f"{sentence} {_(EXPIRY_SENTENCES[verdict.terms.on_expiry])}",
        }
    rest = RUNS_WITHOUT_APPROVAL.get(level, gettext_noop("Calls run at once."))
    return {"lead": _("Runs without approval."), "rest": _(rest)}


EXPIRY_SENTENCES = {
    "fail": gettext_noop("If nobody answers, the call fails."),
    "skip": gettext_noop("If nobody answers, the step is skipped."),
    "cancel_plan": gettext_noop("If nobody answers, the plan is cancelled."),
    "escalate": gettext_noop("If nobody answers, others are asked."),
}


register.filter("rounded_percent", format_share)
register.filter("seconds", format_seconds)


@register.filter
def previewed_at(request: ApprovalRequest) -> datetime:
    """Return the time of the preview. The target may have changed since; its state is checked before the start."""
    return current_round(request).created_at


@register.filter
def sentences(stages: Iterable[Stage]) -> str:
    """Return the missing approvals of all stages as one phrase."""
    return ", ".join(stage.sentence for stage in stages)


@register.filter
def call_title(title: tuple[str, str, str]) -> str:
    """Return the title of a call as HTML: text before the target, the target as code, and text after it."""
    before, target, after = title
    code = format_html('<code class="given">{}</code>', revealed(target)) if target else ""
    return format_html("{}{}{}", revealed(before), code, revealed(after))


@register.filter
def with_secrets_marked(pieces: Iterable[tuple[str, str]]) -> str:
    """Return an argument's text with a label in place of each secret. Adds no white space, which would be visible."""
    parts = []
    for text, secret in pieces:
        label = format_html(_("secret {name}"), name=revealed(secret)) if secret else ""
        mark = format_html('<span class="was kept">{}{}</span>', icon("lock", "icon-small"), label) if secret else ""
        parts.append((revealed(text), mark))
    return format_html_join("", "{}{}", parts)


@register.filter
def opaque_notes(runs: Iterable[EncodedRun]) -> str:
    """Return a note for each unreadable part of an argument, with the text decoded from it."""
    labels = []
    for run in runs:
        words: dict[str, Any] = {"count": run.length, "encoding": run.kind}
        if run.kind == "random":
            form = _("Opaque: {count} characters without readable text")
        elif run.decoded:
            form = _("Opaque: {count} characters of {encoding}, decoded: {text}")
            words["text"] = format_html('<span class="verbatim given">{}</span>', revealed(run.decoded))
        else:
            form = _("Opaque: {count} characters of {encoding}, not readable when decoded")
        labels.append((icon("cautious", "icon-small text-warn"), format_html(form, **words)))
    return format_html_join("", '<span class="opaque">{}{}</span>', labels)
