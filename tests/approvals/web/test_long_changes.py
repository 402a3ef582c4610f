"""A change too long to be drawn: the page says so, stays quick, and the whole new text can be read."""

import pytest

from catalog.text.diff import MAX_DIFF_ROWS
from tests.builders import make_plan, request_of, work_off, write_step
from tests.pages import Pages

pytestmark = pytest.mark.django_db
LINES = 80_000
API = 'href="/api/v1/approvals/'


def test_a_change_of_very_many_lines_is_drawn_in_part(catalog, workspace, ada, rosa):
    """The rest is counted and named by its size."""
    plan = work_off(make_plan(ada, write_step(1, content="x\n" * LINES)))
    page = Pages(rosa).client.get(f"/approvals/?item={request_of(plan).public_id}").content.decode()

    assert page.count('class="add"') == MAX_DIFF_ROWS
    assert f"{LINES - MAX_DIFF_ROWS} lines, 148 KB" in page
    assert API in page  # where both sides can be read
    assert "x\\n" * LINES in page  # the raw JSON


def test_a_change_that_fits_says_nothing_of_it(catalog, workspace, ada, rosa):
    plan = work_off(make_plan(ada, write_step(1, content="x\n" * 10)))
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request_of(plan).public_id}")

    assert pages.html.count('class="add"') == 10
    assert API not in pages.html
