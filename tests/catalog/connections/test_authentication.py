"""Tokens of both kinds at `/mcp`."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.access.tokens import create_token
from catalog.connections.authentication import authenticate_at_mcp
from catalog.connections.models import Connection
from tests.catalog.connections.oauth_client import OAuthClient
from tests.rest import Rest

pytestmark = pytest.mark.django_db


@pytest.mark.db
def test_both_kinds_of_tokens_take_the_same_statements(ada):
    static = create_token(user=ada, kind="agent", scopes=["calls:create"])[1]
    signed_in = OAuthClient.registered().connected(ada)["access_token"]
    counts = []
    for text in (static, signed_in):
        for _ in ("first use", "later use"):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                assert authenticate_at_mcp(text)
            counts.append(len(queries))
    assert counts[:2] == counts[2:] and counts[1] == 1


def test_switching_oauth_off_ends_access_tokens(ada, settings):
    signed_in = OAuthClient.registered().connected(ada)["access_token"]
    settings.TOOLGATE_OAUTH_CLIENTS = "off"
    assert authenticate_at_mcp(signed_in) is None


def test_a_connection_is_listed_and_ended_as_a_token(ada):
    client = OAuthClient.registered(client_name="Claude")
    tokens = client.connected(ada)
    rest, number = Rest(ada), Connection.objects.get().token_id
    row = rest.get(f"tokens/{number}/").json()
    assert (row["via"], row["client"]) == ("oauth", {"name": "Claude", "host": "127.0.0.1"})
    own = rest.get(f"tokens/{rest.token.pk}/").json()
    assert (own["via"], own["client"]) == (None, None)
    assert rest.delete(f"tokens/{number}/").status_code == 200
    assert authenticate_at_mcp(tokens["access_token"]) is None
    assert client.refresh(tokens["refresh_token"]).status_code == 400
