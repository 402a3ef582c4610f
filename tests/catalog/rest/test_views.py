"""Authentication, bodies and errors of the REST API."""

import logging
from io import BytesIO

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import Client

from catalog.api.views import ToolValidate
from catalog.inventory import selectors
from catalog.models import ApiToken
from tests.corpus import faults
from tests.rest import ROOT, Rest, agent, wrong_paths

pytestmark = pytest.mark.usefixtures("catalog")
FIELDS = {"type", "title", "status", "detail", "errors"}
VALIDATE = "tools/read_file/validate/"


def assert_problem(response, status):
    """Assert that the response is a problem document of this status."""
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    assert set(response.json()) == FIELDS
    assert response.json()["status"] == status
    return response.json()


def test_without_a_token_it_is_401_with_a_challenge(db):
    response = Rest(None).get("tools/")

    assert_problem(response, 401)
    assert response["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("text", ["tg_nobody", "", "x y z", "tg_" + "é" * 10])
def test_a_revoked_token_is_401(db, text):
    response = Client().get(ROOT + "tools/", headers={"Authorization": f"Bearer {text}".encode().decode("latin-1")})

    assert_problem(response, 401)
    assert response["WWW-Authenticate"] == "Bearer"


def test_with_a_bearer_header_cookies_are_ignored(ada):
    client = Client()
    client.force_login(ada)

    assert client.get(ROOT + "tools/").status_code == 200
    assert client.get(ROOT + "tools/", headers={"Authorization": "Bearer tg_dead"}).status_code == 401


def test_a_session_writes_with_its_csrf_token_only(ada):
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    body = {"arguments": {"path": "a"}}
    assert_problem(client.post(ROOT + VALIDATE, body, content_type="application/json"), 403)

    client.get("/api/v1/tools/")
    client.cookies["toolgate_csrf"] = "c" * 32
    headers = {"X-CSRFToken": "c" * 32}
    assert client.post(ROOT + VALIDATE, body, content_type="application/json", headers=headers).status_code == 200


def test_a_bearer_token_needs_no_csrf_token(ada):
    rest = Rest(ada)
    rest.client = Client(enforce_csrf_checks=True)

    assert rest.post(VALIDATE, {"arguments": {"path": "a"}}).status_code == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{", "invalid_json"),
        ('{"arguments": {}, "arguments": {}}', "duplicate_key"),
        ('{"arguments": NaN}', "not_finite"),
        ('{"arguments": 1e999}', "not_finite"),
        ('{"arguments": "\\ud800"}', "lone_surrogate"),
        ('{"arguments": ' + "[" * 65 + "]" * 65 + "}", "too_deep"),
        ("[" * 100_000, "too_deep"),
        ('{"arguments": 9007199254740993}', "integer_range"),
        (b'{"arguments": "\xff"}', "invalid_utf8"),
    ],
)
def test_malformed_json_is_400(ada, body, code):
    problem = assert_problem(Rest(ada).post(VALIDATE, body), 400)

    assert problem["errors"][0]["code"] == code


@pytest.mark.parametrize("integer", [2**53, 10**400])
def test_too_large_integer_is_named(ada, integer):
    body = f'{{"arguments": {{"value": [1, {integer}]}}}}'
    [error] = assert_problem(Rest(ada).post(VALIDATE, body), 400)["errors"]

    assert (error["path"], error["code"]) == ("arguments.value.1", "integer_range")


@pytest.mark.parametrize("path", [VALIDATE, "plans/", "plans/check/"])
def test_more_than_a_mebibyte_is_413(ada, path):
    problem = assert_problem(Rest(ada).post(path, " " * (1024 * 1024 + 1)), 413)
    assert "1,048,576" in problem["detail"]


@pytest.mark.parametrize("signed_in", [False, True])
@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
@pytest.mark.parametrize("path", [VALIDATE, "plans/"])
def test_another_type_of_body_is_415(ada, path, media_type, signed_in):
    rest = Rest(ada)
    client = Client(enforce_csrf_checks=True)
    if signed_in:
        client.force_login(ada)
        rest.headers = {"X-CSRFToken": "c" * 32}
        client.cookies["toolgate_csrf"] = "c" * 32
    response = client.post(ROOT + path, b"--x--\r\n", content_type=media_type, headers=rest.headers)

    assert_problem(response, 415)


def post_in_chunks(rest, body):
    """Send a body whose length is not announced, as the server passes it on; return the answer."""
    headers = {**rest.headers, "Content-Type": "application/json", "Host": "localhost"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": ROOT + VALIDATE,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    return ToolValidate.as_view()(ASGIRequest(scope, BytesIO(body)), name="read_file").render()


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"arguments": {"path": "a"}}', 200), (b'{"arguments": {}}', 422), (b" " * (1024 * 1024 + 1), 413)],
)
def test_a_body_sent_in_chunks_is_read_like_any_other(ada, body, status):
    assert post_in_chunks(Rest(ada), body).status_code == status


