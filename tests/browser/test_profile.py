"""A person's own settings in a browser: the offered time zone, the theme, and the service worker of web pushes."""

import json
import os
from typing import Any

import pytest
from playwright.sync_api import Page, Worker, expect

from approvals.notifications.devices import device_rows
from catalog.models import PersonalSettings
from tests.approvals.notifications.push_browser import Browser as PushBrowser
from tests.approvals.notifications.push_browser import encoded
from tests.browser.conftest import PageAs
from tests.waiting import eventually

pytestmark = [
    pytest.mark.browser,
    pytest.mark.layout,
    pytest.mark.django_db(transaction=True, serialized_rollback=True),
]
SUBSCRIBE = """(made) => {
  PushManager.prototype.subscribe = async () => ({ endpoint: made.endpoint, toJSON: () => made });
  PushManager.prototype.getSubscription = async () => null;
}"""
"""Stands in for the push service of the browser's vendor."""
PERMIT = """() => {
  Object.defineProperty(Notification, "permission", { get: () => "granted" });
  Notification.requestPermission = async () => "granted";
}"""
CHANGE = """() => {
  const change = new Event("pushsubscriptionchange");
  return new Promise((resolve) => {
    change.waitUntil = resolve;
    self.dispatchEvent(change);
  });
}"""
STUB = "() => { self.shown = []; self.registration.showNotification = async (...all) => { self.shown.push(all); }; }"
SHOWN = """() => new Promise((resolve) => {
  const look = () => (self.shown.length ? resolve(self.shown.shift()) : setTimeout(look, 5));
  look();
})"""
"""Headless browsers refuse notifications, so that the worker is asked what it would have shown."""


def test_time_zone_of_the_browser_is_offered_once(ada, page_as: PageAs):
    page = page_as(ada, timezone_id="America/New_York")
    page.goto("/profile/?from=here")
    expect(page.locator("#zone-offer")).to_contain_text("America/New_York")
    assert not PersonalSettings.objects.exists()
    page.locator("[data-zone-take]").click()
    expect(page.locator("#id_time_zone")).to_have_value("America/New_York")
    assert page.url.endswith("/profile/?from=here")
    expect(page.locator("#zone-offer")).to_have_count(0)


def test_theme_is_the_persons_in_another_browser(ada, page_as: PageAs):
    page = page_as(ada)
    page.goto("/profile/")
    page.locator(".account-button").click()
    for theme in ("light", "dark"):
        with page.expect_response("**/profile/choose/"):
            page.locator("[data-theme-next]").click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
    other = page_as(ada, java_script_enabled=False)
    other.goto("/profile/")
    expect(other.locator("html")).to_have_attribute("data-theme", "dark")


def push(page: Page, worker: Worker, message: dict[str, str]) -> list[Any]:
    """Deliver a push to the worker and return what it would have shown."""
    devtools = page.context.new_cdp_session(page)
    registrations: list[dict[str, Any]] = []
    devtools.on("ServiceWorker.workerRegistrationUpdated", lambda event: registrations.extend(event["registrations"]))
    devtools.send("ServiceWorker.enable")
    eventually(lambda: page.title() and registrations, what="the registration")  # its event follows the answer
    delivery = {"origin": page.evaluate("location.origin"), "data": json.dumps(message)}
    devtools.send(
        "ServiceWorker.deliverPushMessage", delivery | {"registrationId": registrations[-1]["registrationId"]}
    )
    return list(worker.evaluate(SHOWN))


def subscription(name: str) -> dict[str, Any]:
    """Return a subscription as a browser writes it."""
    fields = PushBrowser().fields(f"https://push.example.org/{name}")
    return {"endpoint": fields.pop("endpoint"), "expirationTime": None, "keys": fields}


def test_a_browser_is_added_and_its_new_subscription_replaces_the_old_one(ada, settings, page_as: PageAs):
    settings.TOOLGATE_VAPID_KEY = encoded(os.urandom(32))
    page = page_as(ada)
    page.goto("/profile/notifications/")
    page.evaluate(SUBSCRIBE, subscription("first"))
    page.evaluate(PERMIT)
    with page.context.expect_event("serviceworker") as started:
        page.get_by_role("button", name="Notify this browser").click()
    expect(page.get_by_text("is notified from now on")).to_be_visible()
    [first] = device_rows(ada)
    started.value.evaluate(SUBSCRIBE, subscription("second"))
    started.value.evaluate(CHANGE)
    [second] = device_rows(ada)
    assert second.mark != first.mark


def test_service_worker_shows_a_push_and_opens_own_pages_only(ada, page_as: PageAs):
    page = page_as(ada)
    page.goto("/profile/notifications/")
    with page.context.expect_event("serviceworker") as started:
        page.evaluate("() => navigator.serviceWorker.register('/service-worker.js', { scope: '/' })")
    page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
    worker = started.value
    worker.evaluate(STUB)
    origin = page.evaluate("location.origin")
    title, shown = push(page, worker, {"title": "Approval needed", "tag": "apr_1", "path": "/approvals/?item=apr_1"})
    assert (title, shown["tag"], shown["data"]["url"]) == (
        "Approval needed",
        "apr_1",
        f"{origin}/approvals/?item=apr_1",
    )
    _title, shown = push(page, worker, {"title": "Look", "path": "https://evil.example/"})
    assert shown["data"]["url"] == f"{origin}/"
