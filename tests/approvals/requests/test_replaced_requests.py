"""Replaced requests: the recorded change, and the link to the replacement."""

import pytest

from approvals.errors import Drift
from approvals.requests.lifecycle import find_request_change
from catalog.results import Preview
from plans.live.waits import standing_in
from plans.models import Plan
from tests.builders import act, approve, call_of, make_plan, request_of, work_off

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(stage, ada) -> Plan:
    """A plan whose dangerous step waits for approval."""
    return work_off(make_plan(ada, act(1, "x", "dangerous")))


def test_change_keeps_both_rounds(plan, stage, rosa):
    old = approve(plan, rosa)
    stage.previews["dangerous"] = lambda value, context: Preview("Do x otherwise", "text", state_token="another")
    work_off(plan)
    change = find_request_change(request_of(plan))
    assert change is not None
    assert (change.what, change.was_approved, change.before.request) == (Drift.STATE, True, old)
    assert (change.before.state_token, change.after.state_token) == ("as it was", "another")
    old.refresh_from_db()
    assert (old.status, old.superseded_by, old.call.error_kind) == ("superseded", request_of(plan), "changed:state")


def test_first_request_has_no_change(plan):
    assert find_request_change(request_of(plan)) is None


def test_long_poll_follows_the_replacement(plan, stage, rosa):
    old = call_of(plan)
    assert standing_in(old.public_id) == (old.public_id, True)
    approve(plan, rosa)
    stage.previews["dangerous"] = lambda value, context: Preview("Do x otherwise", "text", state_token="another")
    work_off(plan)
    new = call_of(plan)
    assert new.pk != old.pk and standing_in(old.public_id) == (new.public_id, True)
    approve(plan, rosa)
    work_off(plan)
    assert standing_in(old.public_id) == (new.public_id, False)
