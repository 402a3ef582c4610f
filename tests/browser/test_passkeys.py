"""Passkeys with Chromium's virtual authenticator: adding one, signing in with it, signing an approval."""

import pytest
from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest, Review
from tests.approvals.factories import ask, set_rule
from tests.browser.conftest import PageAs, press_approve
from tests.browser.desk import becomes, open_inbox

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True, serialized_rollback=True)]
DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def give_device(page: Page) -> None:
    """Give the browser a device that verifies its user and confirms at once."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    session.send("WebAuthn.addVirtualAuthenticator", {"options": DEVICE})


def test_a_passkey_is_added_signs_in_and_signs_an_approval(ada, rosa, page_as: PageAs):
    set_rule(fresh_passkey=True)
    request = ask(ada)
    page = page_as(rosa)
    give_device(page)
    page.goto("/profile/security/passkeys/new/")
    page.get_by_label("Name").fill("Phone")
    page.get_by_role("button", name="Add passkey").click()
    page.wait_for_url("**/profile/security/codes/")
    page.context.clear_cookies()
    page.goto("/sign-in/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(lambda url: "sign-in" not in url)
    open_inbox(page)
    expect(page.locator(".stake")).to_contain_text("signature")
    press_approve(page)
    becomes(request, "approved")
    assert Review.objects.get().passkey
    assert ApprovalRequest.objects.get().status == "approved"
