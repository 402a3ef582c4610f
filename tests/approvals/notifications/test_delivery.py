"""Delivery of the outbox: once, after commit, with retries, and without arguments."""

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from smtplib import (
    SMTPAuthenticationError,
    SMTPDataError,
    SMTPRecipientsRefused,
    SMTPSenderRefused,
    SMTPServerDisconnected,
)
from typing import ClassVar
from zoneinfo import ZoneInfo

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend as Backend
from django.db import connection

from approvals.messaging.addresses import read_address
from approvals.models import Delivery
from approvals.notifications import delivery as notifications_delivery
from approvals.notifications.delivery import DeliveryThread, clear_deliveries, send_due
from approvals.notifications.messages import build_notice, one_line
from approvals.reviews.decisions import decide
from catalog.access.personal_settings import change_settings
from catalog.core import clock
from catalog.core.canonical_json import format_utc
from plans.executor.ticker import Ticker
from tests.approvals.factories import approval, ask, refusal_at, rejection
from tests.http_server import taking
from tests.racing import at_once
from tests.waiting import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.db]
KEY = "a key for webhooks that both sides know"
EVIL = "rosa\r\nBcc: everyone@example.org\u202e"


@pytest.fixture(autouse=True)
def ways_out(settings, rosa):
    """Keep mail in memory, allow webhooks to the local host, and give one reviewer a mail address."""
    settings.TOOLGATE_SENDS_MAIL = True
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    settings.TOOLGATE_WEBHOOK_KEY = KEY
    settings.TOOLGATE_URL = "https://tools.example.org"
    rosa.email = "rosa@example.org"
    rosa.save()


def hook(settings, server, path: str = "200") -> None:
    """Send the installation's notifications to a local server."""
    settings.TOOLGATE_NOTIFY_URLS = [f"http://127.0.0.1:{server.server_port}/{path}"]


def only(channel: str = "webhook") -> Delivery:
    """Return the one delivery of a channel."""
    return Delivery.objects.get(channel=channel)


def test_mail_has_facts_and_a_link_only(ada, rosa):
    request = ask(ada)
    assert send_due() == 1 and send_due() == 0
    [sent] = mail.outbox
    assert sent.to == ["rosa@example.org"] and sent.subject.startswith("Toolgate: ") and "write_note" in sent.subject
    assert f"https://tools.example.org/approvals/?item={request.public_id}" in sent.body
    assert "dangerous" in sent.body and "Ada" in sent.body
    assert not any(hidden in sent.body for hidden in ("note.txt", "hello", "Write note.txt"))
    assert only("mail").status == "sent" and only("mail").sent_at is not None


def test_mail_has_times_of_its_reader_and_a_webhook_those_of_programs(ada, rosa, settings):
    change_settings(rosa, {"time_zone": "Asia/Tokyo", "locale": "de"})
    with taking() as server:
        hook(settings, server)
        request = ask(ada)
        send_due()
    [sent] = mail.outbox
    local = request.expires_at.astimezone(ZoneInfo("Asia/Tokyo"))
    assert f"{local:%d.%m.%Y %H:%M:%S} JST" in sent.body
    assert json.loads(server.taken[0][2])["facts"]["expires"] == format_utc(request.expires_at)


def test_requester_gets_the_decision(ada, rosa):
    ada.email = "ada@example.org"
    ada.save()
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "Not this folder."))
    send_due()
    [sent] = mail.outbox
    assert sent.to == ["ada@example.org"] and "Not this folder" not in sent.body
    facts = build_notice(Delivery.objects.get(kind="approval.decided")).facts
    assert (facts["Answer"], facts["Answered by"], facts["Status"]) == ("Rejected", "Rosa", "Rejected")


def test_names_cannot_inject_headers_or_facts(ada, rosa):
    ada.first_name = EVIL
    ada.save()
    ask(ada)
    send_due()
    [sent] = mail.outbox
    assert "rosaU+000DU+000ABcc: everyone@example.orgU+202E" in sent.body
    assert "Bcc" not in sent.message() and "\nBcc" not in sent.body
    assert one_line("x" * 500).endswith("…") and len(one_line("x" * 500)) == 80


def test_webhook_is_signed(ada, settings):
    with taking() as server:
        hook(settings, server)
        request = ask(ada)
        send_due()
    [(_, headers, body)] = server.taken
    parts = dict(part.split("=", 1) for part in headers["Toolgate-Signature"].split(","))
    expected = hmac.new(KEY.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
    assert parts["v1"] == expected and abs(int(parts["t"]) - clock.now().timestamp()) < 60
    document = json.loads(body)
    assert (document["type"], document["event"]) == ("notification", "approval.opened")
    assert document["facts"]["request"] == request.public_id and headers["Idempotency-Key"]
    assert b"hello" not in body and b"note.txt" not in body


@pytest.mark.parametrize(("status", "becomes"), [(503, "due"), (429, "due"), (404, "failed"), (302, "failed")])
def test_failed_delivery_is_retried_if_temporary(ada, settings, status, becomes):
    with taking() as server:
        hook(settings, server, str(status))
        ask(ada)
        send_due()
    delivery = only()
    assert (delivery.status, delivery.attempts) == (becomes, 1)
    assert str(status) in delivery.last_error
    assert becomes == "failed" or delivery.due_at > clock.now() + timedelta(seconds=5)


def test_delivery_gives_up_after_the_last_retry(ada, settings):
    with taking() as server:
        hook(settings, server, "500")
        ask(ada)
        for _ in range(10):
            Delivery.objects.update(due_at=clock.now() - timedelta(seconds=1))
            send_due()
    assert (only().status, len(server.taken)) == ("failed", 6)


def test_failed_delivery_does_not_block_others(ada, settings, monkeypatch):
    monkeypatch.setattr(notifications_delivery, "get_connection", lambda: 1 / 0)
    with taking() as server:
        hook(settings, server)
        ask(ada)
        send_due()
    assert (only("mail").status, only().status) == ("failed", "sent")
    assert all(part in only("mail").last_error for part in ("ZeroDivisionError", notifications_delivery.UNSURE_MESSAGE))


def test_internal_addresses_are_refused(ada, settings):
    settings.TOOLGATE_EGRESS_ALLOW = []
    with taking() as server:
        hook(settings, server)
        ask(ada)
        send_due()
    assert server.taken == []
    assert only().status == "failed" and "TOOLGATE_EGRESS_ALLOW" in only().last_error


def test_answered_request_is_not_notified(ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request))
    send_due()
    assert mail.outbox == [] and Delivery.objects.get(kind="approval.opened").status == "dropped"


