"""REST endpoints of plan slices."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import ApprovalRequest, AuditEntry, PolicyRevision, Review
from plans.models import Plan
from tests.builders import act, approve, make_plan, work_off
from tests.rest import Rest


@pytest.fixture
def plan(stage: Any, ada: User) -> Plan:
    """A plan whose first step waits for people, with two such steps after it and one that is not known yet."""
    gated = [act(number, f"v{number}", "dangerous", dependencies=[1]) for number in (2, 3)]
    first = act(1, "v1", "dangerous", expected_key="first")
    return work_off(make_plan(ada, first, *gated, act(4, "${first}", "dangerous", dependencies=[1])))


def preview(rest: Rest, plan: Plan, count: int = 20, **more: Any) -> Any:
    """Ask about the next steps."""
    return rest.post("approvals/slice/preview/", {"plan": plan.public_id, "count": count}, **more)


def items_of(answer: Any) -> list[dict[str, Any]]:
    """Return the items of a preview as they are sent back."""
    return [{name: row[name] for name in ("id", "seen_digest", "step_id", "tool")} for row in answer.json()["results"]]


def test_a_preview_returns_requests_and_upcoming_steps(plan, rosa):
    rest = Rest(rosa)
    first, again = preview(rest, plan), preview(rest, plan)
    assert (first.status_code, again.json()) == (200, first.json())
    rows = first.json()["results"]
    assert [(row["step_id"], row["tool"], row["arguments"]) for row in rows] == [
        (2, "dangerous", {"value": "v2"}),
        (3, "dangerous", {"value": "v3"}),
    ]
    assert [(row["preview"]["summary"], row["may_decide"]) for row in rows] == [("Do v2", True), ("Do v3", True)]
    assert all(row["seen_digest"] == row["digest"] for row in rows)
    ahead = {each["step_id"]: each for each in first.json()["ahead"]}
    assert (ahead[4]["stands"], "${first}" in ahead[4]["why"]) == ("later", True)
    assert {each["id"] for each in rest.get("approvals/", status="pending").json()["results"]}.isdisjoint(
        row["id"] for row in rows
    )


def test_a_slice_is_approved_item_by_item(plan, rosa, stage):
    rest = Rest(rosa)
    items = items_of(preview(rest, plan))
    items[1] |= {"seen_digest": "0" * 64}
    body = {"plan": plan.public_id, "items": items, "comment": "Looks right."}
    answer = rest.post("approvals/slice/", body)
    results = answer.json()["results"]
    assert (answer.status_code, [each["status"] for each in results]) == (200, ["approved", "conflict"])
    assert "detail" not in results[0]
    assert Review.objects.get().comment == "Looks right."
    approve(plan, rosa)
    work_off(plan)
    assert stage.values("dangerous")[:2] == ["v1", "v2"]


def test_a_repeated_key_decides_once(plan, rosa):
    rest = Rest(rosa)
    body = {"plan": plan.public_id, "items": items_of(preview(rest, plan, key="p1"))}
    first, again = (rest.post("approvals/slice/", body, key="s1").json() for _ in range(2))
    assert first == again
    assert [each["status"] for each in first["results"]] == ["approved", "approved"]
    assert {each["status"] for each in rest.post("approvals/slice/", body).json()["results"]} == {"conflict"}


def test_requesters_may_not_approve_their_own_steps(plan, ada, rosa):
    items = items_of(preview(Rest(rosa), plan))
    results = Rest(ada).post("approvals/slice/", {"plan": plan.public_id, "items": items}).json()["results"]
    assert [each["status"] for each in results] == ["forbidden", "forbidden"]


@pytest.mark.parametrize("name", ["ada", "ben", "vera"])
def test_only_users_who_might_decide_get_a_preview(plan, request, name):
    answer = preview(Rest(request.getfixturevalue(name)), plan)
    assert (answer.status_code, "reviewer" in answer.json()["detail"]) == (403, True)
    assert not ApprovalRequest.objects.filter(is_early=True).exists()


@pytest.mark.parametrize(
    "terms", [{"typed_target": True}, {"min_review_seconds": 9}, {"fresh_sign_in_seconds": 9}, {"fresh_passkey": True}]
)
def test_requests_that_need_closer_review_are_not_approved_in_a_slice(plan, rosa, terms):
    items = items_of(preview(Rest(rosa), plan))
    PolicyRevision.objects.update(**terms)
    results = Rest(rosa).post("approvals/slice/", {"plan": plan.public_id, "items": items}).json()["results"]
    assert {(each["status"], "individual review" in each["detail"]) for each in results} == {("forbidden", True)}
    assert not Review.objects.exists()


def test_a_preview_is_audited(plan, rosa):
    preview(Rest(rosa), plan)
    assert {entry.actor for entry in AuditEntry.objects.filter(action="approval.prepared")} == {rosa}


def test_items_must_match_the_plan_step_and_tool(plan, rosa, ada):
    rest = Rest(rosa)
    items = items_of(preview(rest, plan))
    other = make_plan(ada, act(1, "x", "dangerous"), act(2, "y", "dangerous"))
    answer = rest.post("approvals/slice/", {"plan": other.public_id, "items": items})
    assert [each["status"] for each in answer.json()["results"]] == ["not_found", "not_found"]
    items[0]["step_id"] = 3
    answer = rest.post("approvals/slice/", {"plan": plan.public_id, "items": items[:1]})
    assert [each["status"] for each in answer.json()["results"]] == ["conflict"]
    assert ApprovalRequest.objects.filter(decided_at__isnull=False).count() == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("preview/", {"count": 0}),
        ("preview/", {"count": 21}),
        ("preview/", {"count": 2, "more": 1}),
        ("", {"items": []}),
        ("", {"items": [{"id": "apr_x"}]}),
        ("", {"items": [{"id": "apr_x", "seen_digest": "a"}] * 2}),
        ("", {"items": [{"id": "apr_x", "seen_digest": "a", "else": 1}]}),
    ],
)
def test_invalid_slices_are_refused(path, body, plan, rosa):
    answer = Rest(rosa).post(f"approvals/slice/{path}", {"plan": plan.public_id, **body})
    assert answer.status_code == 422
    assert answer.json()["errors"]
    assert not ApprovalRequest.objects.filter(is_early=True).exists()


def test_a_preview_needs_permission_to_decide(plan, rosa, ada, ben):
    assert preview(Rest(rosa, "approvals:read"), plan).status_code == 403
    assert preview(Rest(ada, "plans:read", "plans:write", kind="agent"), plan).status_code == 403
    assert Rest(rosa).post("approvals/slice/preview/", {"plan": "plan_none", "count": 1}).status_code == 404
    ben.groups.clear()
    assert preview(Rest(User.objects.get(pk=ben.pk), "approvals:decide"), plan).status_code == 404


def test_a_plan_that_has_ended_has_no_slice(plan, rosa, ada):
    assert Rest(ada).post(f"plans/{plan.public_id}/cancel/").status_code == 200
    assert preview(Rest(rosa), plan).status_code == 409
