"""Grants in the browser: created from a decided request, used by a call, revoked."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from approvals.models import ApprovalRequest
from catalog.inventory.overrides import apply_overrides
from tests.browser.conftest import PageAs
from tests.builders import approve, make_plan, request_of, work_off, write_step

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]


@pytest.fixture
def office(catalog, workspace: Path, settings) -> Path:
    """A workspace in which decisions take effect at once."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    return workspace


@pytest.fixture
def approved(office, ada, rosa, admin) -> ApprovalRequest:
    """The last of three writes under reports/ that Rosa approved; writing may be granted."""
    apply_overrides("write_file", {"grantable": {}}, by=admin)
    for name in ("may", "june", "july"):
        plan = work_off(make_plan(ada, write_step(1, f"reports/{name}.txt", f"{name} was quiet")))
        approve(plan, rosa)
        work_off(plan)
    return request_of(plan)


def test_grant_is_created_used_and_revoked(approved, ada, rosa, page_as: PageAs):
    """A condition must be chosen for arguments that varied."""
    page = page_as(rosa)
    page.goto(f"/approvals/?status=decided&item={approved.public_id}")
    page.get_by_role("link", name="Remember this approval…").click()
    expect(page.get_by_text("You approved 3 similar calls; only content and path (under reports/)")).to_be_visible()
    page.get_by_role("button", name="Remember", exact=True).click()
    expect(page.get_by_text("Choose a condition.", exact=True)).to_be_visible()
    page.get_by_label("Condition for content").select_option("exists")
    expect(page.get_by_label("Value for content")).to_be_hidden()
    page.get_by_role("radio", name="All calls of ada").check()
    expect(page.get_by_text("covered 3 of 3 calls")).to_be_visible()
    page.get_by_role("button", name="Remember", exact=True).click()
    expect(page.get_by_text("Grant created.")).to_be_visible()
    assert work_off(make_plan(ada, write_step(1, "reports/august.txt", "hot"))).status == "completed"
    page.reload()
    expect(page.get_by_text("1 of 20 uses")).to_be_visible()
    page.get_by_role("button", name="Revoke the grant").click()
    expect(page.get_by_text("Revoked by Rosa.")).to_be_visible()
    assert work_off(make_plan(ada, write_step(1, "reports/june.txt", "hot"))).status == "in_progress"
