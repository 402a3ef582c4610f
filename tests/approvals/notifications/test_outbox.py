"""Who is told of what, where and when: in the transaction of what happened, once, and never in quiet hours."""

from datetime import UTC, date, datetime, time, timedelta

import pytest
from django.db import transaction

from approvals.messaging.addresses import read_address
from approvals.models import Delivery, NotificationChoice
from approvals.notifications.outbox import after_quiet_hours
from approvals.requests.deadlines import expire_due
from approvals.reviews.decisions import Decision, decide, undo_decision
from approvals.states import ReviewVerdict
from catalog.core import clock
from catalog.signals import record_fact
from tests.approvals.factories import approval, ask, held_call, make_tool, rejection, set_rule

pytestmark = pytest.mark.django_db
HOOK = "https://hooks.example.org/T0/secret-token"


@pytest.fixture(autouse=True)
def mailboxes(settings, ada, rosa, tomas, admin):
    """People with mail, where mail can be sent."""
    settings.TOOLGATE_SENDS_MAIL = True
    for person in (ada, rosa, tomas, admin):
        person.email = f"{person.username}@example.org"
        person.save()


def told(kind: str) -> set[str]:
    """Return the addresses that are told of a kind of event, as they are shown."""
    return set(Delivery.objects.filter(kind=kind).values_list("shown_address", flat=True))


def mails(*names: str) -> set[str]:
    """Return these people's addresses."""
    return {f"{name}@example.org" for name in names}


def choose(person, **fields) -> NotificationChoice:
    """Store what a person wants."""
    return NotificationChoice.objects.create(person=person, **fields)


def kept(text: str) -> dict[str, str]:
    """Return an address as a choice keeps it."""
    address = read_address(text)
    return {"channel": address.channel, "ciphertext": address.encrypted(), "shown": address.shown}


def test_reviewers_are_told_of_what_waits(ada):
    """Not who asked."""
    ask(ada)
    assert told("approval.opened") == mails("rosa", "tomas")


def test_who_asked_is_not_asked(rosa):
    """A reviewer may have asked."""
    ask(rosa)
    assert told("approval.opened") == mails("tomas")


def test_the_requester_is_told_of_the_answer(ada, rosa):
    """And nobody of their own doing."""
    request = ask(ada)
    decide(request, by=rosa, decision=rejection(request, "No."))
    assert told("approval.decided") == mails("ada")


def test_changes_asked_for_are_told_as_such(ada, rosa):
    request = ask(ada)
    decide(
        request, by=rosa, decision=Decision(ReviewVerdict.REQUEST_CHANGES, request.digest, comment="Another folder.")
    )
    assert told("approval.changes_requested") == mails("ada") and not told("approval.decided")


def test_an_answer_that_is_taken_back_is_not_told(ada, rosa, settings):
    """It is due when it takes effect."""
    settings.TOOLGATE_UNDO_SECONDS = 60
    request = ask(ada)
    decide(request, by=rosa, decision=approval(request, channel="page"))
    delivery = Delivery.objects.get(kind="approval.decided")
    assert delivery.due_at > clock.now() + timedelta(seconds=30)
    undo_decision(request, by=rosa)
    delivery.refresh_from_db()
    assert delivery.status == "dropped"


def test_expiry_reminders_and_delegation_are_told(ada, rosa, tomas):
    """Each to whom it concerns."""
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


def test_those_it_escalates_to_are_told(ada, admin):
    request = ask(ada)
    type(request).objects.update(escalated_to="administrator")
    record_fact("approval.escalated", call=request.call, approval=request.public_id)
    assert told("approval.escalated") == mails("rosa", "tomas", "admin")


def test_an_unknown_outcome_is_told_to_administrators_and_who_asked(ada, admin):
    """Also of a call that nobody was asked about."""
    call = held_call(ada, make_tool("send", "cautious"))
    record_fact("step.outcome_unknown", call=call)
    assert told("step.outcome_unknown") == mails("ada", "admin")


def test_addresses_of_the_policy_and_the_installation_are_told(ada, rosa, settings):
    """Of what waits, each once, and shown without what is secret in them."""
    settings.TOOLGATE_NOTIFY_URLS = [HOOK, "desk@example.org"]
    set_rule(notify=[HOOK, "https://other.example.org/x", "not an address"])
    request = ask(ada)
    others = {"https://hooks.example.org/…", "https://other.example.org/…", "desk@example.org"}
    assert told("approval.opened") == mails("rosa", "tomas") | others
    assert not Delivery.objects.filter(address__contains="secret-token").exists()
    decide(request, by=rosa, decision=approval(request))
    assert told("approval.decided") == mails("ada")


def test_people_choose_how_they_are_told(ada, rosa, tomas):
    """Not by mail; at an address of their own."""
    choose(rosa, by_mail=False, addresses=[kept(HOOK)])
    choose(tomas, by_mail=False)
    ask(ada)
    assert told("approval.opened") == {"https://hooks.example.org/…"}


def test_addresses_that_a_policy_keeps_encrypted_are_told(ada):
    """One whose key is gone, and one from before that is none, stop no call."""
    lost = kept("https://lost.example.org/x") | {"ciphertext": "x"}
    set_rule(notify=[lost, "desk", kept(HOOK)])
    ask(ada)
    assert told("approval.opened") == {"https://hooks.example.org/…", *mails("rosa", "tomas")}


def test_an_account_s_mail_address_is_no_webhook(ada, rosa):
    """Accounts hold what was typed."""
    rosa.email = HOOK
    rosa.save()
    ask(ada)
    assert told("approval.opened") == mails("tomas")


def test_without_a_mail_server_nobody_is_told_by_mail(ada, settings):
    settings.TOOLGATE_SENDS_MAIL = False
    ask(ada)
    assert not Delivery.objects.exists()


def test_what_is_rolled_back_is_not_told(ada):
    """The outbox is part of the transaction."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        ask(ada)
        assert Delivery.objects.exists()
        raise ZeroDivisionError
    assert not Delivery.objects.exists()


def test_an_event_is_told_to_an_address_once(ada, settings):
    """Whoever has it twice, and whichever way."""
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
def test_notices_wait_for_the_end_of_quiet_hours(begin, end, now, due):
    """Also over midnight."""
    choice = NotificationChoice(quiet_from=time.fromisoformat(begin), quiet_until=time.fromisoformat(end))
    days, _, clock_time = due.partition(" ")
    first = date(2026, 5, 1)
    expected = datetime.combine(first + timedelta(days=int(days)), time.fromisoformat(clock_time), tzinfo=UTC)
    moment = datetime.combine(first, time.fromisoformat(now), tzinfo=UTC)
    assert after_quiet_hours(choice, moment) == expected


def test_quiet_hours_are_those_of_a_person_s_own_clock(ada, rosa):
    """In their zone."""
    choice = choose(rosa, quiet_from=time(22), quiet_until=time(7), time_zone="Asia/Tokyo")
    due = after_quiet_hours(choice, datetime(2026, 5, 1, 14, 0, tzinfo=UTC))  # 23:00 in Tokyo
    assert due == datetime(2026, 5, 1, 22, 0, tzinfo=UTC)
