"""Every answer against every other way in which a request moves on: one outcome, and the loser is told of it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import expiry
from approvals.decisions import Decision, decide, revoke
from approvals.models import ApprovalRequest, Review
from approvals.requests import withdraw
from approvals.states import Verdict
from catalog.access import name_of
from catalog.errors import Conflict
from plans.models import Plan
from tests import counts
from tests.builders import approve, call_of, request_of
from tests.races.test_plans import EXPIRED, RAN, drive, expire, say, settled
from tests.racing import Act, rounds_at_once, staggered

pytestmark = pytest.mark.timeout(counts.seconds(1800))

Answer = Callable[[ApprovalRequest, User], ApprovalRequest]


def _answer(verdict: Verdict, **more: Any) -> Answer:
    def give(request: ApprovalRequest, by: User) -> ApprovalRequest:
        return decide(request, by=by, decision=Decision(verdict, request.digest, **more))

    return give


edit = _answer(Verdict.APPROVE, arguments={"value": "edited"})
edit_otherwise = _answer(Verdict.APPROVE, arguments={"value": "edited otherwise"})
respond = _answer(Verdict.RESPOND, response="answered")
send_back = _answer(Verdict.REQUEST_CHANGES, comment="Smaller, please.")
PAIRS = {
    "approve against edit": (say, edit),
    "approve against respond": (say, respond),
    "approve against request_changes": (say, send_back),
    "edit against edit": (edit, edit_otherwise),
    "edit against request_changes": (edit, send_back),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_one_of_two_answers_counts(pair, plans, reviewers, stage, report_race):
    """The other is told who answered, and leaves no review and no round."""
    (one, other), (rosa, tomas) = PAIRS[pair], reviewers
    races: list[list[Act]] = [
        [partial(one, request_of(plan), rosa), partial(other, request_of(plan), tomas)] for plan in plans
    ]
    seed, first_won = counts.seed(), 0
    for plan, results in zip(plans, rounds_at_once(staggered(races, seed)), strict=True):
        assert sorted(type(each).__name__ for each in results) == ["ApprovalRequest", "Conflict"]
        review = Review.objects.select_related("person").get(request=request_of(plan))
        lost = next(each for each in results if isinstance(each, Conflict))
        assert name_of(review.person) in lost.message or "has changed since you looked" in lost.message
        assert "Your answer was not recorded." in lost.message
        first_won += review.person == rosa
        assert_outcome(plan, review)
    assert len(stage.values("dangerous")) == Review.objects.filter(verdict="approve").count()
    report_race(pair, len(plans), seed=seed, first_won=first_won)


def assert_outcome(plan: Plan, review: Review) -> None:
    """Check that the plan went the way of the one answer."""
    if review.verdict == Verdict.APPROVE:
        assert settled(plan) == RAN
    elif review.verdict == Verdict.RESPOND:
        assert settled(plan) == ("completed", "completed", "completed", "responded")
    else:
        assert settled(plan) == ("in_progress", "in_progress", "failed", "changes_requested")


def test_a_revocation_against_the_start(plans, rosa, tomas, stage, report_race):
    """Either it runs, and the revocation is told so, or it never starts."""
    for plan in plans:
        approve(plan, rosa)
    races: list[list[Act]] = [[partial(drive, plan, 0), partial(revoke, request_of(plan), by=tomas)] for plan in plans]
    seed, revoked = counts.seed(), 0
    for plan, (_, taken) in zip(plans, rounds_at_once(staggered(races, seed)), strict=True):
        if isinstance(taken, Conflict):
            assert "Rosa approved this" in taken.message and settled(plan) == RAN
        else:
            revoked += 1
            assert settled(plan) == ("failed", "failed", "failed", "revoked")
    assert len(stage.values("dangerous")) == len(plans) - revoked
    report_race("start against revoke", len(plans), seed=seed, revoked=revoked)


def test_an_approval_against_a_withdrawal(plans, ada, rosa, stage, report_race):
    """Withdrawn is the end, whether it was approved before; who comes too late is told so."""
    races: list[list[Act]] = [
        [partial(say, request_of(plan), rosa), partial(withdraw, request_of(plan), by=ada, reason="")] for plan in plans
    ]
    told = [first for first, _ in rounds_at_once(races)]
    assert {settled(plan) for plan in plans} == {("failed", "failed", "cancelled", "withdrawn")}
    late = [each for each in told if isinstance(each, Conflict)]
    assert all("was withdrawn" in each.message for each in late)
    assert stage.values("dangerous") == []
    report_race("approve against withdraw", len(plans), approved_first=len(plans) - len(late))


@pytest.mark.parametrize("plans", [counts.count(500, 25)], indirect=True, ids=["rounds"])
def test_an_approval_against_its_expiry(plans, rosa, stage, settings, report_race):
    """Each wins some, of rounds enough for that.

    The moment is that of the request's end, at which an approval before it has not run out.
    """
    settings.TOOLGATE_RUN_WINDOW_SECONDS = 7 * 24 * 3600
    races: list[list[Act]] = [
        [partial(say, request, rosa), partial(expire, request)] for request in map(request_of, plans)
    ]
    seed = counts.seed()
    rounds_at_once(staggered(races, seed))
    outcomes = [settled(plan) for plan in plans]
    assert set(outcomes) == {RAN, EXPIRED}
    assert len(stage.values("dangerous")) == outcomes.count(RAN)
    report_race("approve against expire", len(plans), seed=seed, approved=outcomes.count(RAN))


def test_two_ends_by_the_clock(plans, stage):
    """A request expires once, however many look."""
    races: list[list[Act]] = [
        [partial(expiry.expire_if_due, request, request.expires_at)] * 2 for request in map(request_of, plans)
    ]
    assert all(sorted(results) == [False, True] for results in rounds_at_once(races))
    assert {call_of(plan).status for plan in plans} == {"failed"}
