"""Web push: devices of people, and what reaches a local push service, decrypted as a browser does."""

import base64
import os
from email.message import Message
from typing import Any

import jwt
import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric import ec
from django.contrib.auth.models import User
from django.test import Client

from approvals.messaging.web_push import Subscription, application_server_key, read_subscription
from approvals.models import AuditEntry, Delivery, PushDevice
from approvals.notifications.delivery import send_due
from approvals.notifications.devices import (
    BROWSER_COOKIE,
    MAX_DEVICES,
    add_device,
    device_name,
    queue_test,
)
from approvals.reviews.decisions import decide
from catalog.access.sessions import sign_out_everywhere
from catalog.core import clock
from catalog.errors import ParameterError
from tests.approvals.factories import approval, ask
from tests.approvals.notifications.push_browser import ENDPOINT, Browser, encoded
from tests.http_server import Server, taking
from tests.pages import Pages

pytestmark = pytest.mark.django_db
PAGE = "/profile/notifications/"
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def local_service(settings: Any) -> None:
    """Let pushes reach this machine."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    settings.TOOLGATE_VAPID_KEY = encoded(os.urandom(32))
    settings.TOOLGATE_URL = "https://tools.example.org"


def subscribed(person: User, server: Server, monkeypatch: pytest.MonkeyPatch, path: str = "201") -> Browser:
    """Add a device whose push service is the local server, which has no TLS."""
    browser, endpoint = Browser(), f"http://127.0.0.1:{server.server_port}/{path}"

    def read(fields: dict[str, str]) -> Subscription:
        return Subscription(endpoint, fields["p256dh"], fields["auth"])

    monkeypatch.setattr("approvals.notifications.devices.read_subscription", read)
    add_device(person, browser.fields(), name="Firefox", browser="b" * 32)
    return browser


def only() -> Delivery:
    return Delivery.objects.get(channel="push")


def claims(headers: Message) -> dict[str, Any]:
    """Return the claims that Toolgate signed, verified with the key that browsers subscribe with."""
    token, key = str(headers["authorization"]).removeprefix("vapid t=").split(", k=")
    assert key == application_server_key()
    point = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    return dict(jwt.decode(token, public, algorithms=["ES256"], options={"verify_aud": False}))


def test_push_names_the_tool_and_opens_the_request(ada: User, rosa: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with taking() as server:
        browser = subscribed(rosa, server, monkeypatch)
        request = ask(ada)
        assert send_due() == 1
    [(_path, headers, body)] = server.taken
    document = browser.read(body)
    assert document["path"] == f"/approvals/?item={request.public_id}" and document["tag"] == request.public_id
    assert "write_note" in document["title"] and "Ada" in document["body"]
    assert not any(hidden in str(document) for hidden in ("note.txt", "hello"))
    assert (headers["content-encoding"], headers["urgency"]) == ("aes128gcm", "high") and headers["topic"]
    assert claims(headers)["aud"] == "http://127.0.0.1" and b"write_note" not in body
    assert only().status == "sent" and "127.0.0.1" in only().shown_address and "201" not in only().shown_address


@pytest.mark.parametrize("status", ["404", "410"])
def test_ended_subscription_removes_its_device(
    ada: User, rosa: User, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with taking() as server:
        subscribed(rosa, server, monkeypatch, status)
        ask(ada)
        send_due()
    assert only().status == "dropped" and not PushDevice.objects.exists()


def test_failed_push_is_retried(ada: User, rosa: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with taking() as server:
        subscribed(rosa, server, monkeypatch, "500")
        ask(ada)
        send_due()
    assert (only().status, only().attempts) == ("due", 1) and only().due_at > clock.now()


def deactivate(person: User) -> None:
    person.is_active = False
    person.save()


def sign_out(person: User) -> None:
    sign_out_everywhere(person, keep=None)


def rotate_keys(settings: Any) -> None:
    settings.TOOLGATE_SECRET_KEYS = [Fernet.generate_key().decode(), *settings.TOOLGATE_SECRET_KEYS]


@pytest.mark.parametrize("status", ["201", "410"])
def test_devices_are_known_after_a_new_secret_key(
    ada: User, rosa: User, status: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are notified, and removed when their subscription has ended."""
    with taking() as server:
        subscribed(rosa, server, monkeypatch, status)
        rotate_keys(settings)
        ask(ada)
        send_due()
    assert (only().status, PushDevice.objects.exists()) == {"201": ("sent", True), "410": ("dropped", False)}[status]


def test_browser_belongs_to_the_last_person_after_a_new_secret_key(rosa: User, tomas: User, settings: Any) -> None:
    browser = Browser()
    signed_in(rosa, browser)
    rotate_keys(settings)
    signed_in(tomas, browser)
    assert PushDevice.objects.get().person == tomas


