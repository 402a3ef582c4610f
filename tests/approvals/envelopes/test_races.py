"""Envelopes under real threads: twenty calls for ten places, and an end at the same moment as a use."""

from functools import partial
from time import sleep
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.envelopes.services import end_envelope
from approvals.models import EnvelopeItem, EnvelopeMismatch, EnvelopeUse
from catalog.core.transactions import retry_on_lock
from catalog.errors import Conflict
from plans.models import Plan
from plans.states import StepStatus, WaitingFor
from plans.store.requesters import Requester
from tests import counts
from tests.approvals.factories import item, open_envelope
from tests.builders import act, make_plan, work_off
from tests.invariants import assert_invariants
from tests.racing import at_once

pytestmark = [pytest.mark.slow, pytest.mark.db, pytest.mark.timeout(counts.seconds(3600))]
ROUNDS = counts.count(500, share=250)
CALLS, PLACES = 20, 10
STEP_TERMINAL = (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.CANCELLED)


@pytest.fixture
def racing(transactional_db: None, stage: Any, ada: User, rosa: User, settings: Any) -> Requester:
    """Ada on a page, in a session of her own."""
    settings.TOOLGATE_UNDO_SECONDS = settings.TOOLGATE_MAX_PENDING_PER_REQUESTER = 0
    return Requester(ada, None, "rest", "race")


def work_off_whole(plan: Plan) -> None:
    """Do a plan's step until its call has ended or waits for people: a loaded database postpones starts."""
    while plan.steps.exclude(status__in=STEP_TERMINAL).exclude(waiting_for=WaitingFor.APPROVAL).exists():
        retry_on_lock(work_off)(plan)
        sleep(0.01)


def plans(by: Requester, number: int, value: object = 0.1) -> list[Plan]:
    """Return plans of one dangerous step each, of the requester's session."""
    made = [make_plan(by.user, act(1, value, "dangerous")) for _ in range(number)]
    Plan.objects.filter(pk__in=[plan.pk for plan in made]).update(session=by.session)
    return made


@pytest.mark.parametrize(
    "terms",
    [item(count=PLACES), item(rows=[], count=CALLS, sum={"path": "value", "at_most": PLACES / 10})],
    ids=["count", "sum"],
)
def test_twenty_calls_at_once_get_exactly_ten_places(terms, racing, rosa):
    for number in range(ROUNDS):
        open_envelope(racing, rosa, terms, **{"for": {"session": racing.session}})
        made = plans(racing, CALLS)
        at_once(*[partial(work_off_whole, plan) for plan in made])
        used = EnvelopeItem.objects.latest("pk")
        refs = [plan.public_id for plan in made]
        assert EnvelopeUse.objects.filter(call__plan_ref__in=refs).count() == PLACES == used.used
        assert EnvelopeMismatch.objects.filter(call__plan_ref__in=refs).count() == CALLS - PLACES, number
        if used.envelope.status == "open":
            end_envelope(used.envelope, reason="Next round", by=rosa)
    assert_invariants()


def test_end_races_with_use(racing, rosa):
    for _ in range(ROUNDS):
        envelope, [plan] = open_envelope(racing, rosa, **{"for": {"session": racing.session}}), plans(racing, 1)
        results = at_once(partial(work_off_whole, plan), partial(end_envelope, envelope, reason="Enough", by=rosa))
        assert not any(isinstance(each, Conflict) for each in results)
        envelope.refresh_from_db()
        uses = EnvelopeUse.objects.filter(call__plan_ref=plan.public_id).count()
        assert (envelope.status, envelope.items.get().used) == ("ended", uses)
    assert_invariants()
