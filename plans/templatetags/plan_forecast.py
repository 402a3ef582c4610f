"""Tag that shows the forecast of a plan that has not started on its own page."""

from collections.abc import Sequence

from django import template
from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from plans.models import Plan
from plans.states import PlanStatus
from plans.web.compose.forecast import Forecast, forecast_of_plan

register = template.Library()
MOST_LISTED = 12


@register.simple_tag
def forecast_for(plan: Plan, viewer: User) -> Forecast | None:
    """Return the forecast of a plan; None once it has started."""
    return forecast_of_plan(plan, viewer) if plan.status == PlanStatus.PENDING else None


@register.filter
def listed(items: Sequence[object]) -> str:
    """Return numbers or names as text: 1, 2 and 9; many are cut off: 1, 2, 3 and 497 more."""
    shown = [str(item) for item in items[:MOST_LISTED]]
    if len(items) > MOST_LISTED:
        shown.append(_("%(count)s more") % {"count": f"{len(items) - MOST_LISTED:,}"})
    if len(shown) < 2:
        return "".join(shown)
    return _("%(items)s and %(last)s") % {"items": ", ".join(shown[:-1]), "last": shown[-1]}
