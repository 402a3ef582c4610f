"""What the pages say of tools that are tried: the card on a tool's page, and what would, or did, come of a call."""

import json
from dataclasses import dataclass
from typing import Any

from django import template
from django.contrib.auth.models import User

from approvals.policies.rulebook import Rule
from catalog.dispatch.pipeline import Deny, Hold
from catalog.models import Call, Tool
from catalog.results import Preview
from catalog.ui.labels import format_timespan
from plans.actions.call import Rehearsal
from plans.web.try_tool import new_trial

register = template.Library()
MOST_SHOWN = 20_000


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a response, and the size of all of it in bytes."""

    head: str
    size: int
    is_cut: bool


@register.inclusion_tag("plans/_trying.html", takes_context=True)
def try_it(context: template.Context, tool: Tool, viewer: User) -> dict[str, object]:
    """Draw the card with an empty form."""
    return {"trial": new_trial(tool, viewer), "tool": tool, "csrf_token": context.get("csrf_token")}


@register.filter
def refused(rehearsal: Rehearsal) -> bool:
    """Say whether the gate refuses the call."""
    return isinstance(rehearsal.verdict, Deny)


@register.filter
def held(rehearsal: Rehearsal) -> bool:
    """Say whether the call would wait for people."""
    return isinstance(rehearsal.verdict, Hold)


@register.filter
def becomes(rehearsal: Rehearsal) -> str:
    """Say what would become of the call."""
    verdict = rehearsal.verdict
    if isinstance(verdict, Deny):
        return f"It would be refused: {verdict.message}"
    if isinstance(verdict, Hold):
        rule = verdict.terms
        terms = f" for {rule.quorum} {' or '.join(rule.groups)}, {format_timespan(rule.expires_seconds)} at most"
        return f"It would wait{terms if isinstance(rule, Rule) else ''}."
    return "It would run at once."


@register.filter
def preview_table(shown: Preview) -> dict[str, list[Any]]:
    """Return the rows that a call would affect as columns and cells."""
    columns = list(dict.fromkeys(name for row in shown.rows for name in row))
    return {"columns": columns, "rows": [[row.get(name, "") for name in columns] for row in shown.rows]}


@register.filter
def response_head(call: Call) -> Head:
    """Return the standard response as indented JSON, or the beginning of it."""
    text = json.dumps(call.response_json, indent=2, ensure_ascii=False)
    return Head(text[:MOST_SHOWN], len(text.encode()), len(text) > MOST_SHOWN)