@pytest.mark.parametrize("end", [sign_out, deactivate])
def test_device_that_ended_is_not_notified(ada: User, rosa: User, end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of events from before: the address of a delivery alone is not enough."""
    with taking() as server:
        subscribed(rosa, server, monkeypatch)
        ask(ada)
        end(rosa)
        send_due()
    assert server.taken == [] and only().status == "dropped" and not PushDevice.objects.exists()


def test_answered_request_is_not_pushed(ada: User, rosa: User, tomas: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with taking() as server:
        subscribed(rosa, server, monkeypatch)
        request = ask(ada)
        decide(request, by=tomas, decision=approval(request))
        send_due()
    assert server.taken == []


def test_nobody_is_pushed_without_a_key(ada: User, rosa: User, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with taking() as server:
        subscribed(rosa, server, monkeypatch)
    settings.TOOLGATE_VAPID_KEY = ""
    ask(ada)
    assert not Delivery.objects.filter(channel="push").exists()
    page = Pages(rosa)
    page.open(PAGE)
    assert "data-push-key" not in page.html and "TOOLGATE_VAPID_KEY" in page.html


def test_test_is_sent_once_a_minute(rosa: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with taking() as server:
        browser = subscribed(rosa, server, monkeypatch)
        device = PushDevice.objects.get()
        moment = clock.now()
        monkeypatch.setattr("approvals.notifications.devices.clock.now", lambda: moment)
        again = add_device(rosa, browser.fields(), name="Firefox", browser="b" * 32)
        assert queue_test(device) and queue_test(again)
        monkeypatch.undo()
        send_due()
    [(_path, _headers, body)] = server.taken
    assert browser.read(body)["path"] == PAGE


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"endpoint": "http://push.example.org/x"}, "endpoint"),
        ({"endpoint": "https://push.example.org:8443/x"}, "endpoint"),
        ({"endpoint": "https://user:word@push.example.org/"}, "endpoint"),
        ({"endpoint": "https://push.example.org/" + "x" * 1000}, "endpoint"),
        ({"endpoint": "file:///etc/passwd"}, "endpoint"),
        ({"p256dh": encoded(b"\4" + b"\1" * 64)}, "p256dh"),
        ({"p256dh": "?"}, "p256dh"),
        ({"auth": encoded(b"short")}, "auth"),
        ({"auth": ""}, "auth"),
    ],
)
def test_invalid_subscription_names_its_field(fields: dict[str, str], wrong: str) -> None:
    with pytest.raises(ParameterError) as refused:
        read_subscription(Browser().fields() | fields)
    assert refused.value.details["field"] == wrong


def test_private_address_is_never_called(ada: User, rosa: User, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.TOOLGATE_EGRESS_ALLOW = []
    with taking() as server:
        subscribed(rosa, server, monkeypatch)
        ask(ada)
        send_due()
    assert server.taken == [] and only().status == "failed"


def signed_in(person: User, browser: Browser, endpoint: str = ENDPOINT) -> Client:
    """Sign in and add the browser by its page's request."""
    client = Client(headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Firefox/140.0"})
    client.force_login(person)
    assert client.post(f"{PAGE}devices/", browser.fields(endpoint)).status_code == 204
    return client


def test_device_is_added_tested_and_removed_on_the_page(rosa: User, tomas: User) -> None:
    client = signed_in(rosa, Browser())
    device = PushDevice.objects.get()
    assert (device.name, device.person) == ("Firefox on Linux", rosa)
    assert "secret-token" not in device.subscription and "secret-token" not in client.get(PAGE).content.decode()
    address = f"{PAGE}devices/{device.pk}/"
    client.post(address, {"do": "test"})
    assert only().kind == "push.tested"
    other = Client()
    other.force_login(tomas)
    assert other.post(address, {"do": "remove"}).status_code == 404
    assert client.post(address, {"do": "remove"}).status_code == 302 and not PushDevice.objects.exists()
    changes = AuditEntry.objects.filter(action="notifications.changed").order_by("seq")
    assert [each.details_json.get("added", each.details_json.get("removed")) for each in changes] == [["push"]] * 2


def test_sign_out_ends_the_device_of_its_browser_alone(rosa: User) -> None:
    here = signed_in(rosa, Browser(), f"{ENDPOINT}/here")
    signed_in(rosa, Browser(), f"{ENDPOINT}/there")
    assert here.cookies[BROWSER_COOKIE]["httponly"]
    here.post("/sign-out/")
    assert PushDevice.objects.count() == 1


@pytest.mark.parametrize("end", ["sign out", "password"])
def test_browser_that_stays_signed_in_keeps_its_device(rosa: User, end: str) -> None:
    here = signed_in(rosa, Browser(), f"{ENDPOINT}/here")
    kept = PushDevice.objects.get()
    signed_in(rosa, Browser(), f"{ENDPOINT}/there")
    passwords = {"old_password": "secret-rosa", "new_password1": PASSWORD, "new_password2": PASSWORD}
    path, fields = {
        "sign out": ("/profile/sign-ins/end-others/", {}),
        "password": ("/profile/security/password/", passwords),
    }[end]
    assert here.post(path, fields).status_code == 302
    assert PushDevice.objects.get() == kept


def test_browser_belongs_to_the_last_person(rosa: User, tomas: User) -> None:
    browser = Browser()
    signed_in(rosa, browser)
    signed_in(tomas, browser)
    assert PushDevice.objects.get().person == tomas


def test_number_of_devices_is_limited(rosa: User) -> None:
    for number in range(MAX_DEVICES):
        add_device(rosa, Browser().fields(f"{ENDPOINT}/{number}"), name="x", browser=f"b{number}")
    client = Client()
    client.force_login(rosa)
    refused = client.post(f"{PAGE}devices/", Browser().fields(f"{ENDPOINT}/more"))
    assert refused.status_code == 422 and PushDevice.objects.count() == MAX_DEVICES


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Safari/604.1", "Safari on iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("", "Browser"),
    ],
)
def test_device_is_named_as_its_browser_names_itself(user_agent: str, name: str) -> None:
    assert device_name(user_agent) == name
