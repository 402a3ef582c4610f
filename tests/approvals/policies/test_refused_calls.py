"""Stops by rule: the refusals of one token or person are counted, and one more than the rule bears sets a stop."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import AuditEntry, Delivery, PolicyRevision, RefusedCall, Stop
from approvals.notifications.messages import build_notice
from approvals.policies import refused_calls
from approvals.policies.refused_calls import clear_refused_calls, count_left_calls, record_refused_call
from approvals.policies.rulebook import rule_from_revision
from approvals.stops.services import lift_stop, scope_of_token, set_stop
from catalog.access.tokens import create_token
from catalog.core import clock
from catalog.errors import PolicyRefusal, ToolgateError
from catalog.models import ApiToken
from plans.actions.call import CallOrder, create_call
from plans.store.requesters import Requester
from tests import counts
from tests.approvals.factories import add_policy
from tests.builders import act, make_plan, work_off
from tests.conftest import forget_what_was_read
from tests.racing import at_once

pytestmark = pytest.mark.db
ROUNDS = counts.count(500, share=100)


@pytest.fixture
def rule(transactional_db: None, stage: Any) -> PolicyRevision:
    """A policy that blocks cautious calls and bears two of them in a minute."""
    terms = {"safety_level": "cautious", "message": "Not today.", "stop_after": {"count": 2, "seconds": 60}}
    revision = add_policy(1, effect="deny", **terms)
    forget_what_was_read()
    return revision


@pytest.fixture
def token(ada: User) -> ApiToken:
    """An agent's token of ada."""
    return create_token(user=ada, kind=ApiToken.Kind.AGENT, scopes=["calls:create"])[0]


def be_refused(by: Requester, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(PolicyRefusal):
            create_call(CallOrder("cautious", {"value": "x"}), by=by)


def standing() -> list[tuple[str, str]]:
    """Return kind and key of each standing stop."""
    return list(Stop.objects.filter(lifted_at=None).order_by("pk").values_list("kind", "key"))


def refuse_at(rule: PolicyRevision, ada: User, *ages: float) -> list[RefusedCall]:
    """Store refusals so many seconds ago without counting them."""
    now = clock.now()
    times = [now - timedelta(seconds=age) for age in ages]
    return [RefusedCall.objects.create(revision=rule, person=ada, at=each) for each in times]


def test_one_more_than_the_count_stops_the_token(rule, ada, admin, token):
    by = Requester(ada, token)
    be_refused(by, 2)
    assert not standing()
    be_refused(by)
    assert standing() == [("token", str(token.pk))]
    [stop] = Stop.objects.all()
    assert (stop.set_by, stop.set_by_name) == (None, "the policy “Policy 1”")
    assert stop.reason == "The policy “Policy 1” refused more than 2 calls in 1 min."
    [entry] = AuditEntry.objects.filter(action="stop.set")
    assert (entry.actor, entry.details_json["through"]) == (None, "the policy “Policy 1”")
    assert not RefusedCall.objects.exists()


def test_calls_without_a_token_stop_the_person(rule, ada, ben, token):
    be_refused(Requester(ben), 2)
    be_refused(Requester(ada), 2)
    be_refused(Requester(ada, token), 2)
    assert not standing()
    be_refused(Requester(ada))
    assert standing() == [("requester", str(ada.pk))]


def test_refused_steps_count(rule, ada):
    work_off(make_plan(ada, *[act(number, "x", "cautious") for number in (1, 2, 3)]))
    assert standing() == [("requester", str(ada.pk))]


@pytest.mark.parametrize("terms", [{"stop_after": None}, {"mode": "trial"}])
def test_rules_without_it_or_on_trial_set_none(rule, ada, terms):
    PolicyRevision.objects.filter(pk=rule.pk).update(**terms)
    PolicyRevision.objects.filter(safety_level="cautious").exclude(pk=rule.pk).update(effect="deny")
    forget_what_was_read()
    be_refused(Requester(ada), 3)
    assert not standing()
    assert not RefusedCall.objects.exists()


def test_refusal_that_is_rolled_back_does_not_count(rule, ada):
    class Lost(Exception):
        """The transaction fails after the refusal."""

    for _ in range(3):
        with pytest.raises(Lost), transaction.atomic():
            be_refused(Requester(ada))
            raise Lost
    assert not standing()


def test_window_moves(rule, ada):
    refuse_at(rule, ada, 130, 100, 61)
    assert count_left_calls() == 0
    refuse_at(rule, ada, 39)
    assert count_left_calls() == 0
    refuse_at(rule, ada, 38)
    assert count_left_calls() == 1


def test_refusals_that_a_dying_process_left_are_counted(rule, ada, monkeypatch):
    monkeypatch.setattr(refused_calls, "count_refused_calls", lambda refused_pk: False)
    be_refused(Requester(ada), 3)
    monkeypatch.undo()
    assert not standing()
    assert count_left_calls() == 1
    assert standing() == [("requester", str(ada.pk))]


def test_standing_stop_is_left_alone_and_counting_begins_anew(rule, ada, admin, token):
    by = Requester(ada, token)
    stop = set_stop(scope_of_token(token), "By hand.", by=admin)
    for _ in range(3):
        record_refused_call(rule_from_revision(rule), token_id=token.pk, person_id=ada.pk, now=clock.now())
    assert Stop.objects.get().reason == "By hand."
    lift_stop(stop, "Over.", by=admin)
    be_refused(by, 2)
    assert not standing()
    be_refused(by)
    assert len(standing()) == 1


def test_administrators_are_notified_once(rule, ada, admin, token, settings):
    settings.TOOLGATE_SENDS_MAIL = True
    User.objects.filter(pk=admin.pk).update(email="admin@example.org")
    be_refused(Requester(ada, token), 3)
    [delivery] = Delivery.objects.filter(kind="stop.set")
    assert "Stopped: token" in build_notice(delivery).subject
    assert delivery.person == admin


def test_old_rows_are_deleted(rule, ada):
    refuse_at(rule, ada, 31 * 86_400, 29 * 86_400)
    assert clear_refused_calls(now=clock.now()) == 1


@pytest.mark.slow
def test_race_of_refusals_sets_exactly_one_stop(rule, ada, admin):
    """Of four refusals at once with a count of three, the last to commit sets the stop; with three, none does."""
    PolicyRevision.objects.filter(pk=rule.pk).update(stop_after={"count": 3, "seconds": 3600})
    forget_what_was_read()
    for number in range(ROUNDS):
        exceeds = number % 2 == 0
        token, _ = create_token(user=ada, kind=ApiToken.Kind.AGENT, scopes=["calls:create"])
        order = partial(create_call, CallOrder("cautious", {"value": "x"}), by=Requester(ada, token))
        results = at_once(*[order] * (4 if exceeds else 3))
        assert all(isinstance(each, ToolgateError) for each in results)
        assert (("token", str(token.pk)) in standing()) == exceeds
        assert AuditEntry.objects.filter(action="stop.set").count() == number // 2 + 1
