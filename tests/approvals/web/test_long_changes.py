"""Changes that are too long to be shown in full."""

import pytest

from catalog.text.diff import MAX_DIFF_ROWS
from tests.builders import make_plan, request_of, work_off, write_step
from tests.pages import Pages

pytestmark = pytest.mark.django_db
LINES = 80_000
API = 'href="/api/v1/approvals/'


def test_very_long_change_is_shown_in_part(catalog, workspace, ada, rosa):
    plan = work_off(make_plan(ada, write_step(1, content="x\n" * LINES)))
    page = Pages(rosa).client.get(f"/approvals/?item={request_of(plan).public_id}").content.decode()

    assert page.count('class="add"') == MAX_DIFF_ROWS
    assert f"{LINES - MAX_DIFF_ROWS} lines, 148 KB" in page
    assert API in page  # where both sides can be read
    assert "x\\n" * LINES in page  # the raw JSON


def test_short_change_has_no_notice(catalog, workspace, ada, rosa):
    plan = work_off(make_plan(ada, write_step(1, content="x\n" * 10)))
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request_of(plan).public_id}")

    assert pages.html.count('class="add"') == 10
    assert API not in pages.html
