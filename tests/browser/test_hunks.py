"""Accepting a change in parts: each hunk has its checkbox, by mouse, keyboard and thumb; the bar sends what stays."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from plans.models import Plan
from tests.browser.conftest import PageAs
from tests.browser.desk import becomes, open_inbox
from tests.builders import call_of, make_plan, request_of, step, work_off

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
ORIGINAL = "".join(f"line {number}\n" for number in range(40))
MODIFIED = ORIGINAL.replace("line 3\n", "LINE 3\n").replace("line 30\n", "LINE 30\nmore\n")


@pytest.fixture
def proposed(catalog, workspace: Path, ada, settings) -> Plan:
    """A plan whose step waits for people with an edit of two hunks."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    (workspace / "note.txt").write_text(ORIGINAL)
    edit = {"path": "note.txt", "original": ORIGINAL, "modified": MODIFIED, "description": "Say it louder"}
    return work_off(make_plan(ada, step(1, "propose_file_edit", parameters=edit)))


def test_an_unchecked_hunk_is_not_applied(proposed, rosa, workspace, page_as: PageAs):
    """Unchecked with the space bar, sent with the key for approving."""
    page = page_as(rosa)
    open_inbox(page)
    expect(page.locator(".hunk-progress")).to_have_text("Progress: 0/2 applied, 0 rejected, 2 pending")
    first = page.get_by_label("Apply hunk 1 of 2")
    expect(first).to_be_checked()
    first.focus()
    page.keyboard.press("Space")
    expect(first).not_to_be_checked()
    page.locator("#diff-end").scroll_into_view_if_needed()
    page.get_by_role("button", name="Approve and run").click()
    becomes(request_of(proposed), "approved")
    work_off(proposed)
    assert (workspace / "note.txt").read_text() == ORIGINAL.replace("line 30\n", "LINE 30\nmore\n")
    assert call_of(proposed).status == "completed"
