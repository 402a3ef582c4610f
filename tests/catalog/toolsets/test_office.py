"""Office tools of the demo: what they would send is written to the workspace, and prices change as previewed."""

from pathlib import Path
from typing import Any

import pytest

from catalog.context import progress_listener
from catalog.errors import ToolError
from catalog.testing import invoke, make_context
from catalog.toolsets import office

PRICES = "article,name,category,price\nA-1,Plain,Paper,9.99\nB-1,Bound,Books,20.00\n"


@pytest.fixture(autouse=True)
def root(settings: Any, tmp_path: Path) -> Path:
    settings.TOOLGATE_WORKSPACE = tmp_path
    (tmp_path / "shop").mkdir()
    (tmp_path / office.PRICES_FILE).write_text(PRICES)
    return tmp_path


def test_prices_change_as_previewed(root: Path) -> None:
    arguments = {"category": "Paper", "percent": 5}
    preview = office.update_prices.preview_for(arguments, make_context())
    assert [row["new price"] for row in preview.rows] == ["10.49"]
    assert invoke(office.update_prices, arguments).value == {"changed": 1}
    assert (root / office.PRICES_FILE).read_text() == PRICES.replace("9.99", "10.49")
    with pytest.raises(ToolError, match="The categories are Books, Paper"):
        office.update_prices.preview_for({"category": "Tea", "percent": 5}, make_context())


def test_secret_of_a_webhook_is_not_written(root: Path) -> None:
    arguments = {"service": "labels", "url": "https://labels.example/in", "signing_secret": "whsec_12345678"}
    assert invoke(office.connect_webhook, arguments).success
    assert "whsec" not in (root / office.WEBHOOKS_FILE).read_text()


def test_matching_reports_each_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "SECONDS_PER_STATEMENT", 0.0)
    reports: list[tuple[float, float | None]] = []
    token = progress_listener.set(lambda progress, total: reports.append((progress, total)))
    try:
        found = invoke(office.match_statements, {"day": "2026-11-02", "statements": 40}).value or {}
    finally:
        progress_listener.reset(token)
    assert reports[-1][0] == 40
    assert found["matched"] + len(found["unmatched"]) == 40
