"""Reminders at 50 % and 90 % of the time, each sent once."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.deadlines import TIME_BETWEEN_REMINDERS, expire_due, remind, send_due_reminders
from approvals.requests.lifecycle import next_reminder
from approvals.reviews.decisions import decide
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict
from catalog.signals import Fact, fact
from tests import counts
from tests.approvals.factories import approval, ask, set_rule
from tests.racing import at_once

HOUR = timedelta(hours=1)

pytestmark = [pytest.mark.django_db, pytest.mark.db]


@pytest.fixture
def reminders():
    """Data of the reminders recorded during the test."""
    heard: list[dict[str, Any]] = []

    def hear(sender, *, fact: Fact, **kwargs):
        if fact.kind == "approval.reminded":
            heard.append(fact.data)

    fact.connect(hear, weak=False)
    yield heard
    fact.disconnect(hear)


def test_two_reminders_are_sent(ada, reminders):
    request = ask(ada)
    opened = request.opened_at
    reminded = [bool(send_due_reminders(opened + hours * HOUR)) for hours in (11.9, 12, 12, 21.5, 21.6, 23.9)]
    assert reminded == [False, True, False, False, True, False]
    assert [each["number"] for each in reminders] == [1, 2]
    assert {each["approval"] for each in reminders} == {request.public_id}
    request.refresh_from_db()
    assert (request.reminders, request.remind_at) == (2, None)
    assert not AuditEntry.objects.filter(action="approval.reminded").exists()


def test_late_ticker_sends_one_reminder(ada, reminders):
    """If both reminders are overdue, only one is sent."""
    request = ask(ada)
    assert send_due_reminders(request.opened_at + 23 * HOUR) == 1
    assert send_due_reminders(request.opened_at + 23 * HOUR) == 0
    assert len(reminders) == 1


def test_closed_requests_have_no_reminders(ada, rosa, reminders):
    answered, expired, early = ask(ada), ask(ada), ask(ada)
    set_rule(remind=False)
    quiet = ask(ada)
    assert quiet.remind_at is None
    decide(answered, by=rosa, decision=approval(answered))
    ApprovalRequest.objects.filter(pk=expired.pk).update(expires_at=clock.now())
    ApprovalRequest.objects.filter(pk=early.pk).update(is_early=True)
    assert send_due_reminders(clock.now() + 12 * HOUR) == 0
    assert reminders == []


def test_escalation_restarts_reminders(ada, reminders):
    set_rule(on_expiry="escalate", escalate_to="administrator", expires_seconds=3600)
    request = ask(ada)
    late = request.opened_at + HOUR
    expire_due(late)
    request.refresh_from_db()
    assert (request.escalated_to, request.remind_at) == ("administrator", late + HOUR / 2)
    assert [send_due_reminders(late + HOUR * part) for part in (0.49, 0.5, 0.89, 0.9)] == [0, 1, 0, 1]


@pytest.mark.slow
def test_concurrent_tickers_remind_once(transactional_db, ada, reminders):
    for _ in range(counts.count(100)):
        request = ask(ada)
        at_once(*[partial(send_due_reminders, request.opened_at + 12 * HOUR)] * 4)
    assert len(reminders) == len({each["approval"] for each in reminders}) == ApprovalRequest.objects.count()


def test_reminder_times():
    opened = clock.now()
    ends = opened + 10 * HOUR
    moments = [next_reminder(opened, ends, opened + hours * HOUR) for hours in (0, 5, 9)]
    assert moments == [opened + 5 * HOUR, opened + 9 * HOUR, None]


def test_person_can_have_reviewers_reminded_once_in_ten_minutes(ada, rosa, reminders):
    request = ask(ada)
    remind(request, by=ada)
    with pytest.raises(Conflict, match="ten minutes"):
        remind(request, by=rosa)
    assert [(each["number"], each["asked_by"]) for each in reminders] == [(1, "Ada")]
    assert AuditEntry.objects.get(action="approval.reminded").actor_name == "ada"
    ApprovalRequest.objects.update(reminded_at=clock.now() - TIME_BETWEEN_REMINDERS)
    remind(request, by=rosa)
    assert [each["number"] for each in reminders] == [1, 2]


def test_reminder_is_refused(ada, rosa, vera, reminders):
    request, answered = ask(ada), ask(ada)
    with pytest.raises(NotAllowed):
        remind(request, by=vera)
    decide(answered, by=rosa, decision=approval(answered))
    with pytest.raises(Conflict):
        remind(answered, by=ada)
    ApprovalRequest.objects.filter(pk=request.pk).update(expires_at=clock.now())
    with pytest.raises(Conflict):
        remind(request, by=ada)
    assert reminders == []
