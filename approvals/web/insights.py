"""Page of the insights: review statistics over a number of days, with bar geometry for SVG attributes."""

from collections.abc import Sequence
from dataclasses import dataclass

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from approvals.queue.insights import LEAST_DAYS, MOST_DAYS, USUAL_DAYS, Age, Day, insights_for
from catalog.ui.labels import format_timespan
from catalog.ui.page_forms import PageForm
from catalog.ui.requests import PageRequest, sign_in_required

CHOICES = (7, USUAL_DAYS, MOST_DAYS)
WIDTH, HEIGHT, FLOOR = 600, 90, 2
AGE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class DayBar:
    """Stacked bar of one day: approvals at the bottom, all other answers above them. Lengths are SVG units."""

    day: Day
    x: float
    width: float
    top: float
    height: float
    other_top: float
    other_height: float


@dataclass(frozen=True, slots=True)
class AgeBar:
    label: str
    count: int
    length: float


DAYS_ALLOWED = format_lazy(gettext_lazy("Choose {least} to {most} days."), least=LEAST_DAYS, most=MOST_DAYS)


class InsightsForm(PageForm):
    days = forms.IntegerField(
        required=False,
        min_value=LEAST_DAYS,
        max_value=MOST_DAYS,
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), DAYS_ALLOWED),
    )

    @property
    def chosen_days(self) -> int:
        """The number of days; the default if it is missing or invalid."""
        self.is_valid()
        return self.cleaned_data.get("days") or USUAL_DAYS


def day_bars(days: Sequence[Day]) -> list[DayBar]:
    pitch = WIDTH / max(1, len(days))
    unit = (HEIGHT - FLOOR) / max(1, *(day.approved + day.others for day in days), 1)
    return [
        DayBar(
            day=day,
            x=round((index + 0.1) * pitch, 1),
            width=round(pitch * 0.8, 1),
            top=round(HEIGHT - day.approved * unit, 1),
            height=round(day.approved * unit, 1),
            other_top=round(HEIGHT - (day.approved + day.others) * unit, 1),
            other_height=round(day.others * unit, 1),
        )
        for index, day in enumerate(days)
    ]


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
    form = InsightsForm(request.GET)
    found = insights_for(request.user, form.chosen_days)
    shown = {
        "form": form,
        "found": found,
        "bars": day_bars(found.per_day),
        "ages": age_bars(found.ages),
        "choices": CHOICES,
    }
    return render(request, "approvals/insights.html", {"section": "insights", **shown})
