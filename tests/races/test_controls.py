"""Races of owners and workers: nothing starts after a pause or a cancellation, and one of two controls succeeds."""

from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from catalog.errors import Conflict
from plans.actions.control import pause_plan, resume_plan
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.builders import act, approve, assert_gapless, events_of, make_plan, work_off
from tests.races.acts import ROUNDS, cancel, drive
from tests.racing import Act, rounds_at_once

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]
STARTS = ("step.started", "call.started")


@pytest.fixture
def chains(transactional_db: None, stage: Any, ada: User) -> list[Plan]:
    """Plans of several steps in a row, ready to be worked on."""
    links = [act(number, number, dependencies=[number - 1] if number > 1 else []) for number in range(1, 7)]
    return [make_plan(ada, *links) for _ in range(ROUNDS)]


def pause(plan: Plan) -> str:
    """Pause a plan as its owner."""
    pause_plan(plan, by=Requester(plan.author))
    return "paused"


def resume(plan: Plan) -> str:
    """Resume a plan as its owner."""
    resume_plan(plan, by=Requester(plan.author))
    return "resumed"


def starts_after(plan: Plan, kind: str) -> list[str]:
    """Return the types of the start events after the event of this kind."""
    seq = plan.events.get(type=kind).seq
    return list(plan.events.filter(seq__gt=seq, type__in=STARTS).values_list("type", flat=True))


def test_pause_against_claims(chains, stage):
    """No step starts after the pause is committed; each remaining step runs once after the resume."""
    races: list[list[Act]] = [
        [partial(drive, plan, 0), partial(drive, plan, 1), partial(pause, plan)] for plan in chains
    ]
    for plan, (*_, paused) in zip(chains, rounds_at_once(races), strict=True):
        if isinstance(paused, Conflict):  # all its steps had run
            continue
        assert starts_after(plan, "plan.paused") == []
        if Plan.objects.get(pk=plan.pk).paused_at is not None:
            resume(plan)
        assert work_off(plan).status == "completed"
        assert_gapless(plan)
    assert len(stage.values("safe")) == 6 * ROUNDS


def test_pause_against_the_start_of_an_approved_call(transactional_db, stage, ada, rosa):
    """The call starts once, before the pause or after the resume."""
    plans = [work_off(make_plan(ada, act(1, "x", tool="dangerous"))) for _ in range(ROUNDS)]
    for plan in plans:
        approve(plan, rosa)
    results = rounds_at_once([[partial(drive, plan, 0), partial(pause, plan)] for plan in plans])
    for plan, (_, paused) in zip(plans, results, strict=True):
        if paused == "paused":
            events = events_of(plan)
            assert "1 call.started" not in events[events.index("plan.paused") :]
        if Plan.objects.get(pk=plan.pk).paused_at is not None:
            resume(plan)
        assert work_off(plan).status == "completed"
        assert_gapless(plan)
    assert len(stage.values("dangerous")) == ROUNDS


def test_cancel_against_claims(chains):
    """No step starts after the plan is cancelled."""
    races: list[list[Act]] = [
        [partial(drive, plan, 0), partial(drive, plan, 1), partial(cancel, plan)] for plan in chains
    ]
    for plan, (*_, cancelled) in zip(chains, rounds_at_once(races), strict=True):
        plan.refresh_from_db()
        if cancelled == "cancelled":
            assert starts_after(plan, "plan.cancelled") == []
        assert plan.status == ("cancelled" if cancelled == "cancelled" else "completed")
        assert not plan.steps.exclude(claimed_by="", lease_until=None, ready_at=None).exists()
        assert_gapless(plan)


def test_two_resume_at_once(chains):
    """One succeeds, the other gets a conflict since the plan is not paused any more."""
    for plan in chains:
        pause(plan)
    for plan, results in zip(chains, rounds_at_once([[partial(resume, plan)] * 2 for plan in chains]), strict=True):
        assert sorted(type(each).__name__ for each in results) == ["Conflict", "str"]
        assert events_of(plan).count("plan.resumed") == 1
        assert work_off(plan).status == "completed"


def test_pause_against_resume(chains):
    """The plan ends paused if the resume came first; otherwise the second pause gets a conflict."""
    for plan in chains:
        pause(plan)
    for plan, (paused, resumed) in zip(
        chains, rounds_at_once([[partial(pause, plan), partial(resume, plan)] for plan in chains]), strict=True
    ):
        assert resumed == "resumed"
        again = not isinstance(paused, Conflict)
        assert (Plan.objects.get(pk=plan.pk).paused_at is not None) == again
        assert events_of(plan).count("plan.paused") == 1 + again
        assert_gapless(plan)
