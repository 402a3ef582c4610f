"""Other decisions: responses, requests for changes, effects of rejections, and revocation."""

from datetime import timedelta

import pytest

from approvals.models import ApprovalRequest, AuditEntry
from approvals.requests.queries import status_sentence
from approvals.reviews.decisions import revoke, undo_decision
from approvals.reviews.effects import apply_due
from approvals.states import ReviewVerdict
from catalog.access.roles import NotAllowed
from catalog.core import clock
from catalog.errors import Conflict, ParameterError
from catalog.models import Call, ToolVersion
from plans.actions.skip import skip_step
from plans.engine import loop
from plans.engine.work import ApprovedCall
from plans.models import Plan
from plans.store.requesters import Requester
from plans.store.selectors import memory_of
from tests.approvals.factories import answer, refusal_at, reject, respond, send_back, set_rule
from tests.builders import act, approve, call_of, events_of, make_plan, request_of, step_of, work_off
from tests.invariants import assert_invariants

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(stage, ada) -> Plan:
    """A plan whose dangerous step waits for approval, with a dependent and an independent step."""
    steps = act(1, "x", "dangerous", expected_key="out"), act(2, "y", dependencies=[1]), act(3, "z", "dangerous")
    return work_off(make_plan(ada, *steps))


@pytest.fixture
def alone(stage, ada) -> Plan:
    """A plan whose only, dangerous step waits for approval."""
    return work_off(make_plan(ada, act(1, "x", "dangerous", expected_key="out")))


def test_response_completes_the_call_without_the_tool(alone, stage, rosa):
    assert respond(alone, rosa, {"name": "note"}, comment="I looked.").status == "responded"
    assert work_off(alone).status == "completed"
    call = call_of(alone)
    assert (call.status, call.attempt, stage.played) == ("completed", 0, [])
    assert call.response_json["results"] == [{"name": "note"}] and call.response_json["responded"] is True
    # The model reads this message.
    assert "Rosa" in call.message and "did not run" in call.message and call.message.endswith(": I looked.")
    assert "1 call.succeeded" in events_of(alone)
    assert_invariants()


def test_plan_continues_with_the_response(plan, stage, rosa):
    respond(plan, rosa, [1, 2])
    assert work_off(plan).status == "in_progress"
    assert (step_of(plan, 2).status, stage.values("safe")) == ("completed", ["y"])
    assert memory_of(plan)["values"]["out"]["results"] == [1, 2]


def test_response_must_match_the_output_schema(alone, rosa):
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    ToolVersion.objects.filter(tool__name="dangerous").update(output_schema=schema)
    for response, path in (({"size": "large"}, "response.size"), (None, "response")):
        with pytest.raises(ParameterError) as wrong:
            respond(alone, rosa, response)
        assert [each["path"] for each in wrong.value.details["errors"]] == [path]
    assert respond(alone, rosa, {"size": 3}).status == "responded"


def test_too_large_response_is_refused(alone, rosa):
    with refusal_at("response", "too_large"):
        respond(alone, rosa, "x" * 300_000)


