"""Page of the insights: review statistics over a number of days, as charts and tables."""

from collections.abc import Sequence

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from approvals.queue.insights import Age, Decisions, Insights, insights_for
from catalog.text.formats import format_date, format_number
from catalog.ui.charts import ChartPart, DayChart, FigureRow, FigureTable, bar_lengths, day_chart
from catalog.ui.labels import format_seconds, format_share, format_timespan
from catalog.ui.periods import PERIODS, PeriodForm
from catalog.ui.requests import PageRequest, sign_in_required

APPROVED = ChartPart("approved", gettext_lazy("approved"))
OTHERS = ChartPart("others", gettext_lazy("rejected, answered or changes requested"), is_hatched=True)
DECISION_COLUMNS = (
    gettext_lazy("Decided"),
    gettext_lazy("Approved"),
    gettext_lazy("Median"),
    gettext_lazy("95th percentile"),
)


def age_labels(ages: Sequence[Age]) -> list[str]:
    """Return a label for each age group, youngest first."""
    labels, since = [], 0
    for age in ages:
        if age.under is None:
            labels.append(_("Over %(time)s") % {"time": format_timespan(since)})
        elif not since:
            labels.append(_("Under %(time)s") % {"time": format_timespan(age.under)})
        else:
            times = {"start": format_timespan(since), "end": format_timespan(age.under)}
            labels.append(_("%(start)s to %(end)s") % times)
        since = age.under or 0
    return labels


def waiting_table(ages: Sequence[Age]) -> FigureTable:
    lengths = bar_lengths([age.count for age in ages])
    rows = [
        FigureRow(label, [format_number(age.count)], bar=length)
        for label, age, length in zip(age_labels(ages), ages, lengths, strict=True)
    ]
    title = gettext_lazy("Waiting requests by age")
    return FigureTable("waiting", title, gettext_lazy("Age"), [gettext_lazy("Requests")], rows, look="waiting")


def decisions_chart(insights: Insights) -> DayChart:
    days = {day.day: (day.approved, day.others) for day in insights.per_day}
    return day_chart("decisions", gettext_lazy("Decisions by day"), days, [APPROVED, OTHERS])


def decisions_by_day(insights: Insights) -> FigureTable:
    """Return the days with a decision, newest first."""
    rows = [
        FigureRow(format_date(day.day), [format_number(day.approved), format_number(day.others)])
        for day in reversed(insights.per_day)
        if day.approved or day.others
    ]
    columns = [gettext_lazy("Approved"), gettext_lazy("Other decisions")]
    return FigureTable("days", gettext_lazy("Decisions by day"), gettext_lazy("Day"), columns, rows)


def reviewers_table(insights: Insights) -> FigureTable:
    rows = [
        FigureRow(
            line.name,
            [*_decision_cells(line.reviews), format_share(line.share)],
            remark=_("Faster than requests can be read") if line.is_reflex else "",
        )
        for line in insights.reviewers
    ]
    columns = [gettext_lazy("Reviews"), *DECISION_COLUMNS[1:], gettext_lazy("Share")]
    note = gettext_lazy("Time counts from the request or the reviewer's previous decision, whichever is later.")
    return FigureTable("reviewers", gettext_lazy("Reviewers"), gettext_lazy("Person"), columns, rows, note=note)


def tools_table(insights: Insights) -> FigureTable:
    rows = [
        FigureRow(
            line.tool,
            [*_decision_cells(line.decisions), format_number(line.waiting)],
            address=reverse("tool", args=[line.tool]),
            is_code=True,
        )
        for line in insights.tools
    ]
    columns = [*DECISION_COLUMNS, gettext_lazy("Waiting")]
    note = gettext_lazy("most requested first")
    return FigureTable("tools", gettext_lazy("Tools"), gettext_lazy("Tool"), columns, rows, note=note)


def _decision_cells(decisions: Decisions) -> list[str]:
    spans = decisions.spans
    return [
        format_number(decisions.count),
        format_share(decisions.approve_rate),
        format_seconds(spans.median),
        format_seconds(spans.p95),
    ]


@require_safe
@sign_in_required
def insights(request: PageRequest) -> HttpResponse:
    form = PeriodForm(request.GET)
    found = insights_for(request.user, form.chosen_days)
    decided, approved, median, p95 = _decision_cells(found.decisions)
    shown = {
        "form": form,
        "found": found,
        "days": found.days,
        "choices": PERIODS,
        "figures": [
            (_("Decided"), decided),
            (_("Approved"), approved),
            (_("Median"), median),
            (_("95th percentile"), p95),
            (_("Expired"), format_number(found.ended["expired"])),
            (_("Withdrawn"), format_number(found.ended["withdrawn"])),
        ],
        "chart": decisions_chart(found),
        "by_day": decisions_by_day(found),
        "waiting": waiting_table(found.ages),
        "reviewers": reviewers_table(found),
        "tools": tools_table(found),
    }
    return render(request, "approvals/insights.html", {"section": "insights", **shown})