def test_unknown_fields_and_wrong_types_are_422_by_name(ada):
    rest = Rest(ada)

    assert wrong_paths(rest.post(VALIDATE, {"arguments": {}, "argument": 1})) == ["argument"]
    assert wrong_paths(rest.post(VALIDATE, {"arguments": []})) == ["arguments"]
    assert wrong_paths(rest.post(VALIDATE, {})) == ["arguments"]
    assert wrong_paths(rest.post(VALIDATE, [])) == [""]
    assert wrong_paths(rest.get("tools/", colour="red")) == ["colour"]


def test_404_is_a_problem_document(ada):
    rest = Rest(ada)

    assert_problem(rest.get("nowhere/"), 404)
    assert_problem(rest.get("tools/no-such-tool/"), 404)
    assert_problem(rest.get("tools/%00/"), 404)
    assert_problem(rest.get("plans/" + "x" * 500 + "/"), 404)


def test_a_post_without_the_slash_is_404_and_not_redirected(ada):
    problem = assert_problem(Rest(ada).post("plans", {}), 404)

    assert "/api/v1/plans/" in problem["detail"]


def test_another_method_is_405(ada):
    rest = Rest(ada)
    response = rest.client.delete(ROOT + "tools/", headers=rest.headers)

    assert_problem(response, 405)
    assert "GET" in response["Allow"]


def test_a_foreign_host_is_400(db):
    assert_problem(Client().get(ROOT + "tools/", headers={"Host": "evil.example"}), 400)


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "*/*;q=0"])
def test_responses_are_json_for_any_accept_header(ada, accept):
    rest = Rest(ada)
    rest.headers["Accept"] = accept

    assert rest.get("tools/")["Content-Type"] == "application/json"


def test_an_unexpected_error_is_a_bare_500_without_its_message_in_the_log(ada, monkeypatch, caplog):
    secret = "swordfish"[::-1]

    def fail(*args):
        raise RuntimeError(secret)

    monkeypatch.setattr(selectors, "filtered_tools", fail)
    with caplog.at_level(logging.ERROR, "toolgate.api"):
        problem = assert_problem(Rest(ada).get("tools/"), 500)

    assert secret not in str(problem) + caplog.text
    assert "RuntimeError" in caplog.text


SCOPED = [
    ("get", "tools/", "tools:read"),
    ("get", "tools/read_file/", "tools:read"),
    ("get", "tools/read_file/versions/", "tools:read"),
    ("get", "tools/read_file/schema/", "tools:read"),
    ("get", "tool-schemas/", "tools:read"),
    ("post", VALIDATE, "tools:read"),
    ("get", "plans/", "plans:read"),
    ("get", "plans/plan_x/", "plans:read"),
    ("get", "plans/plan_x/memory/", "plans:read"),
    ("get", "plans/plan_x/events/", "plans:read"),
    ("post", "plans/", "plans:write"),
    ("post", "plans/check/", "plans:write"),
    ("post", "plans/plan_x/start/", "plans:write"),
    ("post", "plans/plan_x/cancel/", "plans:write"),
    ("post", "plans/plan_x/steps/1/outcome/", "plans:write"),
    ("post", "calls/", "calls:create"),
    ("get", "calls/call_x/", "calls:create"),
    ("get", "calls/call_x/", "plans:read"),
    ("get", "approvals/", "approvals:read"),
    ("get", "approvals/apr_x/", "approvals:read"),
    ("post", "approvals/apr_x/reviews/", "approvals:decide"),
    ("post", "approvals/apr_x/undo/", "approvals:decide"),
    ("post", "approvals/apr_x/withdraw/", "calls:create"),
    ("get", "audit/", "audit:read"),
    ("post", "audit/verify/", "audit:read"),
]


def test_every_path_names_its_missing_scope(admin):
    def check(method, path, scope):
        with_it, without = Rest(admin, scope), Rest(admin, "policies:write")

        assert getattr(with_it, method)(path).status_code not in (401, 403)
        refusal = assert_problem(getattr(without, method)(path), 403)
        assert scope in refusal["detail"]

    assert faults(check, SCOPED) == {}


@pytest.mark.parametrize(
    ("method", "path"),
    [("post", "plans/"), ("post", "calls/"), ("get", "audit/")],
)
def test_a_token_has_no_more_permissions_than_its_user(vera, method, path):
    problem = assert_problem(getattr(Rest(vera), method)(path), 403)

    assert "role" in problem["detail"]


def test_a_person_without_a_role_sees_no_tools(django_user_model):
    stranger = django_user_model.objects.create_user("stranger")

    assert_problem(Rest(stranger).get("tools/"), 403)
    assert Rest(stranger).get("plans/").json()["results"] == []


def test_a_revoked_token_is_refused_immediately(ada):
    rest = agent(ada)
    assert rest.get("tools/").status_code == 200

    ApiToken.objects.filter(pk=rest.token.pk).update(revoked_at=rest.token.created_at)
    assert_problem(rest.get("tools/"), 401)
