"""Metadata, and everything else under `/.well-known/`: always JSON, never a redirect."""

from itertools import product

import pytest
from django.test import Client as Browser
from oauth2_provider.views.mixins import OAuthLibMixin

from config.operations import restored_database

pytestmark = pytest.mark.django_db

DOCUMENTS = [
    f"/.well-known/{name}{suffix}"
    for name in ("oauth-protected-resource", "oauth-authorization-server")
    for suffix in ("", "/mcp")
]
OTHERS = [
    *("/.well-known", "/.well-known/", "/.well-known/openid-configuration", "/.well-known/openid-configuration/mcp"),
    *("/.well-known/jwks.json", "/.well-known/oauth-protected-resource/", "/.well-known/oauth-protected-resource/x"),
    *("/.well-known/oauth-authorization-server/mcp/", "/.well-known/oauth-authorization-server/evil.example"),
    *("/.well-known/security.txt", "/.well-known/%2e%2e/tools/", "/.well-known//"),
]
METHODS = ("get", "head", "post", "put", "delete", "options")


def test_no_well_known_address_redirects_or_answers_html(settings, admin):
    faults = {}
    for https, paths in ((False, [*DOCUMENTS, *OTHERS]), (True, [DOCUMENTS[0], OTHERS[0]])):
        settings.SECURE_SSL_REDIRECT = https
        browser, signed_in = Browser(), Browser()
        signed_in.force_login(admin)
        for switch, path, method in product(("any", "off"), paths, METHODS):
            settings.TOOLGATE_OAUTH_CLIENTS = switch
            is_document = path in DOCUMENTS and switch == "any"
            status = 404 if not is_document else 200 if method in ("get", "head") else 405
            for each in (browser, signed_in):
                response = getattr(each, method)(path, headers={"accept": "text/html"})
                answer = response.status_code, response["Content-Type"], response.get("Location")
                if answer != (status, "application/json", None):
                    faults[https, switch, path, method] = answer
    assert faults == {}


def test_the_metadata_is_that_of_the_host_that_the_client_uses(settings):
    settings.ALLOWED_HOSTS = ["tools.example", "testserver"]
    for host in settings.ALLOWED_HOSTS:
        browser, origin = Browser(headers={"host": host}), f"http://{host}"
        resource, resource_of_mcp, server, _ = (browser.get(path).json() for path in DOCUMENTS)
        assert resource == resource_of_mcp
        assert (resource["resource"], resource["authorization_servers"]) == (f"{origin}/mcp", [origin])
        assert server["issuer"] == origin and server["token_endpoint"] == f"{origin}/oauth/token/"
        assert server["code_challenge_methods_supported"] == ["S256"]
        assert server["scopes_supported"] == resource["scopes_supported"] == ["tools:read", "calls:create"]
    for path in (DOCUMENTS[0], "/.well-known/x"):
        refused = Browser(headers={"host": "evil.example"}).get(path)
        assert (refused.status_code, refused["Content-Type"]) == (400, "application/json")


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/token/", "/oauth/register", "/oauth/revoke"])
def test_endpoints_answer_with_and_without_their_last_slash(path, settings):
    assert Browser().post(path).status_code in (400, 401)
    assert Browser().get(path).status_code == 405
    settings.TOOLGATE_OAUTH_CLIENTS = "off"
    response = Browser().post(path)
    assert (response.status_code, response["Content-Type"]) == (404, "application/json")


def test_errors_of_every_layer_are_json(admin, settings, monkeypatch):
    settings.TOOLGATE_SECOND_FACTOR_ROLES = ["administrator"]
    browser = Browser(raise_request_exception=False)
    browser.force_login(admin)

    def status(path, body="{}"):
        response = browser.post(path, body, content_type="application/x-www-form-urlencoded")
        assert response["Content-Type"] == "application/json"
        return response.status_code

    assert browser.get(DOCUMENTS[0]).status_code == 200
    assert status("/oauth/token/") in (400, 401)
    assert status("/oauth/unknown/") == 404
    assert status("/oauth/register/", "x" * 1_100_000) == 400
    with monkeypatch.context() as patches:
        patches.setattr(OAuthLibMixin, "create_token_response", lambda *_: 1 / 0)
        assert status("/oauth/token/") == 500
    monkeypatch.setattr(restored_database, "cached_fault", lambda: "restored")
    assert status("/oauth/token/") == 503
