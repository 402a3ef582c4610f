"""Connecting a client, from its registration to its first tokens."""

import pytest
from django.test import Client as Browser

from catalog.access.tokens import authenticate_token
from catalog.connections.authentication import authenticate_at_mcp
from catalog.connections.models import AccessToken, Connection, RefreshToken
from tests.catalog.connections.oauth_client import OAuthClient
from tests.pages import Pages

pytestmark = pytest.mark.django_db


@pytest.mark.db
def test_a_consent_makes_a_connection(ada):
    client = OAuthClient.registered(client_name="Claude")
    page = Pages(ada)
    assert "Claude" in page.open(client.address())
    assert not Connection.objects.exists()
    tokens = client.connected(ada)
    assert client.sent["state"] == "state-1" and client.sent["iss"] == "http://testserver"
    assert tokens["scope"] == "tools:read calls:create" and tokens["expires_in"] == 12 * 3600
    connection = Connection.objects.get()
    assert (connection.client_name, connection.client_host) == ("Claude", "127.0.0.1")
    found = authenticate_at_mcp(tokens["access_token"])
    assert found is not None and found.pk == connection.token_id and found.user == ada
    assert authenticate_token(tokens["access_token"]) is None
    assert not AccessToken.objects.exclude(token="").exists() and not RefreshToken.objects.exclude(token="").exists()


def test_a_refusal_is_told_to_the_client(ada):
    client = OAuthClient.registered()
    assert client.consent(ada, decision="refuse").status_code == 303
    assert client.sent["error"] == "access_denied" and client.sent["iss"] == "http://testserver"


def test_people_sign_in_first(ada):
    response = Browser().get(OAuthClient.registered().address())
    assert response.status_code == 302 and response["Location"].startswith("/sign-in/?next=")
