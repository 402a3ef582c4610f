"""REST endpoints of grants."""

from typing import Any

import pytest

from approvals.models import Grant
from catalog.access.tokens import SCOPES
from catalog.inventory.overrides import apply_overrides
from tests.builders import act, approve, call_of, make_plan, request_of, work_off
from tests.rest import Rest, agent, wrong_paths

ANY = [{"path": "value", "operator": "exists"}]
BODY = {"tool": "dangerous", "arguments": ANY, "scope": "requester", "scope_ref": "ada"}


@pytest.fixture(autouse=True)
def grantable(stage, admin, settings, read_anew):
    """The dangerous tool may be granted, for up to 4 hours and 5 uses."""
    settings.TOOLGATE_UNDO_SECONDS = 0
    apply_overrides("dangerous", {"grantable": {"max_hours": 4, "max_uses": 5}}, by=admin)


def approved(ada, rosa):
    """Return a request that Rosa approved."""
    plan = make_plan(ada, act(1, "x", "dangerous"))
    work_off(plan)
    approve(plan, rosa)
    return request_of(plan)


def test_an_administrator_creates_a_grant(admin, ada):
    answer = Rest(admin).post("grants/", BODY)
    assert answer.status_code == 201
    made = answer.json()
    assert {name: made[name] for name in BODY} == BODY
    assert (made["max_uses"], made["uses"], made["status"], made["created_from"]) == (5, 0, "active", None)
    assert made["created_by"] == "admin"
    assert Rest(admin).get(f"grants/{made['id']}/").json() == made


def test_a_reviewer_creates_a_grant_from_their_own_approval(ada, rosa, tomas):
    body = BODY | {"created_from": approved(ada, rosa).public_id, "max_uses": 2}
    made = Rest(rosa).post("grants/", body)
    assert (made.status_code, made.json()["created_from"]) == (201, body["created_from"])
    for client, sent in ((Rest(tomas), body), (Rest(rosa), BODY), (Rest(ada), BODY)):
        assert client.post("grants/", sent).status_code == 403
    assert Rest(rosa).post("grants/", body | {"scope_ref": "ben"}).status_code == 403


def test_a_token_needs_its_scope(admin, ada):
    for scopes, status in ((("approvals:read",), 403), (("approvals:decide",), 403), (("policies:write",), 201)):
        assert Rest(admin, *scopes).post("grants/", BODY).status_code == status
    assert agent(admin).post("grants/", BODY).status_code == 403


def test_invalid_grants_are_refused_at_the_wrong_path(admin):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"scope": "world"}, "scope"),
        ({"uses": 3}, "uses"),
        ({"max_uses": 6}, "max_uses"),
        ({"max_uses": "2"}, "max_uses"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": 5}, "expires_at"),
        ({"arguments": [{"path": "value", "operator": "like"}]}, "arguments.0.operator"),
        ({"arguments": {}}, "arguments"),
        ({"created_from": "apr_nothing"}, "created_from"),
        ({"tool": "nothing"}, "tool"),
    ]
    for change, path in wrong:
        answer = Rest(admin).post("grants/", BODY | change)
        assert (answer.status_code, wrong_paths(answer)) == (422, [path]), change
    assert not Grant.objects.exists()


def test_a_repeated_key_creates_one_grant(admin, ada):
    first, second = (Rest(admin), Rest(admin))
    second.headers = first.headers
    answers = [each.post("grants/", BODY, key="k1").json() for each in (first, second)]
    assert answers[0] == answers[1]
    assert Grant.objects.count() == 1


def test_grants_are_listed_and_revoked(admin, ada, rosa):
    ids = [Rest(admin).post("grants/", BODY).json()["id"] for _ in range(2)]
    listed = Rest(rosa).get("grants/").json()["results"]
    assert [each["id"] for each in listed] == ids[::-1]
    ended = Rest(rosa).delete(f"grants/{ids[0]}/")
    assert (ended.status_code, ended.json()["status"], ended.json()["revoked_by"]) == (200, "revoked", "rosa")
    assert [each["id"] for each in Rest(rosa).get("grants/", active="true").json()["results"]] == [ids[1]]
    assert [each["id"] for each in Rest(rosa).get("grants/", active="false").json()["results"]] == [ids[0]]
    assert Rest(rosa).get("grants/", tool="safe").json()["results"] == []
    assert Rest(admin).delete(f"grants/{ids[0]}/").status_code == 409


def test_grants_of_others_are_hidden(admin, ada):
    made = Rest(admin).post("grants/", BODY).json()["id"]
    assert agent(ada).get(f"grants/{made}/").status_code == 404
    assert Rest(ada, *SCOPES).delete(f"grants/{made}/").status_code == 403
    assert Rest(ada).get("grants/grt_nothing/").status_code == 404


def test_a_call_names_its_grant(admin, ada, rosa):
    source = approved(ada, rosa).public_id
    made = Rest(rosa).post("grants/", BODY | {"created_from": source}).json()["id"]
    plan = make_plan(ada, act(1, "x", "dangerous"))
    work_off(plan)
    body = Rest(ada).get(f"calls/{call_of(plan).public_id}/").json()
    assert (body["status"], body["approval"]) == ("completed", None)
    assert body["grant"] == {"id": made, "made_by": "Rosa", "created_from": source}


def test_grant_limits_of_a_tool_are_changed(admin):
    rest = Rest(admin)
    assert rest.get("tools/dangerous/").json()["grantable"] == {"max_hours": 4, "max_uses": 5}
    assert rest.patch("tools/dangerous/", {"grantable": {}}).json()["grantable"] == {"max_hours": 8, "max_uses": 20}
    assert rest.patch("tools/dangerous/", {"grantable": None}).json()["grantable"] is None
    for wrong in ({"max_hours": 0}, {"max_uses": 10_001}, {"max_hours": "8"}, {"days": 1}, 5):
        assert rest.patch("tools/dangerous/", {"grantable": wrong}).status_code == 422
