"""Tags for trying tools: the card on a tool's page, and the expected or actual result of a call."""

from typing import Any

from django import template
from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from approvals.policies.rulebook import Rule
from catalog.dispatch.pipeline import Deny, Hold
from catalog.models import Tool
from catalog.results import Preview
from catalog.ui.labels import format_timespan
from catalog.ui.results import shown_result
from plans.actions.call import Rehearsal
from plans.web.try_tool import new_trial

register = template.Library()


@register.inclusion_tag("plans/_trying.html", takes_context=True)
def try_it(context: template.Context, tool: Tool, viewer: User) -> dict[str, object]:
    return {"trial": new_trial(tool, viewer), "tool": tool, "csrf_token": context.get("csrf_token")}


@register.filter
def refused(rehearsal: Rehearsal) -> bool:
    return isinstance(rehearsal.verdict, Deny)


@register.filter
def held(rehearsal: Rehearsal) -> bool:
    return isinstance(rehearsal.verdict, Hold)


@register.filter
def becomes(rehearsal: Rehearsal) -> str:
    """Return a sentence that says what would happen to the call."""
    verdict = rehearsal.verdict
    if isinstance(verdict, Deny):
        return _("It would be refused: %(reason)s") % {"reason": verdict.message}
    if isinstance(verdict, Hold):
        if not isinstance(verdict.terms, Rule):
            return _("It would wait for approval.")
        return _("It would wait for approval by %(count)s %(groups)s, for at most %(time)s.") % {
            "count": verdict.terms.quorum,
            "groups": _(" or ").join(verdict.terms.groups),
            "time": format_timespan(verdict.terms.expires_seconds),
        }
    return _("It would run immediately.")


@register.filter
def preview_table(preview: Preview) -> dict[str, list[Any]]:
    """Return the rows that a call would affect, as columns and cells."""
    columns = list(dict.fromkeys(name for row in preview.rows for name in row))
    return {"columns": columns, "rows": [[row.get(name, "") for name in columns] for row in preview.rows]}


register.filter(shown_result)
