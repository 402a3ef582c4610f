"""Page of the insights: review statistics over a number of days, with bar lengths for SVG attributes."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from approvals.queue.insights import Age, insights_for
from catalog.ui.charts import stacked_bars
from catalog.ui.labels import format_timespan
from catalog.ui.periods import PERIODS, PeriodForm
from catalog.ui.requests import PageRequest, sign_in_required

AGE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class AgeBar:
    label: str
    count: int
    length: float


def age_bars(ages: Sequence[Age]) -> list[AgeBar]:
    """Return a bar for each age group, youngest first."""
    most = max(1, *(age.count for age in ages), 1)
    bars, since = [], 0
    for age in ages:
        if age.under is None:
            label = _("Over %(time)s") % {"time": format_timespan(since)}
        elif not since:
            label = _("Under %(time)s") % {"time": format_timespan(age.under)}
        else:
            label = _("%(start)s to %(end)s") % {"start": format_timespan(since), "end": format_timespan(age.under)}
        bars.append(AgeBar(label, age.count, round(age.count / most * AGE_WIDTH, 1)))
        since = age.under or 0
    return bars


@require_safe
@sign_in_required
def insights(request: PageRequest) -> HttpResponse:
    form = PeriodForm(request.GET)
    found = insights_for(request.user, form.chosen_days)
    shown = {
        "form": form,
        "found": found,
        "bars": stacked_bars([(day.approved, day.others) for day in found.per_day]),
        "ages": age_bars(found.ages),
        "choices": PERIODS,
    }
    return render(request, "approvals/insights.html", {"section": "insights", **shown})
