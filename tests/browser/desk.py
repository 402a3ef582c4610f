"""The approvals queue in a browser: opening it, and what its tests have in common."""

from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest
from catalog.results import Preview
from tests.waiting import eventually

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LONG = Preview("Write note.txt", "diff", before="", after="".join(f"line {n}\n" for n in range(200)))


def becomes(request: ApprovalRequest, status: str) -> None:
    """Wait until a request has this status."""
    eventually(lambda: ApprovalRequest.objects.filter(pk=request.pk, status=status).exists(), what=status)


def open_inbox(page: Page, query: str = "") -> None:
    """Open the inbox and wait until it is alive; a route is laid before, for Chromium applies it as a page loads."""
    page.goto(f"/approvals/{query}")
    expect(page.locator("#live")).to_be_visible()
