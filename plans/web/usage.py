"""Page of usage and cost: calls, decisions, waits, tokens and dollars over a number of days, as charts and tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from approvals.queue.insights import MAX_DECISIONS_TIMED
from catalog.text.formats import format_date, format_number
from catalog.text.spreadsheets import csv_text
from catalog.ui.charts import ChartPart, DayChart, FigureRow, FigureTable, bar_lengths, day_chart
from catalog.ui.labels import format_seconds
from catalog.ui.periods import PERIODS, PeriodForm
from catalog.ui.requests import PageRequest, sign_in_required
from plans.store.usage import MAX_CALLS_COUNTED, MAX_MODEL_USES_COUNTED, UsageLine, UsageReport, usage_report

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

PLAIN = ChartPart("plain", gettext_lazy("others"))
FAILED = ChartPart("failed", gettext_lazy("failed or unknown"), is_hatched=True)


@dataclass(frozen=True, slots=True)
class UsageColumn:
    """A column of numbers: its heading, its name in a CSV, the text of a cell and the value in a CSV."""

    label: "StrOrPromise"
    csv_name: str
    value: Callable[[UsageLine], float | None]
    text: Callable[[UsageLine], str]


def _counted(label: "StrOrPromise", name: str) -> UsageColumn:
    def value(line: UsageLine) -> float:
        number: int = getattr(line, name)
        return number

    return UsageColumn(label, name, value, lambda line: format_number(value(line)))


CALLS, FAILURES = _counted(gettext_lazy("Calls"), "calls"), _counted(gettext_lazy("Failed or unknown"), "failed")
REQUESTS, RUNS = _counted(gettext_lazy("Model requests"), "requests"), _counted(gettext_lazy("Runs"), "requests")
TOKENS = _counted(gettext_lazy("Tokens"), "tokens")
COST = UsageColumn(
    gettext_lazy("US dollars"), "cost_usd", lambda line: float(line.cost), lambda line: format_number(line.cost, 4)
)
DECIDED, APPROVED = _counted(gettext_lazy("Decided"), "decided"), _counted(gettext_lazy("Approved"), "approved")
WAIT = UsageColumn(
    gettext_lazy("Median wait"),
    "median_wait_seconds",
    lambda line: line.wait,
    lambda line: format_seconds(line.wait),
)
CSV_COLUMNS = (CALLS, FAILURES, REQUESTS, TOKENS, COST, DECIDED, APPROVED, WAIT)
DECISIONS = (DECIDED, APPROVED, WAIT)
MODELS = (REQUESTS, TOKENS, COST)


def usage_tables(report: UsageReport) -> list[FigureTable]:
    """Return the tables that have rows."""
    tables = [
        _table("tools", gettext_lazy("Tools"), gettext_lazy("Tool"), report.tools, (CALLS, FAILURES, *DECISIONS)),
        _table(
            "clients", gettext_lazy("Clients"), gettext_lazy("Token"), report.clients, (CALLS, FAILURES, *DECISIONS)
        ),
        _table(
            "agents",
            gettext_lazy("Agents"),
            gettext_lazy("Agent"),
            report.agents,
            (RUNS, CALLS, *DECISIONS, TOKENS, COST),
        ),
        _table(
            "people",
            gettext_lazy("People"),
            gettext_lazy("Person"),
            report.people,
            (CALLS, FAILURES, *DECISIONS, *MODELS),
        ),
        _table("models", gettext_lazy("Models"), gettext_lazy("Model"), report.models, MODELS),
    ]
    return [table for table in tables if table.rows]


LINES_SHOWN = 50
"""Most lines of a table on the page. Its CSV has all of them."""
PAGES_OF_NAMES = {"tools": "tool", "agents": "agent"}
"""URL names of the pages of the things that a table lists."""


def _table(
    key: str,
    title: "StrOrPromise",
    first: "StrOrPromise",
    lines: Sequence[UsageLine],
    columns: Sequence[UsageColumn],
) -> FigureTable:
    shown = lines[:LINES_SHOWN]
    has_calls = any(line.calls for line in shown)
    lengths = bar_lengths([line.calls if has_calls else line.tokens for line in shown])
    page = PAGES_OF_NAMES.get(key)
    rows = [
        FigureRow(
            line.name or _("Nobody"),
            [column.text(line) for column in columns],
            address=reverse(page, args=[line.name]) if page and line.name else "",
            is_code=key == "tools",
            bar=length,
        )
        for line, length in zip(shown, lengths, strict=True)
    ]
    note = ""
    if len(lines) > len(shown):
        note = _("The %(shown)s most used of %(all)s. The CSV has all.") % {
            "shown": format_number(len(shown)),
            "all": format_number(len(lines)),
        }
    return FigureTable(key, title, first, [column.label for column in columns], rows, look="plain", note=note)


def day_charts(report: UsageReport) -> list[DayChart]:
    """Return the charts that have anything to show; that of calls always."""
    lines = {day.day: day.line for day in report.per_day}
    calls = {day: (line.calls - line.failed, line.failed) for day, line in lines.items()}
    most = _("highest day %(most)s") % {"most": format_number(max(line.calls for line in lines.values()))}
    charts = [day_chart("calls", gettext_lazy("Calls"), calls, [PLAIN, FAILED], summary=most)]
    titles = {DECIDED: gettext_lazy("Decisions"), WAIT: gettext_lazy("Median wait for a decision")}
    for column in (DECIDED, WAIT, TOKENS, COST):
        highest = max(lines.values(), key=lambda line: column.value(line) or 0)
        if column.value(highest):
            values = {day: (column.value(line) or 0,) for day, line in lines.items()}
            most = _("highest day %(most)s") % {"most": column.text(highest)}
            title = titles.get(column, column.label)
            charts.append(day_chart(column.csv_name, title, values, [PLAIN], summary=most))
    return charts


def days_table(report: UsageReport) -> FigureTable:
    columns = (CALLS, FAILURES, *DECISIONS, TOKENS, COST)
    rows = [
        FigureRow(format_date(day.day), [column.text(day.line) for column in columns])
        for day in reversed(report.per_day)
    ]
    labels = [column.label for column in columns]
    return FigureTable("days", gettext_lazy("Usage by day"), gettext_lazy("Day"), labels, rows)


def usage_csv(report: UsageReport, key: str) -> str:
    """Return one table of the report as CSV: that of the days unless `key` names another."""
    tables: Mapping[str, Sequence[UsageLine]] = {
        "tools": report.tools,
        "clients": report.clients,
        "people": report.people,
        "agents": report.agents,
        "models": report.models,
    }
    names = [column.csv_name for column in CSV_COLUMNS]
    if key in tables:
        return csv_text([["name", *names], *([line.name, *_numbers(line)] for line in tables[key])])
    return csv_text([["day", *names], *([day.day.isoformat(), *_numbers(day.line)] for day in report.per_day)])


def _numbers(line: UsageLine) -> list[float | None]:
    return [column.value(line) for column in CSV_COLUMNS]


@require_safe
@sign_in_required
def usage(request: PageRequest) -> HttpResponse:
    form = PeriodForm(request.GET)
    report = usage_report(request.user, form.chosen_days)
    if key := request.GET.get("csv"):
        response = HttpResponse(usage_csv(report, key), content_type="text/csv")
        response["Content-Disposition"] = 'attachment; filename="usage.csv"'
        return response
    total = report.total
    shown = {
        "section": "insights",
        "form": form,
        "report": report,
        "most_calls": MAX_CALLS_COUNTED,
        "most_model_uses": MAX_MODEL_USES_COUNTED,
        "most_reviews": MAX_DECISIONS_TIMED,
        "days": report.days,
        "choices": PERIODS,
        "figures": [
            (_("Calls"), CALLS.text(total)),
            (_("Failed or unknown"), FAILURES.text(total)),
            (_("Decisions"), DECIDED.text(total)),
            (_("Model requests"), REQUESTS.text(total)),
            (_("Tokens"), TOKENS.text(total)),
            (_("Cost in US dollars"), format_number(total.cost, 2)),
        ],
        "charts": day_charts(report),
        "by_day_table": days_table(report),
        "tables": usage_tables(report),
    }
    return render(request, "plans/usage.html", shown)
