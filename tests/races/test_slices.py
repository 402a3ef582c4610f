"""Races over steps that are approved early: becoming ready, a second preview, or a cancellation at the same time."""

from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from approvals.models import ApprovalRequest, Review, Round
from catalog.errors import Conflict
from plans.actions import slices
from plans.actions.control import cancel_plan
from plans.actions.slices import ApprovalTerms, SliceItem
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.builders import act, approve, make_plan, work_off
from tests.races.acts import ROUNDS, drive
from tests.racing import Act, rounds_at_once, staggered

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]


@pytest.fixture
def gated(transactional_db: None, stage: Any, ada: User, rosa: User, checked: None) -> list[Plan]:
    """One plan a round: two dangerous steps, the first of which waits for approval and the second depends on it."""
    steps = act(1, "x", "dangerous"), act(2, "y", "dangerous", dependencies=[1])
    return [work_off(make_plan(ada, *steps)) for _ in range(ROUNDS)]


def early(plan: Plan) -> ApprovalRequest:
    """Open the request of the step that is not ready, for the reviewer."""
    return slices.prepare_slice(plan, 1, by=User.objects.get(username="rosa")).requests[0]


def approve_early(plan: Plan, request: ApprovalRequest, by: User) -> str:
    """Approve one request as a slice; return its result."""
    return slices.approve_slice(plan, [SliceItem(request.public_id, request.digest)], ApprovalTerms(by=by))[0].status


def approve_first(plans: list[Plan], by: User) -> None:
    """Approve the first step of each plan, so that the next one is ready as soon as it has run."""
    for plan in plans:
        approve(plan, by)


def test_two_browsers_ask_about_the_same_step(gated, rosa, stage, report_race):
    """One request is opened, and both previews show it."""
    look = partial(slices.prepare_slice, count=1, by=rosa)
    races: list[list[Act]] = [[partial(look, plan), partial(look, plan)] for plan in gated]
    for plan, found in zip(gated, rounds_at_once(races), strict=True):
        assert {each.pk for result in found for each in result.requests} == set(
            ApprovalRequest.objects.filter(plan_ref=plan.public_id, is_early=True).values_list("pk", flat=True)
        )
        assert ApprovalRequest.objects.filter(plan_ref=plan.public_id).count() == 2
    report_race("slice preview against itself", len(gated))


def test_a_slice_is_approved_while_its_step_becomes_ready(gated, rosa, tomas, stage, report_race):
    """The step runs once, whether the approval came before it was ready or after."""
    requests = [early(plan) for plan in gated]
    approve_first(gated, rosa)
    races: list[list[Act]] = [
        [partial(approve_early, plan, request, tomas), partial(drive, plan, 0)]
        for plan, request in zip(gated, requests, strict=True)
    ]
    seed = counts.seed()
    assert {result[0] for result in rounds_at_once(staggered(races, seed))} == {"approved"}
    for plan in gated:
        assert work_off(plan).status == "completed"
    assert sorted(stage.values("dangerous")) == ["x"] * len(gated) + ["y"] * len(gated)
    before = Review.objects.filter(person=tomas, at__lt=F("request__ready_at")).count()
    report_race("slice approval against the step becoming ready", len(gated), seed=seed, answered_before=before)


def test_a_step_is_asked_about_while_it_becomes_ready(gated, rosa, stage, report_race):
    """In the end the step has one open request, which is not early any more."""
    approve_first(gated, rosa)
    races: list[list[Act]] = [
        [partial(slices.prepare_slice, plan, 1, by=rosa), partial(drive, plan, 0)] for plan in gated
    ]
    seed = counts.seed()
    rounds_at_once(staggered(races, seed))
    for plan in gated:
        work_off(plan)
        open_ones = ApprovalRequest.objects.filter(plan_ref=plan.public_id, status="pending")
        assert [each.is_early for each in open_ones] == [False]
    waiting = Round.objects.filter(request__status="pending", created_at__lt=F("request__ready_at"))
    report_race("slice preview against the step becoming ready", len(gated), seed=seed, asked_before=waiting.count())


def test_a_plan_is_cancelled_while_its_slice_is_approved(gated, ada, tomas, stage, report_race):
    """The plan ends cancelled and nothing runs, whichever came first."""
    asked = [early(plan) for plan in gated]
    races: list[list[Act]] = [
        [partial(approve_early, plan, request, tomas), partial(cancel_plan, plan, by=Requester(ada))]
        for plan, request in zip(gated, asked, strict=True)
    ]
    seed = counts.seed()
    results = rounds_at_once(staggered(races, seed))
    for plan, (said, cancelled) in zip(gated, results, strict=True):
        assert said in ("approved", "conflict")
        assert not isinstance(cancelled, Conflict)
        request = ApprovalRequest.objects.get(plan_ref=plan.public_id, is_early=True)
        assert (request.status, work_off(plan).status) == ("withdrawn", "cancelled")
    assert stage.values("dangerous") == []
    approved = sum(said == "approved" for said, _ in results)
    report_race("slice approval against cancel", len(gated), seed=seed, approved=approved)
