"""A withdrawn request ends its step, and a cancelled plan withdraws its requests."""

import pytest

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.lifecycle import withdraw
from catalog.access.roles import NotAllowed
from catalog.models import Call
from plans.actions.control import cancel_plan
from plans.engine import loop
from plans.models import Plan, Step
from plans.store.requesters import Requester
from tests.builders import make_plan, write_step
from tests.rest import Rest, wrong_paths


@pytest.fixture
def waiting(catalog, workspace, ada) -> ApprovalRequest:
    """A request of a plan whose only step waits for approval."""
    plan = make_plan(ada, write_step(1))
    work = loop.claim_work(plan.pk, owner="test")
    assert work is not None
    assert loop.advance(work, loop.TimeSlice("test")) is None
    return ApprovalRequest.objects.select_related("call").get()


def test_withdrawing_a_request_fails_its_step(waiting, ada):
    withdraw(waiting, by=ada, reason="Wrong file.")
    step = Step.objects.select_related("call", "plan").get()
    assert step.call is not None
    assert (step.call.status, step.status, step.plan.status) == ("cancelled", "failed", "failed")
    assert step.error == step.call.message == "Withdrawn by Ada: Wrong file."


def test_only_requesters_may_withdraw(waiting, ben, rosa):
    for other in (ben, rosa):
        with pytest.raises(NotAllowed):
            withdraw(waiting, by=other, reason="Mine now.")
    assert Rest(rosa).post(f"approvals/{waiting.public_id}/withdraw/").status_code == 403
    assert ApprovalRequest.objects.get().status == "pending"


def test_withdrawal_reason_is_limited_and_redacted(waiting, ada):
    answer = Rest(ada).post(f"approvals/{waiting.public_id}/withdraw/", {"comment": "x" * 4001})
    assert (answer.status_code, wrong_paths(answer)) == (422, ["comment"])
    key = "ghp_" + "a1B2" * 9
    Rest(ada).post(f"approvals/{waiting.public_id}/withdraw/", {"comment": f"It had {key} in it."})
    entry = AuditEntry.objects.get(action="approval.withdrawn")
    assert ("It had" in entry.details, key in entry.details) == (True, False)


def test_cancelling_a_plan_withdraws_its_requests(waiting, ada):
    cancel_plan(Plan.objects.get(), by=Requester(ada))
    waiting.refresh_from_db()
    assert (waiting.status, Call.objects.get().status) == ("withdrawn", "cancelled")
    assert (Step.objects.get().status, Plan.objects.get().status) == ("cancelled", "cancelled")
