"""Answers over REST: what is taken, what comes back, and what is refused with which status."""

import pytest

from approvals.models import ApprovalRequest
from plans.models import Plan
from tests.builders import act, call_of, make_plan, request_of, work_off
from tests.rest import Rest, wrong_paths

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(stage, ada) -> Plan:
    """A plan whose dangerous step waits for people."""
    return work_off(make_plan(ada, act(1, "x", "dangerous")))


def review(plan: Plan, by, verdict: str, **more):
    request = request_of(plan)
    body = {"verdict": verdict, "seen_digest": request.digest, **more}
    return Rest(by).post(f"approvals/{request.public_id}/reviews/", body)


def test_edit_and_approve(plan, rosa):
    answer = review(plan, rosa, "approve", arguments={"value": "less"})
    shown = answer.json()
    assert (answer.status_code, shown["status"], shown["round"], shown["arguments"]) == (
        201,
        "approved",
        2,
        {"value": "less"},
    )
    assert [(vote["verdict"], vote["round"], vote["effect"]) for vote in shown["votes"]] == [("approve", 2, "fail")]
    assert shown["digest"] != plan.pk


def test_respond_also_with_null(plan, rosa):
    assert review(plan, rosa, "respond", response=None).json()["status"] == "responded"
    shown = Rest(plan.author).get(f"calls/{call_of(plan).public_id}/").json()
    assert (shown["status"], shown["result"]["results"], shown["result"]["responded"]) == ("completed", [], True)


def test_request_changes(plan, rosa):
    assert wrong_paths(review(plan, rosa, "request_changes")) == ["comment"]
    assert review(plan, rosa, "request_changes", comment="Less.").json()["status"] == "changes_requested"
    step = Rest(plan.author).get(f"plans/{plan.public_id}/").json()["steps"][0]
    assert (step["waiting_for"], step["approval"]) == ("input", request_of(plan).public_id)


def test_reject_with_an_effect(plan, rosa):
    shown = review(plan, rosa, "reject", comment="No.", effect="skip").json()
    assert (shown["status"], shown["votes"][0]["effect"]) == ("rejected", "skip")
    assert Rest(plan.author).get(f"plans/{plan.public_id}/").json()["status"] == "completed"


def test_revoke(plan, ada, rosa, tomas):
    path = f"approvals/{request_of(plan).public_id}/revoke/"
    assert Rest(tomas).post(path).status_code == 409
    review(plan, rosa, "approve")
    assert Rest(ada).post(path).status_code == 403
    assert Rest(tomas, "approvals:read").post(path).status_code == 403
    answer = Rest(tomas).post(path, {"comment": "Wrong one."})
    assert (answer.status_code, answer.json()["status"]) == (200, "revoked")
    late = Rest(rosa).post(path)
    assert (late.status_code, "Revoked by Tomas: Wrong one." in late.json()["detail"]) == (409, True)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"verdict": "approve", "arguments": {"valu": 1}}, "valu"),
        ({"verdict": "approve", "arguments": [1]}, "arguments"),
        ({"verdict": "reject", "response": 1, "comment": "No."}, "response"),
        ({"verdict": "respond"}, "response"),
        ({"verdict": "reject", "effect": "explode", "comment": "No."}, "effect"),
        ({"verdict": "approve", "effect": "skip"}, "effect"),
        ({"verdict": "perhaps"}, "verdict"),
        ({"verdict": "approve", "argument": {}}, "argument"),
    ],
)
def test_what_is_wrong_is_named(plan, rosa, more, path):
    answer = review(plan, rosa, **more)
    assert (answer.status_code, wrong_paths(answer)) == (422, [path])
    assert request_of(plan).status == "pending"


def test_who_comes_too_late_is_told_who_answered(plan, rosa, tomas):
    body = {"verdict": "approve", "seen_digest": request_of(plan).digest}
    review(plan, rosa, "respond", response=1)
    late = Rest(tomas).post(f"approvals/{request_of(plan).public_id}/reviews/", body)
    assert late.status_code == 409
    assert "Rosa answered this in the tool's place" in late.json()["detail"]


@pytest.mark.parametrize("status", ["responded", "changes_requested", "revoked", "superseded", "invalidated"])
def test_lists_are_narrowed_by_every_status(plan, rosa, status):
    ApprovalRequest.objects.update(status=status)
    found = Rest(rosa).get("approvals/", status=status).json()["results"]
    assert [each["status"] for each in found] == [status]
