"""Races of two people over one plan: one decides, the other gets a conflict, and what runs is what was approved."""

from functools import partial

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, Review
from approvals.reviews.decisions import Decision, decide
from approvals.states import ReviewVerdict
from catalog.errors import Conflict
from plans.actions.change import change_plan, read_plan_change
from plans.models import Plan
from plans.store.requesters import Requester
from tests import counts
from tests.builders import request_of
from tests.races.acts import EXPIRED, RAN, approve_request, drive, settled
from tests.racing import Act, rounds_at_once, staggered
from tests.waiting import eventually

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]


def reject(request: ApprovalRequest, by: User) -> ApprovalRequest:
    """Reject a request."""
    return decide(request, by=by, decision=Decision(ReviewVerdict.REJECT, request.digest, comment="No."))


def edit(plan: Plan, step_id: int) -> str:
    """Change the parameter of a step, as the plan's owner."""
    change = read_plan_change({"edit": [{"step_id": step_id, "parameters": {"value": "edited"}}]})
    change_plan(plan, change, by=Requester(plan.author))
    return "edited"


def edit_once_decided(plan: Plan, request: ApprovalRequest) -> str:
    """Change the parameter of step 2 as soon as the request of step 1 is decided."""
    decided = ApprovalRequest.objects.filter(pk=request.pk).exclude(status="pending")
    eventually(decided.exists, what="the decision")
    return edit(plan, 2)


def approve_and_drive(plan: Plan, request: ApprovalRequest, by: User) -> None:
    """Approve, then drive the plan as a worker."""
    approve_request(request, by)
    drive(plan, 0)


@pytest.mark.parametrize("other", [approve_request, reject])
def test_one_of_two_reviewers_decides(other, plans, reviewers, stage, report_race):
    """The other gets a conflict, and the plan continues by the one decision."""
    first, second = reviewers
    races: list[list[Act]] = [
        [partial(approve_request, request_of(plan), first), partial(other, request_of(plan), second)] for plan in plans
    ]
    seed = counts.seed()
    for plan, results in zip(plans, rounds_at_once(staggered(races, seed)), strict=True):
        assert sorted(type(each).__name__ for each in results) == ["ApprovalRequest", "Conflict"]
        verdict = Review.objects.get(request=request_of(plan)).verdict
        assert settled(plan) == {"approve": RAN, "reject": (*EXPIRED[:3], "rejected")}[verdict]
    assert len(stage.values("dangerous")) == Review.objects.filter(verdict="approve").count()
    pair = f"approve against {'reject' if other is reject else 'approve'}"
    report_race(pair, len(plans), seed=seed, first_won=Review.objects.filter(person=first).count())


def test_approve_against_an_edit_of_what_waits(plans, rosa, stage, report_race):
    """A waiting step cannot be edited: it runs as it was shown to the reviewer."""
    races: list[list[Act]] = [
        [partial(approve_request, request_of(plan), rosa), partial(edit, plan, 1)] for plan in plans
    ]
    for plan, (_, edited) in zip(plans, rounds_at_once(races), strict=True):
        assert isinstance(edited, Conflict)
        assert settled(plan) == RAN
    assert stage.values("dangerous") == ["x"] * len(plans)
    report_race("approve against edit of the waiting step", len(plans))


def test_approve_against_an_edit_of_what_follows(plans, rosa, stage, report_race):
    """The next step runs once: as edited if the edit came in time, as it was if the edit was refused."""
    races: list[list[Act]] = [
        [partial(approve_and_drive, plan, request_of(plan), rosa), partial(edit_once_decided, plan, request_of(plan))]
        for plan in plans
    ]
    edited = [second for _, second in rounds_at_once(races)]
    assert all(each == "edited" or isinstance(each, Conflict) for each in edited)
    assert {settled(plan) for plan in plans} == {RAN}
    in_time = edited.count("edited")
    assert sorted(stage.values("safe")) == sorted(["edited"] * in_time + ["y"] * (len(plans) - in_time))
    report_race("approve and run against edit of the next step", len(plans), edited_in_time=in_time)
