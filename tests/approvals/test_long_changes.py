"""A change too long to be drawn: the page says so, stays quick, and the whole new text can be read."""

from time import process_time

import pytest

from catalog.diffs import MOST_DRAWN
from tests.builders import make_plan, request_of, work_off, write_step
from tests.pages import Pages

pytestmark = pytest.mark.django_db
LINES = 80_000


def test_a_change_of_very_many_lines_is_drawn_in_part(catalog, workspace, ada, rosa):
    """It took seconds."""
    plan = work_off(make_plan(ada, write_step(1, content="x\n" * LINES)))
    client, began = Pages(rosa).client, process_time()
    page = client.get(f"/approvals/?item={request_of(plan).public_id}").content.decode()

    assert process_time() - began < 6  # seconds of work, on a slow machine
    assert page.count('class="add"') == MOST_DRAWN
    assert f"{LINES - MOST_DRAWN} lines, 148 KB, are too many to be drawn here" in page
    assert "too long to be drawn whole" in page
    assert "x\\n" * LINES in page  # the raw JSON


def test_a_change_that_fits_says_nothing_of_it(catalog, workspace, ada, rosa):
    plan = work_off(make_plan(ada, write_step(1, content="x\n" * 10)))
    page = Pages(rosa).open(f"/approvals/?item={request_of(plan).public_id}")

    assert "too long" not in page and "too many" not in page
