"""Hostile parameters at every endpoint: refused, never an error of the server."""

from typing import Any

import pytest
from django.test import Client as Browser

from tests.catalog.connections.oauth_client import OAuthClient, register
from tests.pages import without_rendering

pytestmark = [pytest.mark.django_db, pytest.mark.db]

VALUES: list[Any] = [
    "",
    "\0",
    "a\0b",
    "\ud800".encode("utf-8", "surrogatepass"),
    b"\xff",
    "%",
    "%zz",
    "x" * 5000,
    "\r\nX: y",
    "[]",
    "☃",
]
READ = [
    *("response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method"),
    "resource",
]
UNREAD = ["prompt", "nonce", "claims", "response_mode", "request", "request_uri"]
REFRESHED = ["client_id", "client_secret", "resource", "scope"]


def test_the_page_of_the_consent(ada):
    client, browser = OAuthClient.registered(), Browser(raise_request_exception=False)
    browser.force_login(ada)
    sent = [(name, client.address(**{name: value})) for name in READ for value in VALUES]
    sent += [(name, client.address(**{name: value})) for name in UNREAD for value in ("\0", b"\xff", "x" * 5000)]
    for name in (*READ, *UNREAD):
        sent += [
            (name, f"/oauth/authorize/?{name}={value}&client_id={client.client_id}") for value in ("%zz", "%E0%A4%A")
        ]
    faults = []
    with without_rendering():
        for name, address in sent:
            for response in (browser.get(address), browser.post(address, {"decision": "allow", "days": "1"})):
                if response.status_code >= 500 or "\n" in response.get("Location", ""):
                    faults.append((name, address))
    assert faults == []


def test_the_token_endpoint(ada):
    client, faults = OAuthClient.registered(), []
    client.http = Browser(raise_request_exception=False)
    for name in ("grant_type", "code", "redirect_uri", "code_verifier", *REFRESHED):
        client.consent(ada)
        for value in VALUES:
            answers = [client.exchange(**{name: value})]
            if name in REFRESHED:
                answers.append(client.refresh("unknown", **{name: value}))
            if any(each.status_code >= 500 or each["Content-Type"] != "application/json" for each in answers):
                faults.append((name, value))
    assert faults == []


def test_other_bodies_and_headers():
    browser = Browser(raise_request_exception=False)
    for endpoint in ("token", "revoke", "register"):
        for body, media_type in (
            (b"\xff\0", "text/plain"),
            (b"{}", "application/json"),
            (b"a=%zz", "application/x-www-form-urlencoded"),
        ):
            for authorization in ("", "Basic !!!", "Basic eA==", "Basic AAA6AAA=", "Bearer x", "Basic /w=="):
                headers = {"authorization": authorization} if authorization else {}
                answer = browser.post(f"/oauth/{endpoint}/", body, content_type=media_type, headers=headers)
                assert answer.status_code in (400, 401) and answer["Content-Type"] == "application/json"
    values: tuple[Any, ...] = (
        "\0",
        5,
        None,
        {},
        [],
        ["\0"],
        [5],
        [""],
        ["https://a.example/" + "x" * 3000],
        ["https://[::1"],
        "x" * 300,
    )
    for value in values:
        for name in ("redirect_uris", "client_name", "token_endpoint_auth_method", "grant_types", "response_types"):
            metadata = {"redirect_uris": ["https://a.example/"], name: value}
            assert register(browser, **metadata).status_code in (201, 400, 429)


def test_a_query_that_cannot_be_decoded():
    browser = Browser(raise_request_exception=False)
    for endpoint in ("token", "revoke"):
        assert browser.post(f"/oauth/{endpoint}/?x=%zz", {"grant_type": "refresh_token"}).status_code in (400, 401)


def test_revocation():
    client = OAuthClient.registered()
    client.http = Browser(raise_request_exception=False)
    for value in VALUES:
        assert client.revoke(value).status_code < 500
        assert client.revoke("unknown", token_type_hint=value).status_code < 500
