"""Races of an answer against whatever else moves a request: one outcome, and a conflict for the other side."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, Review
from approvals.requests import deadlines
from approvals.requests.lifecycle import withdraw
from approvals.reviews.decisions import Decision, decide, revoke
from approvals.states import ReviewVerdict
from catalog.errors import Conflict
from plans.models import Plan
from tests import counts
from tests.builders import approve, call_of, request_of
from tests.races.acts import EXPIRED, RAN, approve_request, drive, expire, settled
from tests.racing import Act, in_order, rounds_at_once, staggered

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]

Answer = Callable[[ApprovalRequest, User], ApprovalRequest]


def _answer(verdict: ReviewVerdict, **more: Any) -> Answer:
    def give(request: ApprovalRequest, by: User) -> ApprovalRequest:
        return decide(request, by=by, decision=Decision(verdict, request.digest, **more))

    return give


edit = _answer(ReviewVerdict.APPROVE, arguments={"value": "edited"})
edit_otherwise = _answer(ReviewVerdict.APPROVE, arguments={"value": "edited otherwise"})
respond = _answer(ReviewVerdict.RESPOND, response="answered")
send_back = _answer(ReviewVerdict.REQUEST_CHANGES, comment="Smaller, please.")
PAIRS = {
    "approve against edit": (approve_request, edit),
    "approve against respond": (approve_request, respond),
    "approve against request_changes": (approve_request, send_back),
    "edit against edit": (edit, edit_otherwise),
    "edit against request_changes": (edit, send_back),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_one_of_two_answers_counts(pair, plans, reviewers, stage, report_race):
    """The other gets a conflict and leaves no review."""
    (one, other), (rosa, tomas) = PAIRS[pair], reviewers
    races: list[list[Act]] = [
        [partial(one, request_of(plan), rosa), partial(other, request_of(plan), tomas)] for plan in plans
    ]
    seed, first_won = counts.seed(), 0
    for plan, results in zip(plans, rounds_at_once(staggered(races, seed)), strict=True):
        assert sorted(type(each).__name__ for each in results) == ["ApprovalRequest", "Conflict"]
        review = Review.objects.select_related("person").get(request=request_of(plan))
        assert review.person == (rosa if isinstance(results[1], Conflict) else tomas)
        first_won += review.person == rosa
        assert_outcome(plan, review)
    assert len(stage.values("dangerous")) == Review.objects.filter(verdict="approve").count()
    report_race(pair, len(plans), seed=seed, first_won=first_won)


def assert_outcome(plan: Plan, review: Review) -> None:
    """Check that the plan continued by its one answer."""
    if review.verdict == ReviewVerdict.APPROVE:
        assert settled(plan) == RAN
    elif review.verdict == ReviewVerdict.RESPOND:
        assert settled(plan) == ("completed", "completed", "completed", "responded")
    else:
        assert settled(plan) == ("in_progress", "in_progress", "failed", "changes_requested")


def test_a_revocation_against_the_start(plans, rosa, tomas, stage, report_race):
    """Either the call runs and the revocation gets a conflict, or the call never starts."""
    for plan in plans:
        approve(plan, rosa)
    races: list[list[Act]] = [[partial(drive, plan, 0), partial(revoke, request_of(plan), by=tomas)] for plan in plans]
    seed, revoked = counts.seed(), 0
    for plan, (_, taken) in zip(plans, rounds_at_once(staggered(races, seed)), strict=True):
        if isinstance(taken, Conflict):
            assert settled(plan) == RAN
        else:
            revoked += 1
            assert settled(plan) == ("failed", "failed", "failed", "revoked")
    assert len(stage.values("dangerous")) == len(plans) - revoked
    report_race("start against revoke", len(plans), seed=seed, revoked=revoked)


def test_an_approval_against_a_withdrawal(plans, ada, rosa, stage, report_race):
    """The request ends withdrawn, approved before or not; a later approval gets a conflict."""
    races: list[list[Act]] = [
        [partial(approve_request, request_of(plan), rosa), partial(withdraw, request_of(plan), by=ada, reason="")]
        for plan in plans
    ]
    approvals = [first for first, _ in rounds_at_once(races)]
    assert {settled(plan) for plan in plans} == {("failed", "failed", "cancelled", "withdrawn")}
    assert all(isinstance(each, ApprovalRequest | Conflict) for each in approvals)
    assert stage.values("dangerous") == []
    report_race(
        "approve against withdraw",
        len(plans),
        approved_first=sum(isinstance(each, ApprovalRequest) for each in approvals),
    )


@pytest.mark.parametrize("plans", [counts.count(500, 75)], indirect=True, ids=["rounds"])
def test_an_approval_against_its_expiry(plans, rosa, stage, settings, report_race):
    """An approval runs, an expired request does not; the first two rounds force one order each.

    The time is the request's expiry, when an approval given before it has not expired yet.
    """
    settings.TOOLGATE_RUN_WINDOW_SECONDS = 7 * 24 * 3600
    races: list[list[Act]] = [
        [partial(approve_request, request, rosa), partial(expire, request)] for request in map(request_of, plans)
    ]
    seed = counts.seed()
    forced = [in_order(race, first) for first, race in enumerate(races[:2])]
    rounds_at_once([*forced, *staggered(races[2:], seed)])
    outcomes = [settled(plan) for plan in plans]
    assert outcomes[:2] == [RAN, EXPIRED][: len(outcomes)]
    assert set(outcomes) <= {RAN, EXPIRED}
    assert len(stage.values("dangerous")) == outcomes.count(RAN)
    report_race("approve against expire", len(plans), seed=seed, approved=outcomes.count(RAN))


def test_two_ends_by_the_clock(plans, stage):
    """A request expires once, however many tickers see that it is due."""
    races: list[list[Act]] = [
        [partial(deadlines.expire_if_due, request, request.expires_at)] * 2 for request in map(request_of, plans)
    ]
    assert all(sorted(results) == [False, True] for results in rounds_at_once(races))
    assert {call_of(plan).status for plan in plans} == {"failed"}
