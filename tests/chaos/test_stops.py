"""A plan that runs in one process and is cancelled from another."""

import pytest

from plans.actions.control import cancel_plan
from plans.models import Plan
from plans.store.requesters import Requester
from tests.builders import assert_gapless, call_of, make_plan, step, step_of
from tests.waiting import eventually

pytestmark = pytest.mark.nightly


def test_a_cancellation_reaches_the_process_that_runs_the_handler(serving, evidence, ada, tmp_path):
    """The step ends, the handler that cannot be stopped is recorded, and so is its late result."""
    plan = make_plan(ada, step(1, "safe_work", parameters={"gate": "open"}), step(2, "safe_work", dependencies=[1]))
    serving.environment["TOOLGATE_LEASE_SECONDS"] = "30"  # longer than the test, so that no lease is lost
    serving.start()
    eventually(
        lambda: serving.marks()[(call_of(plan).public_id, "began")] if step_of(plan).call else 0, what="the start"
    )
    cancel_plan(plan, by=Requester(ada))
    eventually(lambda: step_of(plan).status == "cancelled", what="the step's end")
    assert (call_of(plan).status, call_of(plan).left_running_at is None) == ("cancelled", False)
    (tmp_path / "open").touch()
    eventually(lambda: call_of(plan).came_back_at, what="the handler's return")
    assert call_of(plan).late_evidence and Plan.objects.get(pk=plan.pk).status == "cancelled"
    assert step_of(plan, 2).status == "cancelled"
    assert_gapless(plan)
