"""Requests that schemathesis makes of the OpenAPI document, for every operation.

Each answer must be one that the document describes, which every answer to a test client is compared with, and none may
be a fault of the server's. Half of the requests are about objects that exist; valid and invalid ones alternate.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from django.contrib.auth.models import User
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests import counts
from tests.approvals.factories import rolled_back
from tests.corpus import faults
from tests.rest import Rest
from tests.routes import filled

pytestmark = pytest.mark.timeout(counts.seconds(3600))

NOT_CONFIGURED = "POST /api/v1/plans/draft/"
"""It answers 503, as documented, without a model."""
few = settings(
    max_examples=counts.count(100, share=33),
    database=None,
    deadline=None,
    derandomize=not counts.FULL,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def test_every_operation_answers_generated_requests_as_documented(places: Mapping[str, str], admin: User) -> None:
    rest = Rest(admin)
    document = json.loads(OpenApiJsonRenderer().render(SchemaGenerator(urlconf="config.urls").get_schema(public=True)))
    for operation in (each for item in document["paths"].values() for each in item.values()):
        # Requests are sent with the caller's own headers: none are generated, which takes as long as the rest.
        del operation["security"]
        operation["parameters"] = [each for each in operation.get("parameters", ()) if each["in"] != "header"]
    api = schemathesis.openapi.from_dict(document)

    def send(case: Any, path: str) -> None:
        request = case.as_transport_kwargs(base_url="http://testserver")
        address = path or request["url"].removeprefix("http://testserver")
        body = json.dumps(request["json"]) if "json" in request else request.get("data") or b""
        query = urlencode(request.get("params") or {}, doseq=True)
        with rolled_back():
            answer = rest.client.generic(
                case.method, f"{address}?{query}", body, content_type="application/json", headers=rest.headers
            )
        assert answer.status_code < 500 or (case.operation.label, answer.status_code) == (NOT_CONFIGURED, 503), (
            f"{answer.status_code} for {address}?{query} {body!r}"[:1000]
        )

    def try_operation(label: str, operation: Any) -> None:
        cases = st.one_of(
            operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
            operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
        )

        @few
        @given(cases, st.sampled_from(["", filled(operation.path, places)]))
        def try_one(case: Any, path: str) -> None:
            send(case, path)

        try_one()

    operations = [result.ok() for result in api.get_all_operations() if isinstance(result, Ok)]
    assert len(operations) > 60
    assert faults(try_operation, [(each.label, each) for each in operations]) == {}
