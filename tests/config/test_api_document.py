"""The OpenAPI document and its page."""

from io import StringIO

import pytest
from django.core.management import call_command


@pytest.fixture
def document(client, db):
    """The OpenAPI document as it is served."""
    response = client.get("/api/v1/schema/")
    assert response["Content-Type"].startswith("application/json")
    return response.json()


def test_the_document_is_valid_and_nothing_in_it_is_guessed(db):
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=StringIO())


def test_every_operation_asks_for_a_token_or_session_and_tells_how_it_refuses(document):
    operations = [operation for path in document["paths"].values() for operation in path.values()]

    assert len(operations) > 20
    for operation in operations:
        assert [*map(list, operation["security"])] == [["bearer"], ["cookieAuth"]]
        assert "4XX" in operation["responses"]


def test_yaml_is_there_for_who_asks(client, db):
    assert client.get("/api/v1/schema/", {"format": "yaml"}).content.startswith(b"openapi: 3.1.0")


def test_the_page_runs_no_inline_script(client, db):
    response = client.get("/api/v1/docs/")

    assert b"<script>" not in response.content
    assert "script-src 'self';" in response["Content-Security-Policy"] + ";"
    assert client.get("/api/v1/docs/", {"script": ""}).status_code == 200
