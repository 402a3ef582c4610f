"""Attempts to get a connection, or more than a person consented to, without them (RFC 9700, RFC 9207, RFC 8707)."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client as Browser

from approvals.models import AuditEntry
from catalog.access.people import activate_person, deactivate_person, reset_person
from catalog.access.roles import SIGNED_IN_AT_KEY, mark_session_user
from catalog.connections import clients
from catalog.connections.authentication import authenticate_at_mcp
from catalog.connections.models import Client, Connection, Grant, Step
from catalog.core import clock
from catalog.core.rate_limits import RateLimit
from catalog.models import ApiToken
from tests.catalog.connections.oauth_client import CALLBACK, VERIFIER, OAuthClient, challenge_of, register
from tests.rest import agent

pytestmark = pytest.mark.django_db
HTTPS, CURSOR = "https://app.example/callback", "cursor://app/callback"
OTHER_ADDRESSES = [
    (HTTPS, "https://app.example/callbacK"),
    (HTTPS, "https://app.example/callback/"),
    (HTTPS, "https://app.example/callback?x=1"),
    (HTTPS, "https://app.example/callback#x"),
    (HTTPS, "https://app.example:444/callback"),
    (HTTPS, "https://app.example:443/callback"),
    (HTTPS, "https://App.example/callback"),
    (HTTPS, "http://app.example/callback"),
    (HTTPS, "https://evil.example/callback"),
    (HTTPS, "https://app.example@evil.example/callback"),
    (HTTPS, "https://app.example.evil.example/callback"),
    (HTTPS, "https://app.example/callback/../evil"),
    (HTTPS, "https://app.example/callback;evil"),
    (HTTPS, "javascript:alert(1)"),
    (CALLBACK, "http://127.0.0.1:8888/callback2"),
    (CALLBACK, "http://localhost:7777/callback"),
    (CALLBACK, "http://127.0.0.1.evil.example:7777/callback"),
    (CALLBACK, "http://x@127.0.0.1:7777/callback"),
    (CALLBACK, "https://127.0.0.1:7777/callback"),
    (CURSOR, "cursor://app/callback2"),
    (CURSOR, "cursor2://app/callback"),
]
ASTRAY = [
    *("http://app.example/callback", "javascript:alert(1)", "data:text/html,x", "https://*.example/callback"),
    *("https://app.example/#x", "https://user@app.example/", "//app.example/callback", "callback", "https://"),
    *("https://app.example;sandbox/", "https://app.example,x/", "https://app%2eexample/", "https://app.example:0/"),
    *("https://app.example/a b", "https://app.example/\u202e", "http://192.0.2.1/callback", "file:///etc/passwd"),
    *("ms-msdt:/id", "search-ms:query", "ldap://app.example/", "shell:startup"),
]
TOO_MUCH: list[tuple[dict[str, Any], str]] = [
    ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
    ({"code_challenge_method": "plain", "code_challenge": VERIFIER}, "invalid_request"),
    ({"code_challenge_method": None}, "invalid_request"),
    ({"code_challenge": "short"}, "invalid_request"),
    ({"code_challenge": "\0" * 43}, "invalid_request"),
    ({"resource": "https://other.example/mcp"}, "invalid_target"),
    ({"resource": "http://testserver/api/v1/"}, "invalid_target"),
    ({"resource": "http://testserver@other.example/mcp"}, "invalid_target"),
    ({"resource": "http://testserver:81/mcp"}, "invalid_target"),
    ({"resource": ["http://testserver/mcp", "https://other.example/mcp"]}, "invalid_target"),
    ({"resource": "urn:x"}, "invalid_target"),
    ({"response_type": "token"}, "unauthorized_client"),
    ({"response_type": "code token"}, "unauthorized_client"),
    ({"response_type": None}, "invalid_request"),
    ({"scope": "policies:write"}, "invalid_scope"),
    ({"scope": "approvals:decide calls:create"}, "invalid_scope"),
    ({"scope": "__all__"}, "invalid_scope"),
]


@pytest.fixture
def later(db, monkeypatch):
    """Set the clock forward."""
    now = [clock.now()]
    monkeypatch.setattr(clock, "now", lambda: now[0])

    def forward(**span):
        now[0] += timedelta(**span)

    return forward


def refused_page(client, user, **changes):
    """Open the consent page and return the response, which must lead nowhere."""
    browser = Browser()
    browser.force_login(user)
    response = browser.get(client.address(**changes))
    assert response.status_code == 400 and "Location" not in response.headers
    return response


def test_a_redirect_address_must_be_the_registered_one(ada):
    clients_of = {uri: OAuthClient.registered(uri) for uri in (HTTPS, CALLBACK, CURSOR)}
    browser, faults = Browser(), {}
    browser.force_login(ada)
    for registered, asked in OTHER_ADDRESSES:
        response = browser.get(clients_of[registered].address(redirect_uri=asked))
        if response.status_code != 400 or "Location" in response.headers:
            faults[asked] = response.status_code
    assert faults == {}


@pytest.mark.parametrize("uri", ["app:///back", "app:/back", "com.example.app://back?from=toolgate"])
def test_an_answer_goes_to_the_address_as_it_was_registered(ada, uri):
    client = OAuthClient.registered(uri)
    for decision in ("allow", "deny"):
        location = client.consent(ada, decision=decision)["Location"]
        assert location.startswith(f"{uri}{'&' if '?' in uri else '?'}")
        assert client.sent["iss"] == "http://testserver" and client.sent["state"] == "state-1"


def test_a_loopback_address_may_have_any_port(ada):
    client = OAuthClient.registered()
    client.redirect_uri = "http://127.0.0.1:50123/callback"
    assert client.connected(ada)


def test_a_redirect_address_that_leads_astray_is_not_registered(db):
    browser, faults = Browser(), {}
    for uri in ASTRAY:
        answer = register(browser, redirect_uris=[uri])
        if (answer.status_code, answer.json().get("error")) != (400, "invalid_redirect_uri"):
            faults[uri] = answer.json()
    assert faults == {}
    assert not Client.objects.exists()


def test_a_request_that_asks_for_too_much_is_refused_at_the_client(ada):
    client, browser, faults = OAuthClient.registered(), Browser(), []
    browser.force_login(ada)
    for changes, error in TOO_MUCH:
        address = client.address(**changes)
        for response in (browser.get(address), browser.post(address, {"decision": "allow", "days": "1"})):
            location = response.get("Location", "")
            wanted = f"{CALLBACK}?", f"error={error}", "iss=http%3A%2F%2Ftestserver"
            if (
                response.status_code != 303
                or not location.startswith(CALLBACK)
                or any(each not in location for each in wanted)
            ):
                faults.append((changes, response.status_code, location))
    assert faults == []
    assert not Grant.objects.exists()
    assert Step.objects.filter(user=ada, succeeded=False).count() == 2 * len(TOO_MUCH)


@pytest.mark.parametrize("changes", [{"client_id": "unknown"}, {"client_id": ""}, {"client_id": "a\0b"}])
def test_an_unknown_client_leads_nowhere(ada, changes):
    refused_page(OAuthClient.registered(), ada, **changes)


def test_a_repeated_parameter_is_refused(ada):
    client = OAuthClient.registered()
    refused_page(client, ada, redirect_uri=[CALLBACK, "https://evil.example/"])
    refused_page(client, ada, client_id=[client.client_id, client.client_id])


@pytest.mark.parametrize(
    "changes", [{"approval_prompt": "auto"}, {"prompt": "none"}, {"decision": "allow", "days": "1"}]
)
def test_opening_the_page_decides_nothing(ada, changes):
    client = OAuthClient.registered()
    client.connected(ada)
    browser = Browser()
    browser.force_login(ada)
    assert browser.get(client.address(**changes)).status_code == 200
    assert Connection.objects.count() == 1


def test_another_site_cannot_consent(ada):
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(ada)
    client = OAuthClient.registered()
    assert browser.post(client.address(), {"decision": "allow", "days": "1"}).status_code == 403
    assert not Grant.objects.exists()


def test_the_page_cannot_be_framed_and_may_lead_to_its_client_alone(ada):
    browser = Browser()
    browser.force_login(ada)
    response = browser.get(OAuthClient.registered().address())
    policy = response["Content-Security-Policy"]
    assert response["X-Frame-Options"] == "DENY" and "frame-ancestors 'none'" in policy
    assert "form-action 'self' http://127.0.0.1:7777;" in policy + ";"
    assert "127.0.0.1" not in browser.get("/tools/")["Content-Security-Policy"]


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_stale_session_signs_in_again(ada, method):
    browser = Browser()
    browser.force_login(ada)
    session = browser.session
    session[SIGNED_IN_AT_KEY] = clock.now().timestamp() - 3700
    session.save()
    response = getattr(browser, method)(OAuthClient.registered().address(), {"decision": "allow", "days": "1"})
    assert response.status_code == 302 and "again=1" in response["Location"]
    assert not Grant.objects.exists()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": None}, "invalid_request"),
        ({"code_verifier": "w" * 64}, "invalid_grant"),
        ({"code_verifier": challenge_of(VERIFIER)}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:7778/callback"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"code": "unknown"}, "invalid_grant"),
        ({"code": "a\0b"}, "invalid_grant"),
        ({"code": None}, "invalid_request"),
        ({"client_id": "unknown"}, "invalid_client"),
        ({"client_id": None}, "invalid_client"),
        ({"grant_type": "password", "username": "ada", "password": "secret-ada"}, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
        ({"grant_type": "implicit"}, "unsupported_grant_type"),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:device_code"}, "unsupported_grant_type"),
    ],
)
def test_a_code_is_exchanged_by_its_client_alone(ada, changes, error):
    client = OAuthClient.registered()
    client.consent(ada)
    answer = client.exchange(**changes)
    assert answer.status_code in (400, 401) and answer.json()["error"] == error
    assert answer.json()["error_description"]
    assert not Connection.objects.exists()
    assert client.exchange().status_code == 200


def test_another_client_cannot_use_a_code_or_a_refresh_token(ada):
    client, thief = OAuthClient.registered(), OAuthClient.registered()
    client.consent(ada)
    thief.sent = client.sent
    assert thief.exchange().json()["error"] == "invalid_grant"
    tokens = client.exchange().json()
    assert thief.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert thief.revoke(tokens["refresh_token"]).status_code == 200
    assert authenticate_at_mcp(tokens["access_token"])


def test_a_code_ends_after_a_minute(ada, later):
    client = OAuthClient.registered()
    client.consent(ada)
    later(seconds=61)
    assert "expired" in client.exchange().json()["error_description"]


def test_a_code_used_twice_ends_its_connection(ada):
    client = OAuthClient.registered()
    tokens = client.connected(ada)
    answer = client.exchange()
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert authenticate_at_mcp(tokens["access_token"]) is None
    assert client.refresh(tokens["refresh_token"]).status_code == 400
    assert AuditEntry.objects.filter(action="token.reused").count() == 1


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_a_code_used_by_two_requests_at_once_leaves_no_connection(ada):
    client = OAuthClient.registered()
    client.consent(ada)
    answers, begin = [], threading.Barrier(2)

    def exchange():
        begin.wait()
        answers.append(client.exchange().status_code)
        connection.close()

    threads = [threading.Thread(target=exchange) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 400]
    assert Connection.objects.get().token.revoked_at is not None


def test_a_confidential_client_needs_its_secret(ada):
    client = OAuthClient.registered(token_endpoint_auth_method="client_secret_post")
    client.consent(ada)
    for secret in ("wrong", None):
        assert client.exchange(client_secret=secret).json()["error"] == "invalid_client"
    assert client.exchange().status_code == 200
    assert client.secret not in str(Client.objects.values())


def test_an_access_token_works_at_mcp_alone(ada):
    tokens = OAuthClient.registered().connected(ada)
    for text in (tokens["access_token"], tokens["refresh_token"]):
        headers = {"Authorization": f"Bearer {text}"}
        assert Browser().get("/api/v1/tools/", headers=headers).status_code == 401
    assert authenticate_at_mcp(tokens["refresh_token"]) is None
    assert Browser().get(f"/api/v1/tools/?access_token={tokens['access_token']}").status_code == 401


def test_a_registration_says_nothing_about_others(ada):
    made = register(redirect_uris=[CALLBACK]).json()
    assert "registration_access_token" not in made
    for method in ("get", "put", "delete"):
        assert getattr(Browser(), method)(f"/oauth/register/{made['client_id']}/").status_code == 404


def test_a_thousand_registrations_are_stopped(monkeypatch, later):
    monkeypatch.setattr(clients, "REGISTRATION_RATE", (RateLimit(3, "h"),))
    assert [register(redirect_uris=[CALLBACK]).status_code for _ in range(4)].count(201) == 3
    monkeypatch.setattr(clients, "MAX_UNUSED_CLIENTS", 5)
    answers = [register(Browser(REMOTE_ADDR=f"192.0.2.{n}"), redirect_uris=[CALLBACK]) for n in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429] and answers[-1]["Retry-After"]
    later(minutes=11)
    assert register(Browser(REMOTE_ADDR="192.0.2.99"), redirect_uris=[CALLBACK]).status_code == 201
    assert Client.objects.count() == 5


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"redirect_uris": "x"}', b'{"a":1,"a":2}', b"\xff", b"{" + b" " * 20_000]
)
def test_a_registration_must_be_small_and_strict(body):
    answer = Browser().post("/oauth/register/", body, content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/json")


def test_a_person_who_lost_a_role_before_the_exchange_gives_no_more_than_is_left(ada):
    client = OAuthClient.registered()
    client.consent(ada)
    ada.groups.set([Group.objects.get(name="viewer")])
    assert client.exchange().json()["scope"] == "tools:read"
    client.consent(ada)
    ada.groups.clear()
    assert client.exchange().json()["error"] == "invalid_grant"


def test_a_person_who_was_deactivated_gives_nothing(ada):
    client = OAuthClient.registered()
    tokens = client.connected(ada)
    client.consent(ada)
    ada.is_active = False
    ada.save()
    assert client.exchange().json()["error"] == "invalid_grant"
    assert client.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert authenticate_at_mcp(tokens["access_token"]) is None


@pytest.mark.parametrize("end", [reset_person, deactivate_person])
def test_a_code_from_before_the_end_of_an_access_gives_nothing(ada, admin, end):
    client = OAuthClient.registered()
    client.consent(ada)
    mark_session_user(admin, clock.now().timestamp())
    end(ada, by=admin)
    if end is deactivate_person:
        activate_person(ada, by=admin)
    assert client.exchange().json()["error"] == "invalid_grant"


def test_an_agent_cannot_connect_clients_or_end_others(ada):
    client = OAuthClient.registered()
    tokens = client.connected(ada)
    answer = Browser().get(client.address(), headers={"Authorization": f"Bearer {tokens['access_token']}"})
    assert answer.status_code == 302 and answer["Location"].startswith("/sign-in/")
    number = Connection.objects.get().token_id
    assert agent(ada).delete(f"tokens/{number}/").status_code in (403, 404)
    assert ApiToken.objects.get(pk=number).is_live
