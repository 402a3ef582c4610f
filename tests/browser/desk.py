"""The approvals queue in a browser: opening it, and what its tests have in common."""

from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest
from catalog.results import Preview
from tests.builders import make_plan, request_of, write_step
from tests.waiting import eventually

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LONG = Preview("Write note.txt", "diff", before="", after="".join(f"line {n}\n" for n in range(200)))


def becomes(request: ApprovalRequest, status: str) -> None:
    """Wait until a request has this status."""
    eventually(lambda: ApprovalRequest.objects.filter(pk=request.pk, status=status).exists(), what=status)


def asked(author: User, path: str) -> ApprovalRequest:
    """Start a plan and return its request, once the server has asked for it."""
    plan = make_plan(author, write_step(1, path, "hello\n"))
    eventually(ApprovalRequest.objects.filter(plan_ref=plan.public_id).exists, what="the request")
    return request_of(plan)


def open_inbox(page: Page, query: str = "") -> None:
    """Open the inbox and wait until it is alive; a route is laid before, for Chromium applies it as a page loads."""
    page.goto(f"/approvals/{query}")
    expect(page.locator("#live")).to_be_visible()
