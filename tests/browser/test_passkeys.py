"""Passkeys with Chromium's virtual authenticator: adding one, signing in with it, signing an approval."""

import pytest
from playwright.sync_api import Page, expect

from approvals.models import ApprovalRequest, Review
from tests.approvals.factories import ask, make_tool, set_rule
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


OPEN_PROMPT = """navigator.credentials.get = () => new Promise((_, reject) => {
    document.documentElement.dataset.asked = (document.documentElement.dataset.asked ?? "") + "1";
    window.cancel = reject;
});"""
OPTIONS = {"nonce": "1", "options": {"publicKey": {"challenge": "AAAA"}}}


@pytest.mark.layout
def test_an_approval_that_is_not_signed_is_not_sent_and_needs_both_presses_again(ada, rosa, page_as: PageAs):
    set_rule(fresh_passkey=True)
    ask(ada, make_tool("wipe_note", reversibility="irreversible"))
    page = page_as(rosa)
    page.add_init_script(OPEN_PROMPT)
    page.route("**/decision/sign/", lambda route: route.fulfill(json=OPTIONS))
    open_inbox(page)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    armed, toast = page.locator(".button.go.armed"), page.locator(".toast")
    asked_once = page.locator("html[data-asked='1']")
    press_approve(page)
    expect(armed).to_have_count(1)
    page.keyboard.press("a")
    expect(asked_once).to_have_count(1)
    page.keyboard.press("a")
    page.keyboard.press("a")  # the prompt is open
    expect(armed).to_have_count(0)
    expect(asked_once).to_have_count(1)
    page.evaluate("window.cancel()")
    expect(toast).to_have_count(1)
    page.keyboard.press("a")
    expect(armed).to_have_count(1)
    page.evaluate("document.querySelector('.toast').remove()")
    page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError('offline')); }")
    page.keyboard.press("a")
    expect(toast).to_have_count(1)
    assert [url for url in sent if url.endswith("/decision/")] == []