def test_interrupted_delivery_is_not_repeated(ada):
    ask(ada)
    Delivery.objects.update(status="sending", due_at=clock.now() + timedelta(minutes=1))
    assert send_due() == 0 and only("mail").status == "sending"
    Delivery.objects.update(due_at=clock.now() - timedelta(seconds=1))
    assert send_due() == 0
    assert (only("mail").status, only("mail").last_error) == ("failed", notifications_delivery.LOST_MESSAGE)
    assert mail.outbox == []


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_two_processes_send_a_delivery_once(ada, settings):
    with taking() as server:
        hook(settings, server)
        for _ in range(5):
            ask(ada)
        outcomes = at_once(send_due, send_due, send_due)
        assert len(server.taken) == 5, outcomes
    assert set(Delivery.objects.filter(channel="webhook").values_list("status", flat=True)) == {"sent"}


@pytest.mark.django_db(transaction=True)
def test_separate_thread_sends(ada):
    sender = DeliveryThread()
    sender.look()
    assert not any(thread.name == "toolgate-notices" for thread in threading.enumerate())
    ask(ada)
    sender.look()
    eventually(lambda: only("mail").status == "sent")
    sender.stop()
    ask(ada)
    sender.look()
    assert Delivery.objects.filter(status="due").exists()
    assert connection.is_usable()


class Shy(Backend):
    """An in-memory mail server with configurable failures."""

    fails: ClassVar[dict[str, Exception]] = {}

    def open(self) -> bool:
        """Connect."""
        if "open" in self.fails:
            raise self.fails["open"]
        return True

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Accept mails, or fail as configured."""
        if "send" in self.fails:
            raise self.fails["send"]
        count = super().send_messages(email_messages)
        if "taken" in self.fails:
            raise self.fails["taken"]
        return count


@pytest.mark.parametrize(
    ("fails", "becomes"),
    [
        (("open", ConnectionRefusedError()), "due"),
        (("open", TimeoutError()), "due"),
        (("open", socket.gaierror()), "due"),
        (("open", SMTPAuthenticationError(535, b"no")), "due"),
        (("send", SMTPSenderRefused(451, b"later", "a@b.org")), "due"),
        (("send", SMTPRecipientsRefused({"rosa@example.org": (450, b"later")})), "due"),
        (("send", SMTPRecipientsRefused({"rosa@example.org": (550, b"unknown")})), "failed"),
        (("taken", TimeoutError()), "failed"),
        (("taken", SMTPServerDisconnected()), "failed"),
        (("taken", SMTPDataError(451, b"later")), "failed"),
    ],
)
def test_possibly_accepted_mail_is_not_retried(ada, settings, monkeypatch, fails, becomes):
    is_handed_over = fails[0] == "taken"
    settings.EMAIL_BACKEND = f"{__name__}.Shy"
    monkeypatch.setattr(Shy, "fails", dict([fails]))
    ask(ada)
    for _ in range(2):
        send_due()
        Delivery.objects.update(due_at=clock.now() - timedelta(seconds=1))
    assert only("mail").status == becomes and len(mail.outbox) == is_handed_over
    assert (notifications_delivery.UNSURE_MESSAGE in only("mail").last_error) is is_handed_over


def test_old_deliveries_are_deleted(ada):
    request = ask(ada)
    old, first = clock.now() - timedelta(days=91), only("mail")
    for status in Delivery.Status.values:
        first.pk, first.event_key, first.status, first.created_at = None, status, status, old
        first.save(force_insert=True)
    Ticker(None)._clear()
    assert clear_deliveries(now=clock.now()) == 0
    left = set(Delivery.objects.filter(created_at=old).values_list("status", flat=True))
    assert left == {"due", "sending"} and Delivery.objects.filter(request=request, created_at__gt=old).exists()


def test_unsupported_addresses_are_refused():
    for text in (
        "",
        "rosa",
        "a@b@c",
        "file:///etc/passwd",
        "json://host/",
        "syslog://",
        "exec://x",
        "https://u:p@x.org/",
        "a b@x.org",
    ):
        with refusal_at("address", "invalid"):
            read_address(text)


def test_delivery_without_request_or_call_raises_lookup_error():
    with pytest.raises(LookupError):
        build_notice(Delivery(kind="approval.opened"))
