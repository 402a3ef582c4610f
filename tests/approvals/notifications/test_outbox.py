"""The outbox: recipients, addresses and due times of notifications."""

from datetime import UTC, date, datetime, time, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.messaging.addresses import read_address
from approvals.models import Delivery, NotificationChoice
from approvals.notifications.outbox import after_quiet_hours
from approvals.requests.deadlines import expire_due
from approvals.reviews.decisions import Decision, decide, undo_decision
from approvals.states import ReviewVerdict
from catalog.access.personal_settings import change_settings
from catalog.core import clock
from catalog.signals import record_fact
from tests.approvals.factories import approval, ask, held_call, make_tool, rejection, set_rule

pytestmark = pytest.mark.django_db
HOOK = "https://hooks.example.org/T0/secret-token"


@pytest.fixture(autouse=True)
def mailboxes(settings, ada, rosa, tomas, admin):
    """Users with mail addresses on an installation that sends mail."""
    settings.TOOLGATE_SENDS_MAIL = True
    for person in (ada, rosa, tomas, admin):
        person.email = f"{person.username}@example.org"
        person.save()


def told(kind: str) -> set[str]:
    """Return the displayed addresses that are notified of a kind of event."""
    return set(Delivery.objects.filter(kind=kind).values_list("shown_address", flat=True))


def mails(*names: str) -> set[str]:
    """Return these people's addresses."""
    return {f"{name}@example.org" for name in names}


def choose(person, **fields) -> NotificationChoice:
    """Store a user's preferences."""
    return NotificationChoice.objects.create(person=person, **fields)


def kept(text: str) -> dict[str, str]:
    """Return an address in its stored form."""
    address = read_address(text)
    return {"channel": address.channel, "ciphertext": address.encrypted(), "shown": address.shown}


def test_reviewers_are_notified_of_new_requests(ada):
    ask(ada)
    assert told("approval.opened") == mails("rosa", "tomas")


def test_requester_is_not_notified_as_reviewer(rosa):
    ask(rosa)
    assert told("approval.opened") == mails("tomas")


def test_requester_is_notified_of_the_decision(ada, rosa):
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "No."))
    assert told("approval.decided") == mails("ada")


def test_requested_changes_have_their_own_kind(ada, rosa):
    request = ask(ada)
    decide(
        request, by=rosa, decision=Decision(ReviewVerdict.REQUEST_CHANGES, request.digest, comment="Another folder.")
    )
    assert told("approval.changes_requested") == mails("ada") and not told("approval.decided")


def test_undone_decision_is_not_notified(ada, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, channel="page"))
    delivery = Delivery.objects.get(kind="approval.decided")
    assert delivery.due_at > clock.now() + timedelta(seconds=30)
    undo_decision(request, by=rosa)
    delivery.refresh_from_db()
    assert delivery.status == "dropped"


def test_expiry_reminders_and_delegations_are_notified(ada, rosa, tomas):
    request = ask(ada)
    record_fact("approval.reminded", call=request.call, approval=request.public_id, number=1)
    record_fact("approval.delegated", call=request.call, by=rosa, approval=request.public_id, to="tomas")
    record_fact("approval.delegated", call=request.call, by=rosa, approval=request.public_id, to=None)
    record_fact("approval.commented", call=request.call, by=rosa, approval=request.public_id)
    assert told("approval.reminded") == mails("rosa", "tomas")
    assert told("approval.delegated") == mails("tomas")
    assert told("approval.commented") == mails("ada")
    expire_due(request.expires_at + timedelta(seconds=1))
    assert told("approval.expired") == mails("ada")


def test_escalation_group_is_notified(ada, admin):
    request = ask(ada)
    type(request).objects.update(escalated_to="administrator")
    record_fact("approval.escalated", call=request.call, approval=request.public_id)
    assert told("approval.escalated") == mails("rosa", "tomas", "admin")