def test_page_response_can_be_undone(alone, rosa, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    respond(alone, rosa, 1, channel="page")
    assert (call_of(alone).status, undo_decision(request_of(alone), by=rosa).status) == ("held", "pending")
    respond(alone, rosa, 2, channel="page")
    apply_due(clock.now() + timedelta(seconds=60))
    assert call_of(alone).response_json["results"] == [2]


def test_secret_in_a_response_is_cut_out(alone, rosa):
    key = "ghp_" + "a1B2c3D4e5" * 4
    respond(alone, rosa, {"found": key})
    assert key not in call_of(alone).response and key not in request_of(alone).reviews.get().response


def test_rejection_fails_the_step_with_the_verbatim_reason(alone, rosa):
    reject(alone, rosa, comment="Not on a Friday.")
    call = call_of(alone)
    assert (call.status, call.error_kind) == ("failed", "rejected")
    assert "Not on a Friday." in call.message
    assert step_of(alone).error == call.message
    assert_invariants()


def test_rejection_may_skip_the_step(plan, stage, rosa):
    reject(plan, rosa, effect="skip")
    work_off(plan)
    step = step_of(plan)
    assert (step.status, step.skipped, call_of(plan).status) == ("completed", True, "failed")
    assert stage.values("safe") == ["y"]
    assert memory_of(plan)["values"]["out"] == {"skipped": True, "reason": call_of(plan).message}
    assert_invariants()


def test_rejection_may_cancel_the_plan(plan, stage, rosa):
    other = request_of(plan, 3)
    reject(plan, rosa, effect="cancel_plan")
    plan.refresh_from_db()
    other.refresh_from_db()
    assert (plan.status, step_of(plan).status, other.status) == ("cancelled", "failed", "withdrawn")
    assert [step_of(plan, each).status for each in (2, 3)] == ["cancelled", "cancelled"]
    assert "Not today." in plan.events.get(type="plan.cancelled").data_json["reason"]
    assert_invariants()


@pytest.mark.parametrize(
    ("required", "reversibility", "needed"),
    [
        (None, "irreversible", True),
        (None, "restorable", False),
        (True, "restorable", True),
        (False, "irreversible", False),
    ],
)
def test_rule_may_require_a_reason(alone, rosa, required, reversibility, needed):
    set_rule(reason_required=required)
    ToolVersion.objects.filter(tool__name="dangerous").update(reversibility=reversibility)
    if needed:
        with refusal_at("comment", "required"):
            reject(alone, rosa, comment="")
    else:
        assert reject(alone, rosa, comment="").status == "rejected"


def test_changes_are_requested_from_the_plan_owner(alone, rosa):
    assert send_back(alone, rosa).status == "changes_requested"
    alone.refresh_from_db()
    step, call = step_of(alone), call_of(alone)
    assert (alone.status, step.status, step.waiting_for) == ("in_progress", "in_progress", "input")
    assert (call.status, call.message) == ("failed", "Changes requested by Rosa: Smaller, please.")
    assert events_of(alone)[-2:] == ["1 step.waiting", "1 input.requested"]
    assert_invariants()


def test_requested_changes_take_effect_at_once(alone, rosa):
    send_back(alone, rosa, channel="page")
    assert call_of(alone).status == "failed"
    with pytest.raises(Conflict):
        undo_decision(request_of(alone), by=rosa)
    assert request_of(alone).status == "changes_requested"


def test_a_step_that_waits_for_input_may_be_skipped(alone, ada, rosa):
    send_back(alone, rosa)
    skip_step(alone, 1, "Not needed.", by=Requester(ada))
    alone.refresh_from_db()
    assert alone.status == "completed"
    assert_invariants()


def test_unused_approval_can_be_revoked(alone, stage, rosa, tomas):
    approve(alone, rosa)
    assert revoke(request_of(alone), by=tomas, comment="Wrong file.").status == "revoked"
    assert work_off(alone).status == "failed"
    call = call_of(alone)
    assert (call.status, call.error_kind, stage.played) == ("failed", "revoked", [])
    assert step_of(alone).error == call.message == "Revoked by Tomas: Wrong file."
    assert AuditEntry.objects.get(action="approval.revoked").details_json["reason"] == "Wrong file."
    assert [each.text for each in request_of(alone).comments.all()] == ["Wrong file."]
    assert_invariants()


def test_revocation_stops_a_worker_with_a_claim(alone, stage, rosa):
    approve(alone, rosa)
    resume = loop.claim_work(alone.pk, owner="tests")
    assert isinstance(resume, ApprovedCall)
    revoke(request_of(alone), by=rosa)
    with pytest.raises(Conflict):
        loop.advance(resume, loop.TimeSlice("tests"))
    assert (stage.played, call_of(alone).status) == ([], "failed")


def test_consumed_approval_cannot_be_revoked(alone, rosa):
    approve(alone, rosa)
    work_off(alone)
    with pytest.raises(Conflict) as refused:
        revoke(request_of(alone), by=rosa)
    assert status_sentence(request_of(alone)) in refused.value.message
    assert (request_of(alone).status, call_of(alone).status) == ("consumed", "completed")


def test_approval_in_its_undo_window_cannot_be_revoked(alone, rosa, tomas, settings):
    settings.TOOLGATE_UNDO_SECONDS = 60
    answer(alone, rosa, ReviewVerdict.APPROVE, channel="page")
    with pytest.raises(Conflict):
        revoke(request_of(alone), by=tomas)
    assert request_of(alone).status == "approved"


def test_ineligible_users_may_not_revoke(alone, ada, rosa, vera):
    approve(alone, rosa)
    for person in (ada, vera):
        with pytest.raises(NotAllowed):
            revoke(request_of(alone), by=person)
    assert ApprovalRequest.objects.get().status == "approved" and Call.objects.get().status == "ready"
