"""The OpenAPI document and its page; whether the process is up and ready."""

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from catalog import snapshot
from catalog.models import Tool


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


def test_a_process_that_answers_is_up(client):
    assert client.get("/healthz").json() == {"status": "ok"}


def test_a_process_with_its_database_is_ready(client, catalog):
    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json() == {
        "ready": True,
        "checks": dict.fromkeys(("database", "migrations", "tools", "executor", "late_tools"), "ok"),
    }


def test_code_that_has_drifted_is_named_and_does_not_stop_the_rest(client, catalog):
    Tool.objects.get(name="read_file").versions.update(fingerprint="f" * 64)
    snapshot.forget()
    response = client.get("/readyz")

    assert (response.status_code, response.json()["checks"]["tools"]) == (200, "drifted: read_file")


def test_a_process_without_its_database_is_not_ready(client, db, monkeypatch):
    def fail(*args, **kwargs):
        raise DatabaseError

    with monkeypatch.context() as broken:
        broken.setattr(connection, "cursor", fail)
        response = client.get("/readyz")

    assert (response.status_code, response.json()["ready"]) == (503, False)
    assert response.json()["checks"]["database"] == "cannot be reached"


def test_a_process_with_migrations_to_apply_is_not_ready(client, db, monkeypatch):
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *args: ["one", "two"])

    assert client.get("/readyz").json()["checks"]["migrations"] == "2 to be applied"
