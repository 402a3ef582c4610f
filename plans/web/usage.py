"""Page of usage and cost: calls, waits, tokens and dollars over a number of days, as charts, tables and CSV."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from catalog.text.spreadsheets import csv_text
from catalog.ui.charts import StackedBar, stacked_bars
from catalog.ui.labels import format_duration
from catalog.ui.periods import PERIODS, PeriodForm
from catalog.ui.requests import PageRequest, sign_in_required
from plans.store.usage import UsageLine, UsageReport, usage_report

CSV_HEAD = ("name", "calls", "failed", "requests", "tokens", "cost_usd")
DAYS_CSV_HEAD = ("day", *CSV_HEAD[1:], "median_wait_seconds")
BAR_WIDTH = 160


@dataclass(frozen=True, slots=True)
class UsageTable:
    """One table of the page. `key` is its name in the URL of its CSV; `bars` are lengths in SVG units."""

    key: str
    title: str | Promise
    first: str | Promise
    requests: str | Promise
    rows: Sequence[tuple[UsageLine, float]]
    has_calls: bool = True
    has_models: bool = True


@dataclass(frozen=True, slots=True)
class DayChart:
    """A chart of the days; `most` is the value of its highest bar, for people."""

    title: str | Promise
    most: str
    bars: Sequence[StackedBar]
    has_two_parts: bool = False


def usage_tables(report: UsageReport) -> list[UsageTable]:
    requests, runs = gettext_lazy("Model requests"), gettext_lazy("Runs")
    return [
        UsageTable(
            "tools", gettext_lazy("Tools"), gettext_lazy("Tool"), requests, _rows(report.tools), has_models=False
        ),
        UsageTable("people", gettext_lazy("People"), gettext_lazy("Person"), requests, _rows(report.people)),
        UsageTable("agents", gettext_lazy("Agents"), gettext_lazy("Agent"), runs, _rows(report.agents)),
        UsageTable(
            "models", gettext_lazy("Models"), gettext_lazy("Model"), requests, _rows(report.models), has_calls=False
        ),
    ]


def _rows(lines: Sequence[UsageLine]) -> list[tuple[UsageLine, float]]:
    """Return the lines with the length of a bar for their calls, or their tokens if there are no calls."""
    has_calls = any(line.calls for line in lines)
    amounts = [line.calls if has_calls else line.tokens for line in lines]
    most = max(amounts, default=0) or 1
    return [(line, round(amount / most * BAR_WIDTH, 1)) for line, amount in zip(lines, amounts, strict=True)]


def day_charts(report: UsageReport) -> list[DayChart]:
    """Return the charts that have anything to show; that of calls always."""
    lines, waits = [day.line for day in report.per_day], [day.wait or 0 for day in report.per_day]
    charts = [
        DayChart(
            gettext_lazy("Calls"),
            f"{max(line.calls for line in lines):,}",
            stacked_bars([(line.calls - line.failed, line.failed) for line in lines]),
            has_two_parts=True,
        )
    ]
    if any(waits):
        most = format_duration(max(waits) * 1000)
        charts.append(
            DayChart(gettext_lazy("Median wait for a decision"), most, stacked_bars([(wait, 0) for wait in waits]))
        )
    if report.total.requests:
        tokens, costs = [line.tokens for line in lines], [float(line.cost) for line in lines]
        charts += [
            DayChart(gettext_lazy("Tokens"), f"{max(tokens):,}", stacked_bars([(each, 0) for each in tokens])),
            DayChart(gettext_lazy("US dollars"), f"{max(costs):.4f}", stacked_bars([(each, 0) for each in costs])),
        ]
    return charts


def usage_csv(report: UsageReport, key: str) -> str:
    """Return one table of the report as CSV: that of the days unless `key` names another."""
    tables = {"tools": report.tools, "people": report.people, "agents": report.agents, "models": report.models}
    if key in tables:
        return csv_text([CSV_HEAD, *([line.name, *_numbers(line)] for line in tables[key])])
    rows = ([day.day.isoformat(), *_numbers(day.line), day.wait] for day in report.per_day)
    return csv_text([DAYS_CSV_HEAD, *rows])


def _numbers(line: UsageLine) -> tuple[float, ...]:
    return line.calls, line.failed, line.requests, line.tokens, float(line.cost)


@require_safe
@sign_in_required
def usage(request: PageRequest) -> HttpResponse:
    form = PeriodForm(request.GET)
    report = usage_report(request.user, form.chosen_days)
    if key := request.GET.get("csv"):
        response = HttpResponse(usage_csv(report, key), content_type="text/csv")
        response["Content-Disposition"] = 'attachment; filename="usage.csv"'
        return response
    shown = {
        "section": "insights",
        "form": form,
        "report": report,
        "charts": day_charts(report),
        "tables": usage_tables(report),
        "choices": PERIODS,
    }
    return render(request, "plans/usage.html", shown)
