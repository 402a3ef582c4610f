"""The OpenAPI document and its page."""

from functools import partial
from io import StringIO

import pytest
from django.core.management import call_command
from jsonschema_rs import Draft202012Validator

from tests import answers


@pytest.fixture
def document(client, db):
    """The served OpenAPI document."""
    response = client.get("/api/v1/schema/")
    assert response["Content-Type"].startswith("application/json")
    return response.json()


def bodies_with_names(document):
    """Yield the name and the media type object of each request and response body."""
    for path in document["paths"].values():
        for operation in path.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield f"{operation['operationId']} request", content
            for status, response in operation["responses"].items():
                assert response.get("content")
                for media_type, content in response["content"].items():
                    yield f"{operation['operationId']} {status} {media_type}", content


def test_the_document_is_valid_without_warnings(db):
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=StringIO())


def test_every_operation_declares_security_and_common_errors(document):
    operations = [operation for path in document["paths"].values() for operation in path.values()]

    assert len(operations) > 20
    for operation in operations:
        assert [*map(list, operation["security"])] == [["bearer"], ["cookieAuth"]]
        assert {"400", "401", "403", "503"} <= operation["responses"].keys()


def test_every_body_has_valid_examples(document):
    components = answers.document()["components"]
    bodies = list(bodies_with_names(answers.document()))
    missing = [name for name, content in bodies if not content.get("examples")]
    wrong = [
        f"{name}, {example['summary']}: {fault.instance_path} {fault.message[:200]}"
        for name, content in bodies
        for example in content.get("examples", {}).values()
        for fault in Draft202012Validator(
            {**content["schema"], "components": components}, validate_formats=True
        ).iter_errors(example["value"])
    ]

    assert len(bodies) > 500
    assert missing == []
    assert wrong == []


def test_every_refusal_is_a_problem_document(document):
    kinds = {
        media_type
        for path in document["paths"].values()
        for operation in path.values()
        for status, response in operation["responses"].items()
        for media_type in response["content"]
        if status >= "400"
    }

    assert kinds == {"application/problem+json"}


def test_delete_returns_the_object(document):
    ends = {path: item["delete"]["responses"] for path, item in document["paths"].items() if "delete" in item}

    assert len(ends) >= 3
    assert all("application/json" in responses["200"]["content"] for responses in ends.values())


def test_errors_of_plans_and_fields_have_their_own_schemas(document):
    responses = document["paths"]["/api/v1/plans/"]["post"]["responses"]
    named = [responses[status]["content"]["application/problem+json"]["schema"]["$ref"] for status in ("400", "422")]

    assert [name.rpartition("/")[2] for name in named] == ["Problem", "PlanRefusal"]
    assert not [name for name in document["components"]["schemas"] if name[-1].isdigit()]


@pytest.mark.parametrize(
    ("status", "media_type", "body"),
    [
        (404, "text/html", b""),
        (418, "application/problem+json", b"{}"),
        (200, "application/problem+json", b'{"valid": true}'),
        (200, "application/json", b'{"valid": "yes"}'),
        (200, "application/json", b'{"valid": true, "more": 1}'),
        (200, "application/json", b"{}"),
        (422, "application/problem+json", b'{"status": 422}'),
    ],
)
def test_a_response_that_differs_from_the_document_is_found(status, media_type, body):
    found = partial(answers.fault_of, "POST", "api/v1/tools/<name:name>/validate/")

    assert found(200, "application/json", b'{"valid": true}') is None
    assert found(status, media_type, body) is not None


def test_yaml_is_available(client, db):
    assert client.get("/api/v1/schema/", {"format": "yaml"}).content.startswith(b"openapi: 3.1.0")


def test_the_page_runs_no_inline_script(client, db):
    response = client.get("/api/v1/docs/")

    assert b"<script>" not in response.content
    assert "script-src 'self';" in response["Content-Security-Policy"] + ";"
    assert client.get("/api/v1/docs/", {"script": ""}).status_code == 200
