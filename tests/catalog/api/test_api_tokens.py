"""REST endpoints of tokens."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import AuditEntry
from catalog.access import learnt_waits
from catalog.access.tokens import authenticate_token, create_token
from catalog.core import clock
from catalog.models import ApiToken, IdempotencyKey
from tests.corpus import faults
from tests.rest import Rest, agent, wrong_paths

pytestmark = pytest.mark.django_db
BODY = {"name": "laptop", "kind": "agent", "scopes": ["tools:read", "calls:create"]}


def session(user: User) -> Rest:
    """Return the client of someone who has signed in."""
    rest = Rest(None)
    rest.client.force_login(user)
    return rest


def token_of(user: User, **terms: Any) -> ApiToken:
    """Create a personal token."""
    return create_token(**{"user": user, "kind": "personal", "scopes": ["plans:read"], **terms})[0]


def test_token_is_created_by_session_and_its_text_shown_once(ada):
    rest = session(ada)
    created = rest.post("tokens/", {**BODY, "hold_seconds": 10}, key="once")
    assert created.status_code == 201
    text = created.json()["token"]
    token = authenticate_token(text)
    assert token is not None and (token.user, token.hold_seconds) == (ada, 10)
    assert timedelta(days=89) < token.expires_at - clock.now() <= timedelta(days=90)
    again = rest.post("tokens/", {**BODY, "hold_seconds": 10}, key="once")
    assert (again.status_code, again.json()) == (201, {k: v for k, v in created.json().items() if k != "token"})
    assert text not in str([*IdempotencyKey.objects.values(), *ApiToken.objects.values(), *AuditEntry.objects.values()])
    assert ApiToken.objects.count() == 1
    assert AuditEntry.objects.filter(action="token.created", object_ref=token.prefix, actor=ada).exists()


def test_no_token_creates_tokens(ada, admin):
    for rest in (Rest(ada), Rest(admin), agent(ada)):
        assert rest.post("tokens/", BODY).status_code == 403


def test_invalid_body_is_refused_at_its_field(ada):
    rest = session(ada)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("name", {"name": " "}),
        ("name", {"name": "n" * 129}),
        ("kind", {"kind": "robot"}),
        ("scopes", {"scopes": []}),
        ("scopes.0", {"scopes": ["everything"]}),
        ("scopes", {"scopes": ["approvals:decide"]}),
        ("scopes", {"kind": "personal", "scopes": ["approvals:decide"]}),
        ("scopes", {"kind": "personal", "scopes": ["plans:read", "audit:read"]}),
        ("days", {"days": 0}),
        ("days", {"days": 366}),
        ("days", {"days": "90"}),
        ("hold_seconds", {"hold_seconds": 601}),
        ("hold_seconds", {"hold_seconds": -1}),
        ("owner", {"owner": "ben"}),
        ("limits.level", {"limits": {"level": "safe"}}),
        ("limits.max_level", {"limits": {"max_level": "harmless"}}),
        ("limits.categories", {"limits": {"categories": "text"}}),
        ("limits.sources", {"limits": {"sources": ["s"] * 201}}),
    ]

    def check(path: str, wrong: dict[str, Any]) -> None:
        response = rest.post("tokens/", BODY | wrong)
        assert (response.status_code, wrong_paths(response)) == (422, [path])

    assert faults(check, cases) == {}
    assert not ApiToken.objects.exists()


def test_a_lost_role_removes_the_permissions_of_tokens(ada):
    rest = Rest(ada, "calls:create", "plans:read")
    ada.groups.clear()
    assert rest.post("calls/", {"tool": "render_text", "arguments": {}}).status_code == 403


def test_each_caller_sees_and_revokes_their_own_tokens(ada, ben, admin):
    mine, other = token_of(ada), token_of(ben)
    callers = {
        "session": session(ada),
        "personal": Rest(ada, "plans:read"),
        "agent": agent(ada),
        "administrator": session(admin),
        "administrator's token": Rest(admin, "plans:read"),
    }
    sees = {name: {each["id"] for each in rest.get("tokens/").json()["results"]} for name, rest in callers.items()}
    everyone = set(ApiToken.objects.values_list("pk", flat=True))
    of_ada = set(ApiToken.objects.filter(user=ada).values_list("pk", flat=True))
    assert sees == {
        "session": of_ada,
        "personal": of_ada,
        "agent": {callers["agent"].token.pk},
        "administrator": everyone,
        "administrator's token": everyone,
    }
    read = {name: rest.get(f"tokens/{other.pk}/").status_code for name, rest in callers.items()}
    assert read == dict.fromkeys(("session", "personal", "agent"), 404) | dict.fromkeys(
        ("administrator", "administrator's token"), 200
    )
    changed = {name: rest.patch(f"tokens/{other.pk}/", {"name": "x"}).status_code for name, rest in callers.items()}
    assert changed == read | {"administrator's token": 403}
    assert callers["agent"].patch(f"tokens/{callers['agent'].token.pk}/", {"name": "x"}).status_code == 403
    assert callers["administrator's token"].delete(f"tokens/{other.pk}/").status_code == 403
    for name, token in (("personal", mine), ("administrator", other)):
        ended = callers[name].delete(f"tokens/{token.pk}/")
        assert ended.status_code == 200 and ended.json()["revoked_at"] is not None
        assert callers[name].delete(f"tokens/{token.pk}/").status_code == 409
    assert [each["id"] for each in callers["administrator"].get("tokens/", owner="ben").json()["results"]] == [other.pk]
    assert callers["session"].get("tokens/", owner="ben").json()["results"] == []
    assert AuditEntry.objects.filter(action="token.revoked").count() == 2


def test_any_token_reads_and_revokes_itself(ada):
    for rest in (agent(ada), Rest(ada, "audit:read")):
        assert rest.get("tokens/current/").json()["id"] == rest.token.pk
        assert rest.delete("tokens/current/").status_code == 200
        assert rest.get("tokens/current/").status_code == 401
    assert session(ada).get("tokens/current/").status_code == 404


def test_change_names_its_fields_and_resets_learnt_waits(ada):
    rest, token = session(ada), token_of(ada)
    for _ in range(2):
        learnt_waits.record_cut_off(token.pk, "codex", 10.0)
    assert rest.get(f"tokens/{token.pk}/").json()["learnt_waits"] == [{"client": "codex", "seconds": 8.0}]
    changed = rest.patch(f"tokens/{token.pk}/", {"name": "new", "hold_seconds": 0, "learnt_waits": []}).json()
    assert (changed["name"], changed["hold_seconds"], changed["learnt_waits"]) == ("new", 0, [])
    assert rest.patch(f"tokens/{token.pk}/", {"hold_seconds": None}).json()["hold_seconds"] is None
    assert AuditEntry.objects.filter(action="token.changed", object_ref=token.prefix).count() == 2
    wrong_changes: list[dict[str, Any]] = [{}, {"learnt_waits": [{}]}, {"scopes": []}, {"hold_seconds": 601}]
    for wrong in wrong_changes:
        assert rest.patch(f"tokens/{token.pk}/", wrong).status_code == 422
    ApiToken.objects.filter(pk=token.pk).update(expires_at=clock.now())
    assert rest.patch(f"tokens/{token.pk}/", {"name": "late"}).status_code == 409
    assert rest.get(f"tokens/{10**30}/").status_code == 404


def test_ended_token_stays_listed_for_90_days(ada, django_assert_max_num_queries):
    rest, now = session(ada), clock.now()
    kept, gone = token_of(ada), token_of(ada)
    ApiToken.objects.filter(pk=kept.pk).update(revoked_at=now - timedelta(days=89))
    ApiToken.objects.filter(pk=gone.pk).update(revoked_at=now - timedelta(days=91))
    assert [each["id"] for each in rest.get("tokens/").json()["results"]] == [kept.pk]
    live = [token_of(ada).pk for _ in range(3)]
    with django_assert_max_num_queries(6):
        page = rest.get("tokens/", page_size=2).json()
    assert [each["id"] for each in page["results"]] == live[:0:-1]
    following = rest.client.get(page["next"]).json()
    assert ([each["id"] for each in following["results"]], following["next"]) == ([live[0], kept.pk], None)


def test_limits_are_created_replaced_and_removed(ada):
    rest = session(ada)
    created = rest.post("tokens/", BODY | {"limits": {"max_level": "safe", "categories": []}})
    assert created.json()["limits"] == {"max_level": "safe", "categories": []}
    path = f"tokens/{created.json()['id']}/"
    for value in ({"sources": ["wiki"]}, None):
        assert rest.patch(path, {"limits": value}).json()["limits"] == value
        entry = AuditEntry.objects.filter(action="token.changed").latest("seq")
        assert entry.details_json["changes"] == {"limits": value}
    assert rest.patch(path, {"limits": {}}).json()["limits"] is None
