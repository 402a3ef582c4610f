"""Reviews over REST: verdicts, effects and errors."""

from datetime import timedelta

import pytest

from approvals.models import ApprovalRequest
from approvals.states import RequestStatus
from catalog.core import clock
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
    body = answer.json()
    assert (answer.status_code, body["status"], body["round"], body["arguments"]) == (
        201,
        "approved",
        2,
        {"value": "less"},
    )
    assert [(vote["verdict"], vote["round"], vote["effect"]) for vote in body["votes"]] == [("approve", 2, "fail")]
    assert body["digest"] != plan.pk


def test_respond_also_with_null(plan, rosa):
    assert review(plan, rosa, "respond", response=None).json()["status"] == "responded"
    body = Rest(plan.author).get(f"calls/{call_of(plan).public_id}/").json()
    assert (body["status"], body["result"]["results"], body["result"]["responded"]) == ("completed", [], True)


def test_request_changes(plan, rosa):
    assert wrong_paths(review(plan, rosa, "request_changes")) == ["comment"]
    assert review(plan, rosa, "request_changes", comment="Less.").json()["status"] == "changes_requested"
    step = Rest(plan.author).get(f"plans/{plan.public_id}/").json()["steps"][0]
    assert (step["waiting_for"], step["approval"]) == ("input", request_of(plan).public_id)


def test_reject_with_an_effect(plan, rosa):
    body = review(plan, rosa, "reject", comment="No.", effect="skip").json()
    assert (body["status"], body["votes"][0]["effect"]) == ("rejected", "skip")
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
    assert late.status_code == 409


WRONG: list[tuple[object, str]] = [
    ({"verdict": "maybe", "seen_digest": "x"}, "verdict"),
    ({"verdict": "approve"}, "seen_digest"),
    ({"verdict": "approve", "seen_digest": 1}, "seen_digest"),
    ({"verdict": "approve", "seen_digest": "x", "by": "tomas"}, "by"),
    ({"verdict": "approve", "seen_digest": "x", "comment": "a\u0000"}, "comment"),
    ({"verdict": "approve", "seen_digest": "x", "arguments": [1]}, "arguments"),
    ({"verdict": "reject", "seen_digest": "x", "effect": "explode"}, "effect"),
    *(
        ({"verdict": "approve", "seen_digest": "x", "hunks": hunks}, path)
        for hunks, path in ((["1"], "hunks.0"), ([True], "hunks.0"), ([-1], "hunks.0"), ("1", "hunks"))
    ),
]
"""Bodies that are no answer, each with the path of what is wrong."""


def test_invalid_bodies_are_refused_with_their_path(plan, rosa):
    rest, address = Rest(rosa), f"approvals/{request_of(plan).public_id}/reviews/"
    answers = [(body, path, rest.post(address, body)) for body, path in WRONG]
    assert [
        (body, path, answer.content)
        for body, path, answer in answers
        if (answer.status_code, wrong_paths(answer)) != (422, [path])
    ] == []
    assert request_of(plan).status == "pending"


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"verdict": "approve", "arguments": {"valu": 1}}, "valu"),  # the tool's schema
        ({"verdict": "respond"}, "response"),  # what goes with which verdict
    ],
)
def test_errors_of_the_service_are_named_by_path(plan, rosa, more, path):
    answer = review(plan, rosa, **more)
    assert (answer.status_code, wrong_paths(answer)) == (422, [path])
    assert request_of(plan).status == "pending"


def test_lists_are_filtered_by_every_status(plan, rosa):
    found = {}
    for status in RequestStatus.values:
        ApprovalRequest.objects.update(status=status, expires_at=clock.now() + timedelta(days=1), not_after=None)
        found[status] = [each["status"] for each in Rest(rosa).get("approvals/", status=status).json()["results"]]
    assert found == {status: [status] for status in RequestStatus.values}