def test_unknown_outcome_notifies_administrators_and_requester(ada, admin):
    call = held_call(ada, make_tool("send", "cautious"))
    record_fact("step.outcome_unknown", call=call)
    assert told("step.outcome_unknown") == mails("ada", "admin")


def test_addresses_of_policy_and_installation_are_notified(ada, rosa, settings):
    settings.TOOLGATE_NOTIFY_URLS = [HOOK, "desk@example.org"]
    set_rule(notify=[HOOK, "https://other.example.org/x", "not an address"])
    request = ask(ada)
    others = {"https://hooks.example.org/…", "https://other.example.org/…", "desk@example.org"}
    assert told("approval.opened") == mails("rosa", "tomas") | others
    assert not Delivery.objects.filter(address__contains="secret-token").exists()
    decide(request, by=rosa, decision=approval(request))
    assert told("approval.decided") == mails("ada")


def test_preferences_select_addresses(ada, rosa, tomas):
    choose(rosa, by_mail=False, addresses=[kept(HOOK)])
    choose(tomas, by_mail=False)
    ask(ada)
    assert told("approval.opened") == {"https://hooks.example.org/…"}


def test_encrypted_policy_addresses_are_notified(ada):
    lost = kept("https://lost.example.org/x") | {"ciphertext": "x"}
    set_rule(notify=[lost, "desk", kept(HOOK)])
    ask(ada)
    assert told("approval.opened") == {"https://hooks.example.org/…", *mails("rosa", "tomas")}


def test_account_mail_address_cannot_be_a_webhook(ada, rosa):
    rosa.email = HOOK
    rosa.save()
    ask(ada)
    assert told("approval.opened") == mails("tomas")


def test_no_mail_is_queued_without_a_mail_server(ada, settings):
    settings.TOOLGATE_SENDS_MAIL = False
    ask(ada)
    assert not Delivery.objects.exists()


def test_rolled_back_fact_is_not_notified(ada):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        ask(ada)
        assert Delivery.objects.exists()
        raise ZeroDivisionError
    assert not Delivery.objects.exists()


def test_address_gets_an_event_once(ada, settings):
    settings.TOOLGATE_NOTIFY_URLS = ["rosa@example.org"]
    request = ask(ada)
    record_fact("approval.opened", call=request.call, approval=request.public_id)
    assert Delivery.objects.filter(shown_address="rosa@example.org").count() == 1


@pytest.mark.parametrize(
    ("begin", "end", "now", "due"),
    [
        ("22:00", "07:00", "23:30", "1 07:00"),
        ("22:00", "07:00", "06:59", "0 07:00"),
        ("22:00", "07:00", "07:00", "0 07:00"),
        ("22:00", "07:00", "12:00", "0 12:00"),
        ("12:00", "13:00", "12:30", "0 13:00"),
        ("12:00", "13:00", "13:00", "0 13:00"),
        ("08:00", "08:00", "08:00", "0 08:00"),
    ],
)
def test_notifications_wait_for_the_end_of_quiet_hours(begin, end, now, due):
    choice = NotificationChoice(
        person=User(), quiet_from=time.fromisoformat(begin), quiet_until=time.fromisoformat(end)
    )
    days, _, clock_time = due.partition(" ")
    first = date(2026, 5, 1)
    expected = datetime.combine(first + timedelta(days=int(days)), time.fromisoformat(clock_time), tzinfo=UTC)
    moment = datetime.combine(first, time.fromisoformat(now), tzinfo=UTC)
    assert after_quiet_hours(choice, moment) == expected


def test_quiet_hours_use_the_time_zone_of_the_user(ada, rosa):
    change_settings(rosa, {"time_zone": "Asia/Tokyo"})
    choice = choose(rosa, quiet_from=time(22), quiet_until=time(7))
    due = after_quiet_hours(choice, datetime(2026, 5, 1, 14, 0, tzinfo=UTC))  # 23:00 in Tokyo
    assert due == datetime(2026, 5, 1, 22, 0, tzinfo=UTC)
