"""Changes that are too long to be shown in full."""

import re

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
    assert f"{LINES - MAX_DIFF_ROWS} lines, 155 KB" in page
    assert API in page  # where both sides can be read
    assert "x\\n" * LINES in page  # the raw JSON


def test_lines_that_were_not_shown_are_loaded_or_named(catalog, workspace, ada, rosa, settings):
    """Each part ends with the next cut; a press that did not load them is asked again, with their number."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    lines = MAX_DIFF_ROWS * 3
    request = request_of(work_off(make_plan(ada, write_step(1, content="x\n" * lines))))
    pages, seen = Pages(rosa), MAX_DIFF_ROWS
    pages.open(f"/approvals/?item={request.public_id}")
    while more := re.search(r'href="(/approvals/[^"]+/change/[^"]+)"', pages.html):
        assert f'data-unshown="{lines - seen}"' in pages.html
        pages.open(more[1])
        seen += pages.html.count('class="add"')
    assert seen == lines
    pages.open(f"/approvals/?item={request.public_id}")
    fields = {"verdict": "approve", "seen_digest": request.digest}
    page = pages.send(f"/approvals/{request.public_id}/decision/", fields)
    assert f"{lines - MAX_DIFF_ROWS} lines were not shown" in page
    request.refresh_from_db()
    assert request.status == "pending"
    pages.send(f"/approvals/{request.public_id}/decision/", {**fields, "shown": "all"})
    request.refresh_from_db()
    assert request.status == "approved"


def test_short_change_has_no_notice(catalog, workspace, ada, rosa):
    plan = work_off(make_plan(ada, write_step(1, content="x\n" * 10)))
    pages = Pages(rosa)
    pages.open(f"/approvals/?item={request_of(plan).public_id}")

    assert pages.html.count('class="add"') == 10
    assert API not in pages.html
