"""Charts and figures of statistics as numbers and texts."""

from datetime import date, timedelta

from catalog.ui.charts import CHART_HEIGHT, CHART_WIDTH, ChartPart, bar_lengths, day_chart
from catalog.ui.labels import NO_VALUE, format_seconds, format_share, format_timespan

PARTS = [ChartPart("plain", "done"), ChartPart("failed", "failed", is_hatched=True)]


def test_parts_of_a_day_lie_on_each_other():
    values = [(0, 0), (3, 1), (1000, 1000)]
    days = {date(2026, 11, 1) + timedelta(days=number): each for number, each in enumerate(values)}
    chart = day_chart("calls", "Calls", days, PARTS)
    empty, small, large = (column.segments for column in chart.columns)
    assert not empty
    assert [each.height for each in small] == [2, 2]  # a bar that can be seen
    assert [(each.part.look, each.top, each.height) for each in large] == [("plain", 46, 44), ("failed", 2, 44)]
    assert all(0 <= column.x < column.x + column.width <= CHART_WIDTH for column in chart.columns)
    assert all(0 <= each.top < CHART_HEIGHT for column in chart.columns for each in column.segments)
    assert not chart.is_empty
    assert day_chart("none", "None", {date(2026, 11, 1): (0, 0)}, PARTS).is_empty


def test_bars_of_rows_have_one_scale():
    assert bar_lengths([4, 1, 0]) == [160, 40, 0]
    assert bar_lengths([0]) == [0]


def test_figures_in_words():
    shares = (None, 0.0, 0.001, 0.5, 0.999, 1.0)
    assert [format_share(share) for share in shares] == [NO_VALUE, "0 %", "1 %", "50 %", "99 %", "100 %"]
    assert [format_seconds(seconds) for seconds in (None, 12, 249)] == [NO_VALUE, "12 s", "4 min 09 s"]
    assert [format_timespan(seconds) for seconds in (90, 900, 86_400, 172_800)] == ["90 s", "15 min", "24 h", "2 days"]
