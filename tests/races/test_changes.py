"""Races of owners and workers: a change, a skip or a retry succeeds as a whole or changes nothing."""

from functools import partial
from typing import Any

import pytest

from catalog.errors import Conflict, ToolError
from catalog.models import Call
from plans.actions.change import change_plan, read_plan_change
from plans.actions.retry import retry_plan
from plans.actions.skip import skip_step
from plans.models import Plan
from plans.store.plan_documents import step_documents
from plans.store.requesters import Requester
from tests import counts
from tests.builders import act, approve, assert_gapless, call_of, make_plan, request_of, step_of, work_off
from tests.plans.factories import act_raising
from tests.races.acts import ROUNDS, cancel, drive
from tests.racing import rounds_at_once

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.timeout(counts.seconds(1800))]


def change(plan: Plan, **fields: Any) -> str:
    """Change a plan as its owner."""
    change_plan(plan, read_plan_change(fields), by=Requester(plan.author))
    return "changed"


def skip(plan: Plan, number: int = 1) -> str:
    """Skip a step as the plan's owner."""
    skip_step(plan, number, "Done by hand.", by=Requester(plan.author))
    return "skipped"


def retry(plan: Plan) -> str:
    """Retry a plan as its owner."""
    retry_plan(plan, by=Requester(plan.author))
    return "retried"


def failed_plans(stage: Any, author: Any) -> list[Plan]:
    """Return plans that failed at their second step, whose tool works from now on."""
    stage.acts["keeping"] = act_raising(ToolError("no"))
    steps = act(1), act(2, tool="keeping", dependencies=[1]), act(3, dependencies=[2])
    plans = [work_off(make_plan(author, *steps)) for _ in range(ROUNDS)]
    stage.clear()
    return plans


def test_change_against_claims(transactional_db, stage, ada):
    """Either the change is applied and the edited step runs as edited, or it is refused and the step runs as it was."""
    plans = [make_plan(ada, act(1), act(2, "old", dependencies=[1]), act(3, dependencies=[2])) for _ in range(ROUNDS)]
    edit = {"edit": [{"step_id": 2, "parameters": {"value": "new"}}], "add": [act(4, "added", dependencies=[2])]}
    results = rounds_at_once([[partial(drive, plan, 0), partial(change, plan, **edit)] for plan in plans])
    changed = 0
    for plan, (_, outcome) in zip(plans, results, strict=True):
        assert work_off(plan).status == "completed"
        won = outcome == "changed"
        changed += won
        assert won or isinstance(outcome, Conflict)
        assert (len(step_documents(plan)), call_of(plan, 2).arguments_json) == (
            3 + won,
            {"value": "new" if won else "old"},
        )
        assert_gapless(plan)
    assert (stage.values("safe").count("new"), stage.values("safe").count("added")) == (changed, changed)


def test_removal_against_claims(transactional_db, stage, ada):
    """A removed step never runs; a step that ran is not removed."""
    plans = [make_plan(ada, act(1, "first"), act(2, "last", dependencies=[1])) for _ in range(ROUNDS)]
    results = rounds_at_once([[partial(drive, plan, 0), partial(change, plan, remove=[2])] for plan in plans])
    removed = sum(outcome == "changed" for _, outcome in results)
    for plan in plans:
        assert work_off(plan).status == "completed"
        assert_gapless(plan)
    assert stage.values("safe").count("last") == ROUNDS - removed


def test_skip_against_claims(transactional_db, stage, ada):
    """A skipped step never runs, one that has started is not skipped."""
    plans = [make_plan(ada, act(1, "first"), act(2, "on", dependencies=[1])) for _ in range(ROUNDS)]
    results = rounds_at_once([[partial(drive, plan, 0), partial(skip, plan)] for plan in plans])
    skipped = sum(outcome == "skipped" for _, outcome in results)
    for plan, (_, outcome) in zip(plans, results, strict=True):
        assert work_off(plan).status == "completed"
        assert step_of(plan).skipped == (outcome == "skipped")
        assert_gapless(plan)
    assert (stage.values("safe").count("first"), stage.values("safe").count("on")) == (ROUNDS - skipped, ROUNDS)


def test_skip_against_approve(transactional_db, stage, ada, rosa):
    """The call runs once or never: a skip that comes first withdraws the request."""
    plans = [work_off(make_plan(ada, act(1, tool="dangerous"), act(2, dependencies=[1]))) for _ in range(ROUNDS)]
    results = rounds_at_once(
        [[partial(skip, plan), partial(approve, plan, rosa), partial(drive, plan, 0)] for plan in plans]
    )
    ran = 0
    for plan, (skipped, _, _) in zip(plans, results, strict=True):
        assert work_off(plan).status == "completed"
        won = skipped == "skipped"
        ran += not won
        assert won or isinstance(skipped, Conflict)
        assert (step_of(plan).skipped, request_of(plan).status) == (won, "withdrawn" if won else "consumed")
        assert_gapless(plan)
    assert len(stage.values("dangerous")) == ran


def test_two_retries(transactional_db, stage, ada):
    """One of them succeeds, and the failed step is tried again once."""
    plans = failed_plans(stage, ada)
    results = rounds_at_once([[partial(retry, plan), partial(retry, plan), partial(drive, plan, 0)] for plan in plans])
    for plan, (first, second, _) in zip(plans, results, strict=True):
        assert sorted(isinstance(each, Conflict) for each in (first, second)) == [False, True]
        assert work_off(plan).status == "completed"
        assert Call.objects.filter(plan_ref=plan.public_id, step_ref="2").count() == 2
        assert_gapless(plan)
    assert len(stage.values("keeping")) == ROUNDS


def test_retry_against_cancel(transactional_db, stage, ada):
    """The retry always succeeds; the cancellation succeeds only after it, since a failed plan cannot be cancelled."""
    plans = failed_plans(stage, ada)
    results = rounds_at_once([[partial(retry, plan), partial(cancel, plan)] for plan in plans])
    for plan, (retried, cancelled) in zip(plans, results, strict=True):
        assert retried == "retried"
        over = "completed" if isinstance(cancelled, Conflict) else "cancelled"
        assert work_off(plan).status == over
        assert plan.steps.filter(status="pending").count() == 0
        assert_gapless(plan)
