"""Chat addresses: accepted forms, sending, and retries."""

import json
import sys
from datetime import timedelta
from typing import Any

import pytest

from approvals.messaging import senders
from approvals.messaging.addresses import read_address
from approvals.models import Delivery
from approvals.notifications import delivery as notifications_delivery
from approvals.notifications.delivery import send_due
from catalog.core import clock
from catalog.core.egress import RequestNotSent
from catalog.errors import ParameterError
from tests.approvals.factories import ask
from tests.http_server import taking

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # what apprise imports
]


@pytest.fixture(autouse=True)
def ways_out(settings, rosa):
    """Allow messages to the local host."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]


def chat() -> Delivery:
    """Return the one delivery to a chat."""
    return Delivery.objects.get(channel="chat")


@pytest.mark.parametrize(
    ("status", "becomes", "times"), [(429, "due", 2), (503, "due", 2), (500, "failed", 1), (404, "failed", 1)]
)
def test_ntfy_message_is_retried_only_if_it_was_not_accepted(ada, settings, status, becomes, times):
    """It is posted like a webhook: no redirect is followed, and the token stays in its header."""
    with taking() as server:
        server.answers = status
        settings.TOOLGATE_NOTIFY_URLS = [f"ntfy://tk_secret@127.0.0.1:{server.server_port}/desk"]
        ask(ada)
        for _ in range(2):
            send_due()
            Delivery.objects.filter(channel="chat").update(due_at=clock.now() - timedelta(seconds=1))
    assert (chat().status, len(server.taken)) == (becomes, times)
    path, headers, body = server.taken[0]
    assert (path, headers["Authorization"], json.loads(body)["topic"]) == ("/", "Bearer tk_secret", "desk")
    assert b"hello" not in body and "tk_secret" not in chat().last_error


@pytest.mark.parametrize(("takes", "becomes"), [(True, "sent"), (False, "failed")])
def test_chats_are_sent_through_apprise(ada, settings, monkeypatch, takes, becomes):
    import apprise  # noqa: PLC0415 - of the extra notify

    said: list[dict[str, str]] = []
    redirects: list[bool] = []

    def notify(self: Any, **message: str) -> bool:
        said.append(message)
        redirects.extend(each.redirects for each in self)
        return bool(takes)

    monkeypatch.setattr(apprise.Apprise, "notify", notify)
    settings.TOOLGATE_NOTIFY_URLS = ["slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#desk"]
    ask(ada)
    send_due()
    delivery = chat()
    assert (delivery.status, delivery.shown_address, redirects) == (becomes, "slack://…", [False])
    assert takes or notifications_delivery.UNSURE_MESSAGE in delivery.last_error
    assert "write_note" in said[0]["title"] and "hello" not in said[0]["body"]


def test_internal_chat_host_is_refused(settings):
    settings.TOOLGATE_EGRESS_ALLOW = []
    with pytest.raises(RequestNotSent) as refused:
        senders.send_chat("ntfy://127.0.0.1:8080/topic", "a", "b")
    assert not refused.value.again


WORKFLOWS = "workflows://prod-1.westeurope.logic.azure.com"
TRICKS = [
    "workflows://evil.example.org/W/S/",
    "workflows://logic.azure.com.evil.org/W/S/",
    "workflows://a@evil.org/W/S/#.logic.azure.com/W/S/",
    f"{WORKFLOWS}@evil.org/W/S/",
    f"{WORKFLOWS}:8080/W/S/",
    f"{WORKFLOWS}/W/S/?template=/etc/passwd",
    f"{WORKFLOWS}/W/S/?template=http://169.254.169.254/latest/",
    f"{WORKFLOWS}/W/S/?pa=yes&template=/etc/passwd",
    f"{WORKFLOWS}/W/S/%3Ftemplate=/etc/passwd",
    "ntfy://internal?mode=private&to=x",
    "ntfy://internal/topic?attach=http://169.254.169.254/",
    "ntfy://good.example.org@internal@evil/topic",
    "ntfys://host/../topic",
    "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?redirect=yes",
    "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/,json://evil.example.org/",
    "discord://1/2/;json://evil.example.org/",
    "tgram://123456789:abcdefg_hijklmnop/1/?avatar=no",
    "msteams://a/b/c",
    "apprise://host/token",
]


def fault_of(text: str) -> str:
    """Return the deviations in refusing an address when it is entered and when it is used."""
    try:
        return f"read as {read_address(text).channel}"
    except ParameterError:
        pass
    try:
        senders.send_chat(text, "a", "b")
    except RequestNotSent as refused:
        return "tried again" if refused.again else "repeated" if "evil" in str(refused) else ""
    return "sent"


def test_chat_address_cannot_name_files_or_other_hosts(monkeypatch):
    monkeypatch.setattr("apprise.Apprise.instantiate", lambda *_, **__: pytest.fail("apprise was asked"))
    assert {text: fault for text in TRICKS if (fault := fault_of(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        f"{WORKFLOWS}:443/643e69f83c8944/deadbeef/",
        f"{WORKFLOWS}/643e69f83c8944/deadbeef/?pa=yes",
        "workflows://a1.environment.api.powerplatform.com/643e69f83c8944/deadbeef/?pa=yes",
        "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js/",
        "slack://bot@T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#desk",
        "tgram://123456789:abcdefg_hijklmnop/12315544/",
    ],
)
def test_apprise_parses_accepted_addresses(text):
    import apprise  # noqa: PLC0415 - of the extra notify

    assert read_address(text).channel == "chat"
    assert isinstance(apprise.Apprise.instantiate(text), apprise.NotifyBase)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ntfy://topic", ("https://ntfy.sh/", "topic", "")),
        ("NTFYS://host.org:8443/topic/", ("https://host.org:8443/", "topic", "")),
        ("ntfy://ada:p%40ss@host.org/topic", ("http://host.org/", "topic", "ada:p@ss")),
    ],
)
def test_ntfy_address_is_parsed(text, place):
    assert senders._parse_ntfy_address(read_address(text).text) == place


def test_missing_extra_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)  # as if it were not installed
    with pytest.raises(ParameterError):
        read_address("slack://a/b/c")
    with pytest.raises(RequestNotSent) as refused:
        senders.send_chat("slack://a/b/c", "a", "b")
    assert (str(refused.value), refused.value.again) == (senders.APPRISE_MISSING, False)
    assert read_address("ntfys://host.org/topic").channel == "chat"
